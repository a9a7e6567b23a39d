"""Avro: PyFlink's names, and what to use instead of them."""

from weir.common._absent import FORMATS, absent

_FILES = "reads or writes in Java: use env.from_dataframe(spark.read.format('avro')…), and "
_FILES += "stream.foreach_batch() to write"

__getattr__ = absent(
    __name__,
    {
        **FORMATS,
        "AvroSchema GenericRecordAvroTypeInfo AvroInputFormat AvroBulkWriters": _FILES,
    },
)
