"""The only package that imports pyspark: sources, levels, pipes, the streaming query, rewinding."""
