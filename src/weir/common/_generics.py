"""Type variables of the generic classes, each of which stands for anything where nobody says more.

So `class Count(MapFunction)`, which is how PyFlink's programs are written, is complete in the eyes
of a strict type checker, and `class Count(MapFunction[str, int])` says more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # The standard library's own has defaults from Python 3.13 on; type checkers know this one.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    T_co = TypeVar("T_co", covariant=True, default=Any)
    OUT_co = TypeVar("OUT_co", covariant=True, default=Any)
    KEY_co = TypeVar("KEY_co", covariant=True, default=Any)
    IN_contra = TypeVar("IN_contra", contravariant=True, default=Any)
    ACC = TypeVar("ACC", default=Any)
    KEY = TypeVar("KEY", default=Any)
    IN = TypeVar("IN", default=Any)
    IN1 = TypeVar("IN1", default=Any)
    IN2 = TypeVar("IN2", default=Any)
    OUT = TypeVar("OUT", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
    K = TypeVar("K")
    V = TypeVar("V")
    T_co = TypeVar("T_co", covariant=True)
    OUT_co = TypeVar("OUT_co", covariant=True)
    KEY_co = TypeVar("KEY_co", covariant=True)
    IN_contra = TypeVar("IN_contra", contravariant=True)
    ACC = TypeVar("ACC")
    KEY = TypeVar("KEY")
    IN = TypeVar("IN")
    IN1 = TypeVar("IN1")
    IN2 = TypeVar("IN2")
    OUT = TypeVar("OUT")

__all__ = [
    "ACC",
    "IN",
    "IN1",
    "IN2",
    "KEY",
    "OUT",
    "IN_contra",
    "K",
    "KEY_co",
    "OUT_co",
    "T",
    "T_co",
    "V",
]
