"""The row type that a JSON schema describes, by Flink's rules.

Objects become rows, lists arrays, numbers decimals of any size; `null` beside another type changes
nothing, since every field may be None. References lead into the same document.
"""

from __future__ import annotations

import json
from typing import Any

from weir.common.typeinfo import TypeInformation, Types
from weir.errors import UsageError

_NOTHING = Types.PICKLED_BYTE_ARRAY()
_FORMATS = {
    "date": Types.SQL_DATE(),
    "time": Types.SQL_TIME(),
    "date-time": Types.SQL_TIMESTAMP(),
}
_UNIONS = ("allOf", "anyOf", "not", "extends", "disallow")
_DEPTH_MAX = 100


def type_of_schema(text: str) -> TypeInformation:
    """Return the type of what a JSON schema describes.

    Raises:
        UsageError: it is no JSON schema, or one that no type can be made of.
    """
    try:
        root = json.loads(text)
    except (TypeError, ValueError) as error:
        msg = f"json_schema(): it is no JSON: {error}"
        raise UsageError(msg) from error
    return _Schema(root).convert("<root>", root, 0)


class _Schema:
    def __init__(self, root: Any) -> None:
        self._root = root

    def convert(self, place: str, node: Any, depth: int) -> TypeInformation:
        if not isinstance(node, dict):
            raise _refused(place, f"found {node!r}, expected an object")
        if depth > _DEPTH_MAX:
            raise _refused(place, "its references lead in a circle")
        united = next((name for name in _UNIONS if name in node), None)
        if united is not None:
            raise _refused(place, f"{united!r} is not supported: a field has one type")
        found = self._types(place, node, depth)
        distinct = list(dict.fromkeys(t for t in found if t != _NOTHING))
        if not found:
            raise _refused(place, "it names no type")
        if len(distinct) > 1:
            raise _refused(place, f"it names several types, {distinct!r}: a field has one")
        return distinct[0] if distinct else _NOTHING

    def _types(self, place: str, node: dict[str, Any], depth: int) -> list[TypeInformation]:
        target = self._resolve(place, node["$ref"]) if "$ref" in node else None
        found: list[TypeInformation] = []
        if "type" in node:
            names = node["type"] if isinstance(node["type"], list) else [node["type"]]
            found += [self._named(place, name, node, depth=depth) for name in names]
        elif target is not None and "type" in target:
            found.append(self.convert(str(node["$ref"]), target, depth + 1))
        choices = node.get("oneOf", (target or {}).get("oneOf"))
        if isinstance(choices, list):
            found += [
                self.convert(f"{place}/oneOf[{i}]", each, depth + 1)
                for i, each in enumerate(choices)
            ]
        return found

    def _named(self, place: str, name: Any, node: dict[str, Any], *, depth: int) -> TypeInformation:
        if name == "null":
            return _NOTHING
        if name == "boolean":
            return Types.BOOLEAN()
        if name in ("number", "integer"):
            return Types.BIG_DEC()
        if name == "string":
            return _string(place, node)
        if name == "object":
            return self._object(place, node, depth)
        if name == "array":
            return self._array(place, node, depth)
        raise _refused(place, f"it is of the unknown type {name!r}")

    def _object(self, place: str, node: dict[str, Any], depth: int) -> TypeInformation:
        fields = node.get("properties", {})
        if not isinstance(fields, dict):
            raise _refused(place, "its 'properties' are no object")
        if node.get("additionalProperties") is True:
            raise _refused(place, "a row has no additional properties")
        types = [self.convert(f"{place}/{name}", sub, depth + 1) for name, sub in fields.items()]
        return Types.ROW_NAMED(list(fields), types)

    def _array(self, place: str, node: dict[str, Any], depth: int) -> TypeInformation:
        items = node.get("items")
        if isinstance(items, dict):
            return Types.OBJECT_ARRAY(self.convert(f"{place}/items", items, depth + 1))
        if isinstance(items, list):
            if node.get("additionalItems") is True:
                raise _refused(place, "a list of fixed length has no additional items")
            types = [
                self.convert(f"{place}/items[{i}]", each, depth + 1) for i, each in enumerate(items)
            ]
            return Types.ROW(types)
        raise _refused(place, "a list needs 'items'")

    def _resolve(self, place: str, reference: Any) -> dict[str, Any]:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _refused(place, f"the reference {reference!r} leads out of the document")
        node = self._root
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or name not in node:
                raise _refused(place, f"the reference {reference!r} leads nowhere")
            node = node[name]
        if not isinstance(node, dict):
            raise _refused(place, f"the reference {reference!r} leads to no object")
        return node


def _string(place: str, node: dict[str, Any]) -> TypeInformation:
    if "format" in node:
        return _FORMATS.get(node["format"], Types.STRING())
    encoding = node.get("contentEncoding")
    if encoding == "base64":
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    if encoding is not None:
        raise _refused(place, f"the encoding {encoding!r} is not supported, only 'base64'")
    return Types.STRING()


def _refused(place: str, reason: str) -> UsageError:
    return UsageError(f"json_schema(): at {place}: {reason}")
