"""Formats, with PyFlink's module paths: `pyflink.datastream.formats` and its modules."""
