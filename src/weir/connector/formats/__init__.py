"""Formats of values and files: JSON, CSV and Avro rows, and files of Parquet, ORC, Avro and CSV."""
