"""`RuntimeContext`: what a function learns about where it runs, and where it gets its state.

The runtime provides the implementation; a function receives it in `open`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from weir.common._generics import K, T, V
from weir.metrics import MetricGroup
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.state.handles import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)


class KeyedStateStore(ABC):
    """Gives access to the keyed states of one operator, by descriptor.

    The same descriptor always gives the same state; its contents follow the current key.

    Example:
        def initialize_state(self, context):
            store: KeyedStateStore = context.get_keyed_state_store()
            self.count = store.get_state(ValueStateDescriptor("count", Types.LONG()))
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Return a state of one value per key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return a state of one list per key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Return a state of one map per key."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """Return a state that keeps the reduction of what was added, per key."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """Return a state that keeps the aggregate of what was added, per key."""

    def get_folding_state(
        self, state_descriptor: FoldingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """Return a state that folds what is added into one value, per key."""
        return self.get_aggregating_state(state_descriptor)


class RuntimeContext(KeyedStateStore):
    """The subtask that a function runs in, and the function's keyed state.

    Example:
        def open(self, runtime_context: RuntimeContext):
            self.subtask = runtime_context.get_index_of_this_subtask()
            self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
    """

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the name of the operator."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the max parallelism of the operator: its number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return this subtask's index, from 0 to the parallelism minus one."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return how often the job was restarted before this attempt; the first is 0."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the name with subtask and parallelism, such as `Map (2/4)#0`."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> Any:
        """Return a global job parameter, or the default when it is not set."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Return the group in which a function registers its metrics."""
