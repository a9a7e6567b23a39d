"""What a function implements to take part in checkpoints with operator state of its own.

Mixed into any other function: `class BufferingSink(SinkFunction, CheckpointedFunction)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, BinaryIO, Protocol

from weir.datastream._runtime_context import KeyedStateStore
from weir.state.operator_state import OperatorStateStore
from weir.state.raw import RawKeyedOutput, RawOperatorOutput


class FunctionSnapshotContext(Protocol):
    """Given to `snapshot_state`: which checkpoint is being taken.

    Example:
        def snapshot_state(self, context: FunctionSnapshotContext):
            print(context.get_checkpoint_id())
    """

    def get_checkpoint_id(self) -> int:
        """Return the id of the checkpoint; ids only grow."""

    def get_checkpoint_timestamp(self) -> int:
        """Return when the checkpoint was triggered, in milliseconds since the Unix epoch."""

    def get_raw_keyed_operator_state_output(self) -> RawKeyedOutput:
        """Return where bytes of key groups go: `start_new_key_group`, `write`; keyed streams."""

    def get_raw_operator_state_output(self) -> RawOperatorOutput:
        """Return where bytes of the subtask go: `start_new_partition`, `write`."""


class FunctionInitializationContext(Protocol):
    """Given to `initialize_state`: where the function finds its state.

    Example:
        def initialize_state(self, context: FunctionInitializationContext):
            self.count = 0 if context.is_restored() else 1
    """

    def is_restored(self) -> bool:
        """Tell whether state was restored from an earlier execution."""

    def get_restored_checkpoint_id(self) -> int | None:
        """Return the id of the checkpoint that was restored, None on a fresh start."""

    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of list, union list and broadcast state of this subtask."""

    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the store of keyed state; only on keyed streams."""

    def get_raw_keyed_state_inputs(self) -> Iterable[tuple[int, BinaryIO]]:
        """Return the restored raw state of this subtask's key groups: (key group, stream)."""

    def get_raw_operator_state_inputs(self) -> Iterable[BinaryIO]:
        """Return a stream for each partition of raw state that this subtask was given."""


class CheckpointedFunction(ABC):
    """A function that writes its own operator state.

    Guarantee: `initialize_state` is called before `open` in every attempt; `snapshot_state` is
    called at the barrier, after every record before it and before any record behind it.

    Example:
        class Counted(MapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                store = context.get_operator_state_store()
                self.state = store.get_list_state(ListStateDescriptor("count", Types.LONG()))
                self.count = sum(self.state.get())

            def snapshot_state(self, context):
                self.state.update([self.count])

            def map(self, value):
                self.count += 1
                return value
    """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Bring the registered state up to date; called for every checkpoint."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Register state and take over what was restored."""


class ListCheckpointed(ABC):
    """A function whose whole operator state is one list, split evenly when it is rescaled.

    Example:
        class Counted(MapFunction, ListCheckpointed):
            count = 0

            def map(self, value):
                self.count += 1
                return value

            def snapshot_state(self, checkpoint_id, timestamp):
                return [self.count]

            def restore_state(self, state):
                self.count = sum(state)
    """

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        """Return the state as a list of elements that may be handed out one by one."""

    @abstractmethod
    def restore_state(self, state: list[Any]) -> None:
        """Take over this subtask's share of the elements; called before `open`."""


class CheckpointListener(ABC):
    """A function that wants to know what became of checkpoints.

    Notifications are best effort: one may be missing, and a later id stands for all lower ones.

    Example:
        class Told(MapFunction, CheckpointListener):
            def map(self, value):
                return value

            def notify_checkpoint_complete(self, checkpoint_id):
                print("complete:", checkpoint_id)
    """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint is durable; an exception here fails the job, not it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - optional
        """Learn that a checkpoint will never complete."""
