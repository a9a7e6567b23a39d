"""`OutputTag`: the name of a side output, shared by the door and the runtime."""

from __future__ import annotations

from typing import Any, Generic, overload

from weir.common._generics import T
from weir.common.typeinfo import TypeInformation
from weir.common.types import Row
from weir.errors import UsageError


class OutputTag(Generic[T]):
    """Names a side output; a process function yields `tag, value` to emit to it.

    Two tags are equal when their ids are equal.

    Example:
        LATE = OutputTag("late", Types.STRING())
        stream.map(lambda r: r).get_side_output(LATE).print()
    """

    __slots__ = ("tag_id", "type_info")

    @overload
    def __init__(self: OutputTag[Any], tag_id: str, type_info: None = None) -> None: ...

    @overload
    def __init__(self, tag_id: str, type_info: TypeInformation[T]) -> None: ...

    @overload
    def __init__(self: OutputTag[Row], tag_id: str, type_info: list[Any]) -> None: ...

    def __init__(self, tag_id: str, type_info: Any = None) -> None:
        """Name a side output, optionally with the type of its records."""
        if not tag_id:
            msg = "OutputTag tag_id cannot be None or empty string: give the side output a name"
            raise UsageError(msg)
        self.tag_id = tag_id
        self.type_info = type_info

    def __eq__(self, other: object) -> bool:
        """Compare by id."""
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        """Hash by id."""
        return sum(self.tag_id.encode())

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return f"OutputTag({self.tag_id!r})"


def require_tag(value: Any) -> OutputTag[Any]:
    """Return the tag that a function gave to `output()` of its context.

    Raises:
        TypeError: it is no `OutputTag`.
    """
    if not isinstance(value, OutputTag):
        msg = f"output() expects an OutputTag, found {value!r}"
        raise TypeError(msg)
    return value
