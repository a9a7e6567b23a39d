"""Makes records of what was read of Kafka, as columns where schema and values allow it.

With records go Kafka's timestamps. A record without a value (a tombstone) has nothing to
deserialise and is left out. One that cannot be deserialised ends the job, with a message that says
which it is, or is left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from weir.codec.arrow import arrow_schema_for
from weir.common.serialization import ByteArraySchema, DeserializationSchema, SimpleStringSchema
from weir.connector.decoder import Columns, Decoder, Piece, Records
from weir.connector.formats.columns import text_column
from weir.connector.kafka.reader import PARTITION, TOPIC
from weir.connector.undecoded import Faults, OnError
from weir.errors import UsageError

SETTING = "the property 'on.deserialization.error'"


@dataclass(frozen=True)
class KafkaRecords(Decoder):
    """Deserialises batches of the reader.

    `columnar` allows columns of the schema's type: nobody declared another one for the stream.
    """

    schema: Any
    on_error: OnError = OnError.FAIL
    columnar: bool = False

    def decode(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """Deserialise a batch; what is left out of it comes behind its records."""
        faults = Faults(self.on_error)
        if isinstance(self.schema, DeserializationSchema):
            yield from self._values(_with_values(batch), faults)
        else:
            records = self.schema.records(_topic(batch), _partition(batch), batch)
            yield from self._one_by_one(batch, records, self.schema.deserialize, faults)
        left_out = faults.take()
        if left_out is not None:
            yield left_out

    def _values(self, batch: pa.RecordBatch, faults: Faults) -> Iterator[Piece]:
        if not batch.num_rows:
            return
        values = batch.column("value")
        columns = _columns(self.schema, values) if self.columnar else None
        if columns is not None:
            stamps = batch.column("timestamp")
            given = None if stamps.null_count == len(stamps) else stamps
            yield Columns(columns, self.schema.get_produced_type(), given)
            return
        yield from self._one_by_one(batch, values.to_pylist(), self.schema.deserialize, faults)

    def _one_by_one(
        self, batch: pa.RecordBatch, given: list[Any], make: Callable[[Any], Any], faults: Faults
    ) -> Iterator[Piece]:
        found: list[Any] = []
        ignoring = getattr(self.schema, "ignores_errors", False)
        for row, one in enumerate(given):
            try:
                made = make(one)
            except Exception as error:
                if faults.fails:
                    raise self._refusal(batch, row, error) from error
                made = None
                key, value = _contents(batch, row)
                faults.add(*_place(batch, row), key=key, value=value, error=error)
            else:
                if made is None and ignoring:
                    faults.count(1)
            found.append(made)
        timestamps = batch.column("timestamp").to_pylist()
        if None in found:
            kept = [(v, t) for v, t in zip(found, timestamps, strict=True) if v is not None]
            found, timestamps = [v for v, _ in kept], [t for _, t in kept]
        if found:
            stamped = any(stamp is not None for stamp in timestamps)
            yield Records(found, timestamps if stamped else None)

    def _refusal(self, batch: pa.RecordBatch, row: int, error: Exception) -> UsageError:
        topic, partition, offset = _place(batch, row)
        value = _contents(batch, row)[1] or b""
        return UsageError(
            f"the Kafka record at offset {offset} of {topic!r}, partition {partition}, cannot be "
            f"deserialised by {type(self.schema).__name__}: {type(error).__name__}: {error}; its "
            f"value begins with {value[:100]!r}. set_property('on.deserialization.error', 'skip') "
            "leaves such out, 'dead-letter' gives them to a side output"
        )


def _with_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = batch.column("value")
    return batch.filter(values.is_valid()) if values.null_count else batch


def _columns(schema: DeserializationSchema, values: pa.Array) -> pa.RecordBatch | None:
    """Return what a schema makes of all values, as columns; None where it cannot."""
    if type(schema) is SimpleStringSchema and schema.charset == "utf-8":
        column = text_column(values)
    elif type(schema) is ByteArraySchema:
        column = values
    else:
        many = getattr(schema, "deserialize_columns", None)
        return None if many is None else many(values)
    if column is None:
        return None
    form = arrow_schema_for(schema.get_produced_type())
    return pa.RecordBatch.from_arrays([column], schema=form)


def _topic(batch: pa.RecordBatch) -> str:
    name: bytes = batch.schema.metadata[TOPIC]
    return name.decode()


def _partition(batch: pa.RecordBatch) -> int:
    return int(batch.schema.metadata[PARTITION])


def _place(batch: pa.RecordBatch, row: int) -> tuple[str, int, int]:
    return _topic(batch), _partition(batch), batch.column("offset")[row].as_py()


def _contents(batch: pa.RecordBatch, row: int) -> tuple[bytes | None, bytes | None]:
    """Return key and value as they came."""
    return batch.column("key")[row].as_py(), batch.column("value")[row].as_py()
