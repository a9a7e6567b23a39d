"""Keys of a declared type, as every backend stores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weir.codec.plan import plan_for
from weir.common.typeinfo import PickledBytesTypeInfo, TypeInformation
from weir.errors import UsageError
from weir.keys import plain


class DeclaredKey:
    """Makes keys what their declared type has: `numpy.int64(1)` and True are 1 where that is LONG.

    So keys that are equal in Python stay one key, and what the type cannot hold is refused where
    the key is made, not in a checkpoint.
    """

    __slots__ = ("_check", "holds")

    holds: Callable[[Sequence[Any]], bool]
    """Tells quickly whether all of some keys are exactly of the type; False when in doubt."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._check = type_info.check
        self.holds = plan_for(type_info).clean

    @classmethod
    def of(cls, type_info: TypeInformation | None) -> DeclaredKey | None:
        """Return how keys become those of a type; None when it is any."""
        undeclared = type_info is None or isinstance(type_info, PickledBytesTypeInfo)
        return None if undeclared else cls(type_info)  # type: ignore[arg-type]

    def convert(self, key: Any) -> Any:
        """Return the key as the type has it; None passes.

        Raises:
            UsageError: the type can hold neither the key nor a number or text that equals it.
        """
        try:
            return self._check(key)
        except UsageError:
            equal = plain(key)
            if equal is key:
                raise
        return self._check(equal)
