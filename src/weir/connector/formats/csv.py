"""CSV rows by PyFlink's names: messages that are one line, and rows of a declared type.

Fields are found by their place. How lines are taken apart and put together is a `CsvDialect`, which
files of CSV share (`weir.connector.formats.csv_files`). Lines look as those of Flink's format.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as pa_csv

from weir.common.serialization import DeserializationSchema, SerializationSchema
from weir.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from weir.common.types import row_class
from weir.connector.formats.columns import csv_columns
from weir.connector.formats.texts import BYTES, parser, require_row, writer
from weir.errors import UsageError

# A text that is longer is put into quotes without a look at it.
_LOOK_CHARACTERS = 24
_TEXTS = ("STRING", "CHAR")
# The csv module refuses fields above this; a limit of its own is none of the format.
csv.field_size_limit((1 << 31) - 1)


@dataclass(frozen=True)
class CsvDialect:
    """How lines are written and read."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_literal: str | None = None
    array_delimiter: str = ";"
    comments: bool = False
    line_delimiter: str = "\n"

    def records(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Return the fields of lines; one in quotes may go over several."""
        quoting: Any = csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            quoting=quoting,
        )

    def parse_options(self) -> pa_csv.ParseOptions:
        """Return what Arrow has to know to take the same lines apart."""
        return pa_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=False if self.quote is None else self.quote,
            double_quote=True,
            escape_char=False if self.escape is None else self.escape,
            newlines_in_values=False,
        )

    def line(self, texts: Iterable[tuple[str, bool]]) -> str:
        """Return a line of texts, each with whether it may need quotes."""
        return self.delimiter.join(
            self.quoted(text) if may_need else text for text, may_need in texts
        )

    def quoted(self, text: str) -> str:
        """Return a text, in quotes where a reader might else mistake it."""
        quote, escape = self.quote, self.escape
        if quote is None:
            return text if escape is None else text.replace(escape, escape * 2)
        if len(text) <= _LOOK_CHARACTERS and _odd(self)(text) is None:
            return text
        inside = text if escape is None else text.replace(escape, escape * 2)
        return f"{quote}{inside.replace(quote, quote * 2)}{quote}"


@lru_cache(maxsize=256)
def _odd(dialect: CsvDialect) -> Callable[[str], Any]:
    """Return what finds a character for whose sake a text is put into quotes."""
    highest = max(dialect.delimiter, dialect.quote or "", *dialect.line_delimiter)
    special = re.escape((dialect.quote or "") + (dialect.escape or ""))
    return re.compile(f"[\\x00-{re.escape(highest)}{special}]").search


Read = Callable[[str], Any]
Write = Callable[[Any], tuple[str, bool]]


def field_reader(
    type_info: TypeInformation, dialect: CsvDialect, *, separator: str | None = None
) -> Read:
    """Return what makes the value of a field of its text.

    Raises:
        UsageError: CSV has no text for such values.
    """
    plain, null = _plain_reader(type_info, dialect, separator), dialect.null_literal
    if null is None:
        return plain
    return lambda text: None if text == null else plain(text)


def _plain_reader(type_info: TypeInformation, dialect: CsvDialect, separator: str | None) -> Read:
    parse = parser(type_info)
    if parse is not None:
        return parse
    between = dialect.array_delimiter if separator is None else separator
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        fields = [field_reader(t, dialect) for t in type_info.get_field_types()]
        make = row_class(type_info.row_names)._of if isinstance(type_info, RowTypeInfo) else tuple

        def parts(text: str) -> Any:
            texts = _split(text, between)
            _check_arity(len(fields), len(texts))
            return make(tuple(f(t) for f, t in zip(fields, texts, strict=True)))

        return parts
    element = getattr(type_info, "elem_type", None)
    if element is None:
        raise _no_text(type_info)
    one = field_reader(element, dialect)
    return lambda text: [one(item) for item in _split(text, between)]


def _split(text: str, separator: str) -> list[str]:
    if not text:
        return []
    return text.split(separator) if separator else [text]


def _no_text(type_info: TypeInformation) -> UsageError:
    return UsageError(f"CSV has no text for values of {type_info!r}")


def _check_arity(expected: int, found: int) -> None:
    if expected != found:
        msg = f"expected {expected} fields, found {found}"
        raise ValueError(msg)


def field_writer(
    type_info: TypeInformation, dialect: CsvDialect, *, separator: str | None = None
) -> Write:
    """Return what makes the text of a value, and tells whether that may need quotes."""
    plain = _plain_writer(type_info, dialect, separator)
    # Java's numbers, dates and the like never need any.
    may_need = type_info.kind in _TEXTS or writer(type_info) is None or type_info == BYTES
    null = (dialect.null_literal or "", False)
    return lambda value: null if value is None else (plain(value), may_need)


def _plain_writer(
    type_info: TypeInformation, dialect: CsvDialect, separator: str | None
) -> Callable[[Any], str]:
    simple = writer(type_info)
    if simple is not None:
        return simple
    between = dialect.array_delimiter if separator is None else separator
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        fields = [field_writer(t, dialect) for t in type_info.get_field_types()]
        return lambda value: between.join(
            f(v)[0] for f, v in zip(fields, tuple(value), strict=True)
        )
    element = getattr(type_info, "elem_type", None)
    if element is None:
        raise _no_text(type_info)
    one = field_writer(element, dialect)
    return lambda value: between.join(one(item)[0] for item in value)


def row_reader(
    readers: Sequence[Read], names: tuple[str, ...], *, ignore_errors: bool = False
) -> Callable[[list[str]], Any]:
    """Return what makes a row of the texts of its fields; of none there is no row."""
    make, arity = row_class(names)._of, len(names)

    def strictly(texts: list[str]) -> Any:
        if not texts:
            return None
        _check_arity(arity, len(texts))
        return make(tuple([read(text) for read, text in zip(readers, texts, strict=True)]))

    def leniently(texts: list[str]) -> Any:
        if not texts:
            return None
        found = [_or_none(read, text) for read, text in zip(readers, texts, strict=False)]
        return make((*found, *[None] * (arity - len(found))))

    return leniently if ignore_errors else strictly


def _or_none(read: Read, text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        return None


class CsvRowDeserializationSchema(DeserializationSchema):
    """Makes rows of messages that are lines of CSV.

    An empty field is empty text, and no number: name a text for None by `set_null_literal`.

    Example:
        row = Types.ROW([Types.LONG(), Types.STRING()])
        schema = CsvRowDeserializationSchema.Builder(row).set_field_delimiter(";").build()
        schema.deserialize(b"1;ann")
    """

    Builder: ClassVar[type[CsvRowDeserializationSchemaBuilder]]

    def __init__(
        self, type_info: RowTypeInfo, dialect: CsvDialect, ignore_parse_errors: bool = False
    ) -> None:
        """Prefer the builder."""
        self._type = type_info
        self._dialect = dialect
        self.ignores_errors = ignore_parse_errors
        self._prepare()

    def _prepare(self) -> None:
        readers = [field_reader(t, self._dialect) for t in self._type.get_field_types()]
        self._row = row_reader(readers, self._type.row_names, ignore_errors=self.ignores_errors)

    def deserialize(self, message: bytes) -> Any:
        """Return the row of a message; None for an empty one, a comment, or one that is left out.

        Raises:
            ValueError: it has another number of fields, or one that does not fit.
        """
        try:
            text = bytes(message).decode("utf-8")
            if self._dialect.comments and text.lstrip().startswith("#"):
                return None
            return self._row(next(self._dialect.records(io.StringIO(text, newline="")), []))
        except (ValueError, csv.Error) as error:
            if self.ignores_errors:
                return None
            if isinstance(error, csv.Error):
                msg = str(error)
                raise ValueError(msg) from error
            raise

    def deserialize_columns(self, values: pa.Array) -> pa.RecordBatch | None:
        """Return the rows of many messages as columns; None where some have to be read alone."""
        dialect = self._dialect
        if dialect.comments:
            return None
        return csv_columns(values, self._type, dialect.parse_options(), dialect.null_literal)

    def get_produced_type(self) -> TypeInformation:
        """Return the type of the rows."""
        return self._type

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made again."""
        return {k: v for k, v in self.__dict__.items() if k != "_row"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the conversions again."""
        self.__dict__.update(state)
        self._prepare()


def single_character(char: str, what: str) -> str:
    """Return a character as it is.

    Raises:
        ValueError: it is none, or more than one.
    """
    if not isinstance(char, str) or len(char) != 1:
        msg = f"the {what} must be a single character, found {char!r}"
        raise ValueError(msg)
    return char


class CsvRowDeserializationSchemaBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        builder = CsvRowDeserializationSchema.Builder(Types.ROW([Types.INT()]))
        builder.set_ignore_parse_errors(True).build()
    """

    def __init__(self, type_info: TypeInformation) -> None:
        """Begin with commas and double quotes."""
        self._type = require_row(type_info, "CsvRowDeserializationSchema.Builder")
        self._dialect = CsvDialect()
        self._ignore_errors = False

    def _with(self, **changes: Any) -> CsvRowDeserializationSchemaBuilder:
        self._dialect = replace(self._dialect, **changes)
        return self

    def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchemaBuilder:
        """Set what is between fields."""
        return self._with(delimiter=single_character(delimiter, "field delimiter"))

    def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchemaBuilder:
        """Leave out messages that begin with `#`."""
        return self._with(comments=allow_comments)

    def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchemaBuilder:
        """Set what is between the elements of a list, and the fields of a row in a field."""
        return self._with(array_delimiter=delimiter)

    def set_quote_character(self, c: str) -> CsvRowDeserializationSchemaBuilder:
        """Set the quotes."""
        return self._with(quote=single_character(c, "quote character"))

    def set_escape_character(self, c: str) -> CsvRowDeserializationSchemaBuilder:
        """Set what takes its meaning from the character that follows."""
        return self._with(escape=single_character(c, "escape character"))

    def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchemaBuilder:
        """Set the text of None."""
        return self._with(null_literal=null_literal)

    def set_ignore_parse_errors(
        self, ignore_parse_errors: bool
    ) -> CsvRowDeserializationSchemaBuilder:
        """Make fields that cannot be read None, and leave out messages that cannot be."""
        self._ignore_errors = ignore_parse_errors
        return self

    def build(self) -> CsvRowDeserializationSchema:
        """Return the schema."""
        return CsvRowDeserializationSchema(self._type, self._dialect, self._ignore_errors)


CsvRowDeserializationSchema.Builder = CsvRowDeserializationSchemaBuilder


class CsvRowSerializationSchema(SerializationSchema):
    """Makes lines of CSV of rows; None is an empty field unless `set_null_literal` names a text.

    Example:
        row = Types.ROW([Types.LONG(), Types.STRING()])
        CsvRowSerializationSchema.Builder(row).build().serialize((1, "ann"))
    """

    Builder: ClassVar[type[CsvRowSerializationSchemaBuilder]]

    def __init__(self, type_info: RowTypeInfo, dialect: CsvDialect) -> None:
        """Prefer the builder."""
        self._type = type_info
        self._dialect = dialect
        self._prepare()

    def _prepare(self) -> None:
        self._writers = [field_writer(t, self._dialect) for t in self._type.get_field_types()]

    def serialize(self, element: Any) -> bytes:
        """Return the line of a row, or of a tuple with its fields.

        Raises:
            UsageError: it does not fit the type.
        """
        row = self._type.check(element)
        if row is None:
            msg = "CSV has no line for a record that is None"
            raise UsageError(msg)
        dialect = self._dialect
        texts = [write(v) for write, v in zip(self._writers, row._values, strict=True)]
        return (dialect.line(texts) + dialect.line_delimiter).encode()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made again."""
        return {"_type": self._type, "_dialect": self._dialect}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the conversions again."""
        self.__dict__.update(state)
        self._prepare()


class CsvRowSerializationSchemaBuilder:
    """PyFlink's builder; every method returns the builder.

    Example:
        CsvRowSerializationSchema.Builder(Types.ROW([Types.INT()])).set_line_delimiter("").build()
    """

    def __init__(self, type_info: TypeInformation) -> None:
        """Begin with commas, double quotes and line feeds."""
        self._type = require_row(type_info, "CsvRowSerializationSchema.Builder")
        self._dialect = CsvDialect()

    def _with(self, **changes: Any) -> CsvRowSerializationSchemaBuilder:
        self._dialect = replace(self._dialect, **changes)
        return self

    def set_field_delimiter(self, c: str) -> CsvRowSerializationSchemaBuilder:
        """Set what is between fields."""
        return self._with(delimiter=single_character(c, "field delimiter"))

    def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchemaBuilder:
        """Set what is behind a line: a line feed, both or a carriage return, or nothing."""
        if delimiter not in ("\n", "\r", "\r\n", ""):
            msg = f"the line delimiter is {delimiter!r}, expected '\\n', '\\r', '\\r\\n' or ''"
            raise ValueError(msg)
        return self._with(line_delimiter=delimiter)

    def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchemaBuilder:
        """Set what is between the elements of a list, and the fields of a row in a field."""
        return self._with(array_delimiter=delimiter)

    def disable_quote_character(self) -> CsvRowSerializationSchemaBuilder:
        """Write no quotes."""
        return self._with(quote=None)

    def set_quote_character(self, c: str) -> CsvRowSerializationSchemaBuilder:
        """Set the quotes."""
        return self._with(quote=single_character(c, "quote character"))

    def set_escape_character(self, c: str) -> CsvRowSerializationSchemaBuilder:
        """Set what takes its meaning from the character that follows."""
        return self._with(escape=single_character(c, "escape character"))

    def set_null_literal(self, s: str) -> CsvRowSerializationSchemaBuilder:
        """Set the text of None."""
        return self._with(null_literal=s)

    def build(self) -> CsvRowSerializationSchema:
        """Return the schema."""
        return CsvRowSerializationSchema(self._type, self._dialect)


CsvRowSerializationSchema.Builder = CsvRowSerializationSchemaBuilder
