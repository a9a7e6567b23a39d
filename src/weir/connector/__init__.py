"""Sinks and sources, engine side: the exactly-once sink SPI and the sinks that ship with Weir."""
