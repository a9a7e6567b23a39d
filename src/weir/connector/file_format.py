"""Formats that turn a list of records into bytes: JSON lines, CSV, text, a user's encoder.

A `FileFormat` is a picklable choice; `bind` joins it with the type of the stream and returns what
opens a part file. Every line-based format encodes a whole list in one call. A value that cannot
be written raises `UsageError` and names the value; nothing of its batch is then visible. Whatever
is raised says at which record, see `weir.connector.sink.blame`.
"""

from __future__ import annotations

import csv
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import msgspec

from weir.common._text import written
from weir.common.serialization import Encoder
from weir.common.typeinfo import RowTypeInfo
from weir.common.types import Row
from weir.connector.sink import blame
from weir.errors import UsageError

_REFUSED = (TypeError, ValueError, RecursionError, csv.Error)

EncodeBatch = Callable[[list[Any]], bytes]
NON_FINITE = ("refuse", "null", "text")


class PartWriter(ABC):
    """Writes records into one open file."""

    @abstractmethod
    def write(self, values: list[Any]) -> None:
        """Append records."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Return the bytes that have left the encoder so far."""

    @abstractmethod
    def finish(self) -> None:
        """Write what the format still holds; the caller syncs and closes the file."""

    def write_columns(self, batch: Any) -> None:
        """Append the rows of an Arrow batch with the `column_schema` of the format."""
        raise NotImplementedError

    def abandon(self) -> None:  # noqa: B027
        """Let go of the open file: it is about to be removed. Never raises."""


OpenPart = Callable[[BinaryIO], PartWriter]


class FileFormat(ABC):
    """A file format; PyFlink's `BulkWriterFactory`. Subclass it to add one.

    Example:
        csv: FileFormat = CsvBulkWriters.for_schema(Types.ROW_NAMED(["id"], [Types.LONG()]))
        FileSink.for_bulk_format("/out", csv).build()
    """

    suffix = ""
    can_be_concatenated: bool = False
    """Whether two files, one behind the other, are one file with the records of both."""

    @abstractmethod
    def bind(self, type_info: Any) -> OpenPart:
        """Return the opener for a stream of this type; `UsageError` if the type does not fit."""

    def column_schema(self, type_info: Any) -> Any:
        """Return the Arrow schema of batches that parts take as columns; None for records only."""
        return None

    def rewrite(self, parts: list[BinaryIO], stream: BinaryIO) -> None:
        """Write the records of finished files into one, in order.

        Raises:
            UsageError: files of this format cannot be read again.
        """
        msg = f"{type(self).__name__} cannot rewrite files: choose another FileCompactor"
        raise UsageError(msg)


class LinePart(PartWriter):
    """Encodes a list of records in one call, and appends the bytes."""

    def __init__(self, stream: BinaryIO, encode: EncodeBatch, header: bytes = b"") -> None:
        self._stream = stream
        self._encode = encode
        self._size = len(header)
        if header:
            stream.write(header)

    def write(self, values: list[Any]) -> None:
        """Encode and append records."""
        data = self._encode(values)
        self._stream.write(data)
        self._size += len(data)

    def size_bytes(self) -> int:
        """Return the bytes that were written."""
        return self._size

    def finish(self) -> None:
        """Do nothing: all is written."""
        return


def field_names(type_info: Any) -> tuple[str, ...] | None:
    """Return the names of a row type or a `pyarrow.Schema`, None for any other type."""
    if isinstance(type_info, RowTypeInfo):
        return type_info.field_names
    names = getattr(type_info, "names", None)
    return tuple(names) if names else None


class JsonLinesFormat(FileFormat):
    """One JSON value per line.

    Named rows and dicts become objects, tuples, lists and unnamed rows arrays, dates ISO text,
    decimals text, bytes base64. A named row type names the fields of plain tuples too. JSON has no
    NaN and no infinity: `non_finite` says whether they are refused, written as null, which is what
    None is written as, or as the texts "NaN", "Infinity" and "-Infinity".
    """

    suffix = ".jsonl"
    can_be_concatenated = True

    def __init__(self, non_finite: str = "refuse") -> None:
        """Check the choice now."""
        if non_finite not in NON_FINITE:
            message = f"JSON lines: non_finite is {non_finite!r}, expected one of {NON_FINITE}"
            raise UsageError(message)
        self.non_finite = non_finite

    def bind(self, type_info: Any) -> OpenPart:
        """Accept any type."""
        encode_lines = msgspec.json.Encoder(enc_hook=_json_hook).encode_lines
        names = field_names(type_info)
        choice = self.non_finite

        def encode(values: list[Any]) -> bytes:
            named = _name_all(values, names) if names else values
            try:
                data = encode_lines(named)
            except _REFUSED:
                raise _first_bad(values, encode_lines, "JSON") from None
            # The encoder writes null for them too, so that nearly every batch is done here.
            if choice == "null" or b"null" not in data:
                return data
            lines = data.splitlines(keepends=True)
            for index, line in enumerate(lines):
                if b"null" in line:
                    plain = msgspec.to_builtins(named[index], enc_hook=_json_hook)
                    number = _non_finite(plain)
                    if number is not None and choice == "refuse":
                        raise _no_json_number(values[index], number)
                    if number is not None:
                        lines[index] = encode_lines([_with_texts(plain)])
            return b"".join(lines)

        return lambda stream: LinePart(stream, encode)


