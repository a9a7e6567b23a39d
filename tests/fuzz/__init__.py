"""Mutated bytes against every format and the REST door: what `make fuzz` runs."""
