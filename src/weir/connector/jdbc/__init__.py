"""Databases: sinks that write rows by statements, and a source that reads by ranges."""
