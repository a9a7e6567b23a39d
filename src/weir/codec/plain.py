"""Pickles of plain data, read without running code of anybody's program.

Lists, dicts, numbers, texts, dates and rows need no class of a program. Everything else in a pickle
is refused by the name of what it asks for, before anything of it is looked up.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any, Final

from weir.codec import pickled
from weir.common.typeinfo import TypeInformation, Types
from weir.errors import CorruptStateError, UsageError

# Constructors that do nothing but hold their arguments.
_HARMLESS: Final = frozenset(
    {
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
        *(("builtins", name) for name in ("set", "frozenset", "bytearray", "complex")),
        ("decimal", "Decimal"),
        ("uuid", "UUID"),
        ("weir.common.types", "_restore"),
        ("weir.common.time", "Instant"),
        ("weir.keys", "NAN"),
    }
)
_BROKEN: Final = (
    pickle.UnpicklingError,
    AttributeError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    MemoryError,
    RecursionError,
)


class _Unpickler(pickle.Unpickler):
    """Loads plain data only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            msg = (
                f"it holds pickled objects that need '{module}.{name}', and loading those runs "
                "code: allow it with unpickle=True, or --unpickle, if you trust who wrote them"
            )
            raise UsageError(msg)
        return super().find_class(module, name)


def loads_plain(data: bytes | memoryview) -> Any:
    """Return a pickled value that is plain data.

    Raises:
        UsageError: it is more than that; the message names what it asks for.
        CorruptStateError: the bytes are no pickle.
    """
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except UsageError:
        raise
    except _BROKEN as error:
        msg = f"{len(data)} bytes are not a pickled value: {type(error).__name__}: {error}"
        raise CorruptStateError(msg) from error


class PlainCodec:
    """Undeclared values that are plain data; a `Codec` that runs no code."""

    safe = True

    def __init__(self) -> None:
        self.type_info: TypeInformation = Types.PICKLED_BYTE_ARRAY()

    def encode(self, value: Any) -> bytes:
        """Return the pickle of one value."""
        return pickled.dumps(value)

    def decode(self, data: bytes | memoryview) -> Any:
        """Return the value; raises as `loads_plain` does."""
        return loads_plain(data)

    def encode_many(self, values: Sequence[Any]) -> bytes:
        """Return one pickle of the whole list."""
        return pickled.dumps(list(values))

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        """Return the list; raises as `loads_plain` does."""
        values = loads_plain(data)
        if not isinstance(values, list):
            msg = f"expected a pickled list, found {type(values).__name__}"
            raise CorruptStateError(msg)
        return values

    def describe(self) -> dict[str, Any]:
        """Return the JSON description of the type."""
        return self.type_info.to_json()
