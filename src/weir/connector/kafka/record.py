"""Whole Kafka records as rows: what a value alone does not say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from weir.common.typeinfo import TypeInformation, Types
from weir.common.types import row_class

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_FIELDS = {
    "topic": Types.STRING(),
    "partition": Types.INT(),
    "offset": Types.LONG(),
    "timestamp": Types.LONG(),
    "key": _BYTES,
    "value": _BYTES,
    "headers": Types.LIST(Types.TUPLE([Types.STRING(), _BYTES])),
}


class KafkaRecordDeserializationSchema:
    """Makes records of whole Kafka records: rows, or what `deserialize` makes of such a row.

    The row has the fields `topic`, `partition`, `offset`, `timestamp` (milliseconds, or None),
    `key`, `value` (bytes, or None) and `headers`, a list of pairs of name and bytes. Subclasses
    override `deserialize` and `get_produced_type`; None as a result leaves a record out.

    Example:
        class Keyed(KafkaRecordDeserializationSchema):
            def deserialize(self, record):
                return record.key, record.value
    """

    def deserialize(self, record: Any) -> Any:
        """Return what becomes of a row."""
        return record

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records."""
        return Types.ROW_NAMED(list(_FIELDS), list(_FIELDS.values()))

    def records(self, topic: str, partition: int, batch: pa.RecordBatch) -> list[Any]:
        """Return the rows of a batch of the reader, as `deserialize` is given them."""
        make = row_class(tuple(_FIELDS))._of
        columns = [
            batch.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value")
        ]
        headers = [
            [(h["key"], h["value"]) for h in row or ()]
            for row in batch.column("headers").to_pylist()
        ]
        return [make((topic, partition, *values)) for values in zip(*columns, headers, strict=True)]
