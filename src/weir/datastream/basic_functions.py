"""The functions that users write for one record at a time, and their common base.

A function object is created in the program, shipped to its subtask, opened once, called for every
record, closed once. Everything that a function keeps beyond a record belongs into state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from weir.datastream.runtime_context import RuntimeContext


class Function(ABC):  # noqa: B024 - the abstract methods are those of each kind
    """Base of all user functions: the life cycle around the calls per record."""

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - optional hook
        """Prepare: called once per subtask and attempt, before the first record."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Tidy up: called once after the last record, also when the job failed."""


class MapFunction(Function):
    """One record in, one record out."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the record that replaces `value`."""


class CoMapFunction(Function):
    """Map over two connected streams; both methods see the same instance."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the record for a record of the first stream; None emits nothing."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the record for a record of the second stream; None emits nothing."""


class FlatMapFunction(Function):
    """One record in, any number of records out."""

    @abstractmethod
    def flat_map(self, value: Any) -> Any:
        """Return or yield the records that replace `value`."""


class CoFlatMapFunction(Function):
    """Flat map over two connected streams; both methods see the same instance."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Any:
        """Return or yield the records for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Any:
        """Return or yield the records for a record of the second stream."""


class FilterFunction(Function):
    """Keeps or drops records."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return whether `value` is kept."""


class ReduceFunction(Function):
    """Combines two records of one type into one; must be associative."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Return the combination of the value so far and the next one."""


class AggregateFunction(Function):
    """Aggregates records into an accumulator of another type, and that into a result."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return a fresh accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with `value` added."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the result that an accumulator stands for."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Return one accumulator that holds what both held."""


class KeySelector(Function):
    """Takes the key out of a record; must return the same key for the same record, always."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key of a record."""


class NullByteKeySelector(KeySelector):
    """Gives every record the same key, which brings a whole stream to one subtask."""

    def get_key(self, value: Any) -> int:
        """Return the one key."""
        return 0


class Partitioner(Function):
    """Decides which subtask a record goes to."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the subtask index for a key, from 0 to `num_partitions - 1`."""
