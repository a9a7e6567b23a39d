"""ORC: PyFlink's names, and what to use instead of them."""

from weir.common._absent import absent

__getattr__ = absent(
    __name__,
    {"OrcBulkWriters": "writes in Java: use ParquetBulkWriters, or stream.foreach_batch() for ORC"},
)