def _non_finite(plain: Any) -> float | None:
    """Return the first number that JSON does not have, None if there is none."""
    if isinstance(plain, float):
        return None if math.isfinite(plain) else plain
    items = plain.values() if isinstance(plain, dict) else plain
    if isinstance(plain, (dict, list, tuple)):
        return next((found for item in items if (found := _non_finite(item)) is not None), None)
    return None


def _with_texts(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _with_texts(item) for key, item in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [_with_texts(item) for item in plain]
    if isinstance(plain, float) and not math.isfinite(plain):
        return "NaN" if math.isnan(plain) else "Infinity" if plain > 0 else "-Infinity"
    return plain


def _no_json_number(value: Any, number: float) -> UsageError:
    error = UsageError(
        f"cannot write {value!r} as JSON: JSON has no {number}; choose FileSink.json_lines(..., "
        "non_finite='null') or non_finite='text', or map it to another value first"
    )
    blame(error, value)
    return error


def _name_all(values: list[Any], names: tuple[str, ...]) -> list[Any]:
    return [
        dict(zip(names, value, strict=True))
        if _is_nameless(value) and len(value) == len(names)
        else value
        for value in values
    ]


def _is_nameless(value: Any) -> bool:
    return isinstance(value, (tuple, list)) or (isinstance(value, Row) and value._fields is None)


def _json_hook(value: Any) -> Any:
    if isinstance(value, Row):
        return list(value) if value._fields is None else value.as_dict()
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return value.tolist()
    message = f"objects of type {type(value).__name__} have no JSON form"
    raise TypeError(message)


def _first_bad(values: list[Any], encode: Callable[[list[Any]], bytes], form: str) -> UsageError:
    reasons = ((value, _refusal(value, encode)) for value in values)
    bad, reason = next(
        (pair for pair in reasons if pair[1] is not None), (values, "unknown reason")
    )
    error = UsageError(f"cannot write {bad!r} as {form}: {reason}; map it to plain values first")
    blame(error, bad)
    return error


def _blame_first(error: BaseException, values: list[Any], encode: EncodeBatch) -> None:
    """Find the record behind an error by trying one after the other."""
    index = next((i for i, v in enumerate(values) if _raises(encode, v, type(error))), None)
    if index is not None:
        blame(error, values[index])


def _raises(encode: EncodeBatch, value: Any, kind: type[BaseException]) -> bool:
    try:
        encode([value])
    except kind:
        return True
    return False


def _refusal(value: Any, encode: Callable[[list[Any]], bytes]) -> str | None:
    try:
        encode([value])
    except _REFUSED as error:
        return str(error)
    return None


class CsvFormat(FileFormat):
    """Comma-separated lines ending in a newline, quoted where the content needs it.

    None is an empty field. With `header` every part file starts with the field names, which come
    from `row_type` or the type of the stream.
    """

    suffix = ".csv"

    def __init__(self, row_type: Any = None, header: bool = False) -> None:
        self.row_type = row_type
        self.header = header
        self.can_be_concatenated = not header

    def bind(self, type_info: Any) -> OpenPart:
        """Accept any type; a header needs names."""
        names = field_names(self.row_type) or field_names(type_info)
        if self.header and not names:
            message = (
                f"CSV header: the field names are unknown, the stream's type is {type_info!r}; "
                "give a row_type with names, or header=False"
            )
            raise UsageError(message)
        header = _csv_lines([names]) if self.header and names else b""

        def encode_any(values: list[Any]) -> bytes:
            return _csv_lines([_csv_fields(value, names) for value in values])

        def encode(values: list[Any]) -> bytes:
            try:
                return encode_any(values)
            except (UnicodeEncodeError, csv.Error):
                raise _first_bad(values, encode_any, "CSV") from None
            except BaseException as error:
                _blame_first(error, values, encode_any)
                raise

        return lambda stream: LinePart(stream, encode, header)


def _csv_fields(value: Any, names: tuple[str, ...] | None) -> Sequence[Any]:
    if isinstance(value, (tuple, list)):
        fields: Sequence[Any] = value
    elif isinstance(value, Row):
        own = value._fields
        as_is = names is None or own is None or own == names
        fields = value._values if as_is else value.get_fields_by_names(list(names or ()))
    elif isinstance(value, dict):
        if names is None:
            return tuple(value.values())
        unknown = [key for key in value if key not in names]
        if unknown:
            message = f"cannot write {value!r} as CSV: field {unknown[0]!r} is not in {names!r}"
            raise UsageError(message)
        return tuple(value.get(name) for name in names)
    else:
        fields = (value,)
    if names is not None and len(fields) != len(names):
        message = f"cannot write {value!r} as CSV: {len(fields)} fields, expected {names!r}"
        raise UsageError(message)
    return fields


def _csv_lines(rows: Sequence[Sequence[Any]]) -> bytes:
    text = _csv_text(rows, csv.QUOTE_MINIMAL)
    if "\r" in text:
        # The csv module leaves a lone carriage return unquoted; readers take it for a line end.
        text = _csv_text(rows, csv.QUOTE_ALL)
    return text.encode()


def _csv_text(rows: Sequence[Sequence[Any]], quoting: Any) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n", quoting=quoting).writerows(rows)
    return buffer.getvalue()


class TextFormat(FileFormat):
    """A record as text and a newline, in a given character set.

    Records of declared types look as PyFlink writes them, `(a,1)`; others as `str` shows them.
    """

    suffix = ".txt"
    can_be_concatenated = True

    def __init__(self, charset: str = "UTF-8") -> None:
        """Check the character set now."""
        try:
            "".encode(charset)
        except LookupError as error:
            message = f"text format: unknown character set {charset!r}; try 'UTF-8'"
            raise UsageError(message) from error
        self.charset = charset

    def bind(self, type_info: Any) -> OpenPart:
        """Accept any type."""
        charset, shown = self.charset, written(type_info)

        def encode(values: list[Any]) -> bytes:
            if not values:
                return b""
            try:
                return encode_any(values)
            except UnicodeEncodeError:
                raise _first_bad(values, encode_any, charset) from None
            except BaseException as error:
                _blame_first(error, values, encode_any)
                raise

        def encode_any(values: list[Any]) -> bytes:
            texts = list(map(shown, values))
            if len(texts) != len(values):  # `map` took a StopIteration for its end
                texts = [str(value) for value in values]
            return ("\n".join(texts) + "\n").encode(charset)

        return lambda stream: LinePart(stream, encode)


class EncoderFormat(FileFormat):
    """Bytes of a user's encoder: an object with `encode(value) -> bytes`, or a callable."""

    can_be_concatenated = True

    def __init__(self, encoder: Any) -> None:
        self._encode_one: Callable[[Any], bytes] = getattr(encoder, "encode", encoder)
        if not callable(self._encode_one):
            message = f"expected an encoder with encode(value) -> bytes, got {encoder!r}"
            raise UsageError(message)

    def bind(self, type_info: Any) -> OpenPart:
        """Accept any type."""
        encode_one = self._encode_one

        def encode(values: list[Any]) -> bytes:
            value, data = None, []
            try:
                for value in values:
                    data.append(encode_one(value))
            except BaseException as error:
                blame(error, value)
                raise
            if not set(map(type, data)) <= {bytes}:
                _refuse_other_than_bytes(values, data)
            return b"".join(data)

        return lambda stream: LinePart(stream, encode)


def _refuse_other_than_bytes(values: list[Any], data: list[Any]) -> None:
    for value, one in zip(values, data, strict=True):
        if not isinstance(one, (bytes, bytearray, memoryview)):
            error = UsageError(
                f"the encoder returned {one!r} of type {type(one).__name__} for {value!r}, "
                "expected bytes: end it with .encode()"
            )
            blame(error, value)
            raise error


def row_format(encoder: Any) -> FileFormat:
    """Return the format of `FileSink.for_row_format`: text for a string encoder, else the bytes."""
    # A subclass may encode in its own way; only the plain encoder is known to write lines of text.
    return _PlainText(encoder.charset) if type(encoder) is Encoder else EncoderFormat(encoder)


class _PlainText(TextFormat):
    # PyFlink's row format adds no suffix of its own.
    suffix = ""
