"""Callables as function objects.

The wrapper's method *is* the callable: it sits in the instance, so that a call per record takes no
detour. `weir_plain` marks a function without life cycle and state of its own, which may run next
to the source. Function objects pass through untouched; anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from weir.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    Function,
    KeySelector,
    MapFunction,
    Partitioner,
    ReduceFunction,
)

F = TypeVar("F", bound=Function)


class PlainMap(MapFunction):
    """A callable as `MapFunction`."""

    weir_plain = True

    def __init__(self, func: Callable[[Any], Any]) -> None:
        """Let `map` be the callable itself."""
        self.__dict__["map"] = func

    def map(self, value: Any) -> Any:
        """Shadowed by the callable in the instance."""
        return self.__dict__["map"](value)


class PlainFlatMap(FlatMapFunction):
    """A callable as `FlatMapFunction`."""

    weir_plain = True

    def __init__(self, func: Callable[[Any], Any]) -> None:
        """Let `flat_map` be the callable itself."""
        self.__dict__["flat_map"] = func

    def flat_map(self, value: Any) -> Any:
        """Shadowed by the callable in the instance."""
        return self.__dict__["flat_map"](value)


class PlainFilter(FilterFunction):
    """A callable as `FilterFunction`."""

    weir_plain = True

    def __init__(self, func: Callable[[Any], bool]) -> None:
        """Let `filter` be the callable itself."""
        self.__dict__["filter"] = func

    def filter(self, value: Any) -> bool:
        """Shadowed by the callable in the instance."""
        return bool(self.__dict__["filter"](value))


class PlainReduce(ReduceFunction):
    """A callable as `ReduceFunction`."""

    weir_plain = True

    def __init__(self, func: Callable[[Any, Any], Any]) -> None:
        """Let `reduce` be the callable itself."""
        self.__dict__["reduce"] = func

    def reduce(self, value1: Any, value2: Any) -> Any:
        """Shadowed by the callable in the instance."""
        return self.__dict__["reduce"](value1, value2)


def as_function(func: Any, kind: type[Any], plain: Callable[[Any], F]) -> Function | F:
    """Return `func` itself when it is a `kind`, a plain wrapper when it is any other callable.

    Raises:
        TypeError: neither, a class instead of an instance, or a function of another kind.
    """
    if isinstance(func, Function) and isinstance(func, kind):
        return func
    require_instance(func, kind.__name__)
    if not callable(func) or isinstance(func, Function):
        msg = (
            f"The input must be a {kind.__name__} or a callable function, "
            f"found {type(func).__name__}: {func!r}"
        )
        raise TypeError(msg)
    return plain(func)


def require_instance(func: Any, expected: str) -> None:
    """Refuse a function class where an instance belongs; the class would be called per record."""
    if isinstance(func, type) and issubclass(func, Function):
        msg = f"expected a {expected} instance, found the class {func.__name__}: add parentheses"
        raise TypeError(msg)


def partition_callable(partitioner: Any) -> Callable[[Any, int], int]:
    """Return `f(key, num_partitions)` of a `Partitioner` or a callable."""
    if isinstance(partitioner, Partitioner):
        return partitioner.partition
    require_instance(partitioner, "Partitioner")
    if not callable(partitioner):
        msg = (
            "Parameter partitioner should be a Partitioner or a callable function, "
            f"found {type(partitioner).__name__}: {partitioner!r}"
        )
        raise TypeError(msg)
    found: Callable[[Any, int], int] = partitioner
    return found


def key_callable(selector: Any) -> Callable[[Any], Any]:
    """Return `f(record)` of a `KeySelector` or a callable."""
    if isinstance(selector, KeySelector):
        return selector.get_key
    require_instance(selector, "KeySelector")
    if not callable(selector):
        msg = (
            "Parameter key_selector should be a KeySelector, a callable function or field names, "
            f"found {type(selector).__name__}: {selector!r}"
        )
        raise TypeError(msg)
    found: Callable[[Any], Any] = selector
    return found


def require_process(func: Any, kind: type, where: str) -> None:
    """Refuse anything but an instance of a kind of process function.

    Raises:
        TypeError: it is none; the message says where it was given.
    """
    require_instance(func, kind.__name__)
    if not isinstance(func, kind):
        msg = f"process() {where} requires a {kind.__name__}, found {type(func).__name__}: {func!r}"
        raise TypeError(msg)
