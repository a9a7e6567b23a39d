"""`as_queryable_state`: a stream that ends in a state, for others to query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weir.common.typeinfo import TypeInformation
from weir.datastream._operator_handle import OperatorHandle
from weir.datastream._runtime_context import RuntimeContext
from weir.datastream._stream import Stream
from weir.datastream.functions import KeyedProcessFunction
from weir.errors import UsageError
from weir.graph import kinds
from weir.graph.transformation import Transformation
from weir.state.descriptor import (
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)

Folded = ValueStateDescriptor[Any] | ReducingStateDescriptor[Any]


class QueryableStateStream(OperatorHandle):
    """The end of a stream in a state that can be queried by its name.

    Example:
        by_name = stream.key_by(lambda record: record[0], Types.STRING())
        by_name.as_queryable_state("last-record").uid("last-record")
    """

    def __init__(
        self, operator: Transformation, state_descriptor: StateDescriptor, key_type: Any
    ) -> None:
        """Keep what a client needs to know."""
        super().__init__((operator,))
        self._descriptor = state_descriptor
        self._key_type = key_type

    def get_queryable_state_name(self) -> str:
        """Return the name for queries."""
        return self._descriptor.get_queryable_state_name() or ""

    def get_state_descriptor(self) -> StateDescriptor:
        """Return the descriptor of the state."""
        return self._descriptor

    def get_key_type(self) -> TypeInformation | None:
        """Return the type of keys, None when it was not declared."""
        found: TypeInformation | None = self._key_type
        return found


class UpdateQueryableState(KeyedProcessFunction[Any, Any, Any]):
    """Keeps the newest record of every key, or what a reduce function makes of them all."""

    def __init__(self, descriptor: Folded) -> None:
        self._descriptor = descriptor
        self._update: Any = None

    def open(self, runtime_context: RuntimeContext) -> None:
        """Ask for the state."""
        descriptor = self._descriptor
        if isinstance(descriptor, ReducingStateDescriptor):
            self._update = runtime_context.get_reducing_state(descriptor).add
        else:
            self._update = runtime_context.get_state(descriptor).update

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        """Take a record into the state; nothing comes out."""
        self._update(value)
        return ()


def queryable_descriptor(name: str, descriptor: StateDescriptor | None, record_type: Any) -> Folded:
    """Return the descriptor of the state that a stream ends in.

    Raises:
        UsageError: a state of that kind would grow for ever, or has another name for queries.
    """
    made: Any = ValueStateDescriptor(name, record_type) if descriptor is None else descriptor
    if not isinstance(made, (ValueStateDescriptor, ReducingStateDescriptor)):
        msg = (
            f"as_queryable_state({name!r}) takes a ValueStateDescriptor or a "
            f"ReducingStateDescriptor, found {made!r}: a list or map would grow for ever; keep one "
            "in a KeyedProcessFunction, and call set_queryable on its descriptor"
        )
        raise UsageError(msg)
    if made.get_queryable_state_name() != name:
        made.set_queryable(name)
    return made


class EndsInState(Stream):
    """A keyed stream that may end in a state."""

    def as_queryable_state(
        self, queryable_state_name: str, state_descriptor: StateDescriptor | None = None
    ) -> QueryableStateStream:
        """End the stream in a state that can be queried: the newest record of every key.

        With the descriptor of a reducing state it is what that makes of all records.
        """
        made = queryable_descriptor(queryable_state_name, state_descriptor, self.record_type)
        operator = self._declare(
            kinds.PROCESS,
            f"Queryable state: {queryable_state_name}",
            function=UpdateQueryableState(made),
        )
        key = self.edges[0].key
        return QueryableStateStream(operator, made, None if key is None else key.key_type)
