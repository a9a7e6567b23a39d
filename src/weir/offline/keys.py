"""Keys that people type: text to a key of the type that a state has."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from weir.codec.portable import Portable
from weir.common.typeinfo import PickledBytesTypeInfo
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.offline.export import from_rows, to_json


def key_from_text(text: str, of: Portable) -> Any:
    """Return the key that a text stands for: the text itself, or JSON where keys are no texts.

    Raises:
        UsageError: it is no key of that type.
    """
    if of.type_info.kind in ("STRING", "CHAR"):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return key_from_json(value, of)


def key_from_json(value: Any, of: Portable) -> Any:
    """Return the key that a JSON value stands for.

    Raises:
        UsageError: it is no key of that type.
    """
    if isinstance(of.type_info, PickledBytesTypeInfo):
        return _tuples(value)
    try:
        batch = from_rows([{"key": value}], pa.schema([("key", of.arrow)]))
        key = of.values(batch.column(0))[0]
    except UsageError as error:
        msg = f"{value!r} is no key of {of.type_info!r}: {error}"
        raise UsageError(msg) from error
    if key is None:
        msg = f"a key of {of.type_info!r} cannot be null"
        raise UsageError(msg)
    return key


def key_as_json(key: Any, of: Portable) -> str:
    """Return the JSON for which `key_from_json` returns a key, which may be in that form already.

    Raises:
        UsageError: it is no key of that type, or an undeclared one that JSON has no form for.
    """
    if isinstance(of.type_info, PickledBytesTypeInfo):
        if not _is_plain(key):
            msg = (
                f"{key!r} cannot be asked for, as the type of keys was not declared: expected a "
                "text, a number, a boolean, or a tuple of such; choose rows of the DataFrame"
            )
            raise UsageError(msg)
        return json.dumps(key)
    try:
        value = of.column([key], "key").to_pylist()[0]
    except (UsageError, AttributeError, TypeError):
        value = key  # perhaps it is in the form of JSON
    try:
        text = to_json(value)
        key_from_json(json.loads(text), of)
    except (TypeError, UsageError) as error:
        msg = f"{key!r} cannot be asked for among keys of {of.type_info!r}: {error}"
        raise UsageError(msg) from error
    return text


def _is_plain(key: Any) -> bool:
    if isinstance(key, (tuple, list)):
        return all(map(_is_plain, key))
    return key is None or isinstance(key, (str, int, float))


def _tuples(value: Any) -> Any:
    """Return an undeclared key: what is a list in JSON is a tuple."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def key_groups_from_text(text: str) -> KeyGroupRange:
    """Return the range that a text such as ``0-63`` or ``7`` stands for.

    Raises:
        UsageError: it is none.
    """
    first, dash, last = text.partition("-")
    try:
        return KeyGroupRange(int(first), int(last if dash else first))
    except ValueError as error:
        msg = f"{text!r} is no range of key groups: expected numbers such as 0-63 or 7"
        raise UsageError(msg) from error
