"""State descriptors: the name, kind and types under which a function asks for state.

A descriptor is a declaration and holds no state. Backends read it through the attributes of
`weir.backend.base.StateDeclaration`. A type that is not given is stored pickled and unchecked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar, Generic, overload

from weir.backend.base import RESERVED_PREFIX
from weir.backend.kinds import StateKind
from weir.common._generics import K, T, V
from weir.common.typeinfo import TypeInformation, Types
from weir.errors import UsageError
from weir.state.ttl.config import StateTtlConfig

_AGGREGATE_METHODS = ("create_accumulator", "add", "get_result", "merge")


class StateDescriptor:
    """What every descriptor has: a name, types, and optional settings.

    Example:
        descriptor: StateDescriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    """

    kind: ClassVar[StateKind]
    key_type: Any = None
    function: Any = None
    cleanup: Any = None

    def __init__(self, name: str, type_info: Any = None) -> None:
        """Declare a state.

        Raises:
            UsageError: the name is not a non-empty string, or reserved.
        """
        if not isinstance(name, str) or not name or name.startswith(RESERVED_PREFIX):
            msg = (
                f"a state name must be a non-empty string that does not begin with "
                f"{RESERVED_PREFIX!r}, found {name!r}"
            )
            raise UsageError(msg)
        self.name = name
        self.value_type = type_info
        self.ttl_config: StateTtlConfig | None = None
        self.queryable_name: str | None = None

    @property
    def type_info(self) -> Any:
        """The type of the whole state, as PyFlink shows it."""
        return self.value_type

    def get_name(self) -> str:
        """Return the name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let entries of this state expire as the configuration says; keyed state only.

        Raises:
            UsageError: it is no `StateTtlConfig`.
        """
        config: Any = ttl_config
        if not isinstance(config, StateTtlConfig):
            hint = ": call build() on the builder" if hasattr(config, "build") else ""
            msg = (
                f"enable_time_to_live of state {self.name!r} expects a StateTtlConfig, "
                f"found {config!r}{hint}"
            )
            raise UsageError(msg)
        self.ttl_config = config

    def set_queryable(self, queryable_state_name: str) -> None:
        """Let others query the state by a name, while a job runs with `queryable-state.enable`.

        Raises:
            UsageError: the name is no text, or another one was set before.
        """
        if not isinstance(queryable_state_name, str) or not queryable_state_name:
            msg = (
                f"the name for queries of state {self.name!r} must be a non-empty string, found "
                f"{queryable_state_name!r}"
            )
            raise UsageError(msg)
        if self.queryable_name is not None:
            msg = (
                f"Queryable state name already set: state {self.name!r} is {self.queryable_name!r}"
                f" for queries, and cannot be {queryable_state_name!r}, too"
            )
            raise UsageError(msg)
        self.queryable_name = queryable_state_name

    def is_queryable(self) -> bool:
        """Tell whether the state has a name for queries."""
        return self.queryable_name is not None

    def get_queryable_state_name(self) -> str | None:
        """Return the name for queries, None when there is none."""
        return self.queryable_name

    def __repr__(self) -> str:
        """Read as the constructor call."""
        return f"{type(self).__name__}({self.name!r}, {self.type_info!r})"


class ValueStateDescriptor(StateDescriptor, Generic[T]):
    """Declares one value per key.

    Example:
        ValueStateDescriptor("count", Types.LONG()).get_name()
    """

    kind = StateKind.VALUE

    @overload
    def __init__(
        self: ValueStateDescriptor[Any], name: str, value_type_info: None = None
    ) -> None: ...

    @overload
    def __init__(self, name: str, value_type_info: TypeInformation[T]) -> None: ...

    def __init__(self, name: str, value_type_info: Any = None) -> None:
        """Declare the state with the type of its value."""
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor, Generic[T]):
    """Declares a list per key, or a list of operator state.

    Example:
        ListStateDescriptor("last", Types.LONG())
    """

    kind = StateKind.LIST

    @overload
    def __init__(
        self: ListStateDescriptor[Any], name: str, elem_type_info: None = None
    ) -> None: ...

    @overload
    def __init__(self, name: str, elem_type_info: TypeInformation[T]) -> None: ...

    def __init__(self, name: str, elem_type_info: Any = None) -> None:
        """Declare the state with the type of one element."""
        super().__init__(name, elem_type_info)

    @property
    def type_info(self) -> Any:
        """The list type."""
        return None if self.value_type is None else Types.LIST(self.value_type)


class MapStateDescriptor(StateDescriptor, Generic[K, V]):
    """Declares a map per key, or broadcast state.

    Example:
        MapStateDescriptor("pages", Types.STRING(), Types.LONG())
    """

    kind = StateKind.MAP

    @overload
    def __init__(
        self, name: str, key_type_info: TypeInformation[K], value_type_info: TypeInformation[V]
    ) -> None: ...

    @overload
    def __init__(
        self: MapStateDescriptor[Any, Any],
        name: str,
        key_type_info: Any = None,
        value_type_info: Any = None,
    ) -> None: ...

    def __init__(self, name: str, key_type_info: Any = None, value_type_info: Any = None) -> None:
        """Declare the state with the types of map keys and values."""
        super().__init__(name, value_type_info)
        self.key_type = key_type_info

    @property
    def type_info(self) -> Any:
        """The map type."""
        if self.key_type is None or self.value_type is None:
            return None
        return Types.MAP(self.key_type, self.value_type)


class ReducingStateDescriptor(StateDescriptor, Generic[T]):
    """Declares one value per key that a reduce function folds.

    Example:
        ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
    """

    kind = StateKind.REDUCING

    @overload
    def __init__(
        self: ReducingStateDescriptor[Any], name: str, reduce_function: Any, type_info: None = None
    ) -> None: ...

    @overload
    def __init__(self, name: str, reduce_function: Any, type_info: TypeInformation[T]) -> None: ...

    def __init__(self, name: str, reduce_function: Any, type_info: Any = None) -> None:
        """Declare the state with a `ReduceFunction` or a callable of two values.

        Raises:
            UsageError: the function is neither.
        """
        super().__init__(name, type_info)
        reduce: Callable[[Any, Any], Any] | None = getattr(reduce_function, "reduce", None)
        if reduce is None:
            reduce = reduce_function
        if not callable(reduce):
            msg = (
                f"ReducingStateDescriptor {name!r}: the input must be a ReduceFunction or a "
                f"callable function, found {reduce_function!r}"
            )
            raise UsageError(msg)
        self.function = reduce
        self._reduce_function = reduce_function

    def get_reduce_function(self) -> Any:
        """Return the reduce function as it was given."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Declares one accumulator per key that an aggregate function folds.

    Example:
        AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
    """

    kind = StateKind.AGGREGATING

    def __init__(self, name: str, agg_function: Any, state_type_info: Any = None) -> None:
        """Declare the state with an `AggregateFunction` and the type of its accumulator.

        Raises:
            UsageError: the function lacks a method of `AggregateFunction`.
        """
        super().__init__(name, state_type_info)
        missing = [m for m in _AGGREGATE_METHODS if not callable(getattr(agg_function, m, None))]
        if missing:
            msg = (
                f"AggregatingStateDescriptor {name!r}: the input must be an AggregateFunction, "
                f"found {agg_function!r} without {', '.join(missing)}"
            )
            raise UsageError(msg)
        self.function = agg_function

    def get_agg_function(self) -> Any:
        """Return the aggregate function."""
        return self.function


class _Fold:
    """A fold function as the aggregate function that it is: the accumulator is the result."""

    def __init__(self, name: str, initial_value: Any, fold: Any) -> None:
        self.name = name
        self.initial_value = initial_value
        self.fold = fold

    def create_accumulator(self) -> Any:
        return copy.deepcopy(self.initial_value)

    def add(self, value: Any, accumulator: Any) -> Any:
        return self.fold(accumulator, value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        msg = (
            f"FoldingState {self.name!r} cannot be merged, because a fold function takes values "
            "into a result and not results: use AggregatingStateDescriptor in merging windows"
        )
        raise UsageError(msg)


class FoldingStateDescriptor(AggregatingStateDescriptor):
    """Declares one value per key that a function folds further values into.

    Flink removed it in favour of aggregating state, as which it is stored here. A key begins with
    a copy of the initial value.

    Example:
        >>> descriptor = FoldingStateDescriptor("text", "", lambda all, new: f"{all}{new}")
    """

    def __init__(
        self, name: str, initial_value: Any, fold_function: Any, type_info: Any = None
    ) -> None:
        """Declare the state with a function `(accumulator, value)` or an object with `fold`.

        Raises:
            UsageError: the fold function is neither.
        """
        fold = getattr(fold_function, "fold", fold_function)
        if not callable(fold):
            msg = (
                f"FoldingStateDescriptor {name!r} expects a fold function, found {fold_function!r}"
            )
            raise UsageError(msg)
        super().__init__(name, _Fold(name, initial_value, fold), type_info)
        self.initial_value = initial_value
        self.fold_function = fold_function

    def get_fold_function(self) -> Any:
        """Return the fold function."""
        return self.fold_function
