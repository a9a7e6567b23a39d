"""The base of operators that live in a slot: backend, operator state, timers, hooks, snapshots.

The order of calls is Flink's: restore, `initialize_state`, `open`, records, and at every barrier
`snapshot_state` before anything is frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from weir.backend.base import (
    NO_KEY,
    CurrentKey,
    KeyedBackend,
    KeyedPart,
    KeyedSnapshot,
    OneKeyState,
    RestoreSource,
    SharedFiles,
    SnapshotKind,
    SnapshotOutput,
    Timers,
)
from weir.backend.factory import BackendSettings, create_backend
from weir.backend.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerQueue
from weir.errors import UsageError
from weir.graph.plan import OperatorNode
from weir.graph.time_domain import TimeDomain
from weir.keygroup import KeyGroupRange, range_of
from weir.runtime.context import (
    InitializationContext,
    KeyedStateStore,
    RuntimeContext,
    SnapshotContext,
)
from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK
from weir.runtime.metrics import OperatorMetrics
from weir.runtime.operator import Operator, TaskFacts
from weir.snapshot import SnapshotWriter
from weir.state.descriptor import ListStateDescriptor
from weir.state.operator_state import (
    OperatorRestoreSource,
    OperatorStateSnapshot,
    OperatorStateStore,
)
from weir.state.raw import (
    NO_RAW_INPUTS,
    RawInputs,
    RawKeyedSource,
    read_raw_keyed,
    write_raw_keyed,
)
from weir.state.ttl import TtlStates

LIST_CHECKPOINTED = "_list_checkpointed"


class OperatorSnapshot:
    """Everything of one operator, frozen; `write` runs on another thread.

    `watermark` is not part of what is written: it goes into the checkpoint's metadata.
    """

    def __init__(
        self,
        node: OperatorNode,
        key_groups: KeyGroupRange | None,
        keyed: KeyedSnapshot | None,
        operator: OperatorStateSnapshot,
        raw_keyed: Mapping[int, bytes],
        watermark: int = MIN_WATERMARK,
    ) -> None:
        self._raw_keyed = raw_keyed
        self.watermark = watermark
        self.node = node
        self.key_groups = key_groups
        self._keyed = keyed
        self._operator = operator

    def write(
        self, writer: SnapshotWriter, shared: SharedFiles
    ) -> tuple[dict[str, Any], KeyedPart]:
        """Write all parts; return the operator's footer entry and its keyed state."""
        keyed = KeyedPart({})
        if self._keyed is not None:
            keyed = self._keyed.write(SnapshotOutput(writer, shared))
        footer = {"keyed": keyed.states, "operator": self._operator.write(writer)}
        if self._raw_keyed:
            footer["raw_keyed"] = write_raw_keyed(self._raw_keyed, writer)
        return footer, keyed

    def release(self) -> None:
        """Give frozen state back to the backend, on the subtask's thread."""
        if self._keyed is not None:
            self._keyed.release()


class StatefulOperator(Operator):
    """An operator with a place for every kind of state."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self.backend: KeyedBackend | None = None
        self.key_groups = range_of(facts.subtask, node.parallelism, node.max_parallelism)
        groups, keys = self.key_groups, node.key_type
        self.event_timers: Timers = TimerQueue(EVENT_TIMERS, keys, groups)
        self.processing_timers: Timers = TimerQueue(PROCESSING_TIMERS, keys, groups)
        if node.keyed:
            context = replace(facts.backend_of(node.id), operator_name=node.name)
            if node.in_batch:
                context = replace(context, settings=BackendSettings(one_key=True))
            self.backend = create_backend(context, keys, groups, self.namespace_type())
            self.event_timers = self.backend.timers(EVENT_TIMERS)
            self.processing_timers = self.backend.timers(PROCESSING_TIMERS)
        self.operator_store = OperatorStateStore()
        self.ttl = None if self.backend is None else self._ttl_states(self.backend)
        self.metrics = OperatorMetrics(node.name)
        self.runtime_context = RuntimeContext(
            node, facts, self.metrics.group, self.backend, ttl=self.ttl
        )
        self.restored_checkpoint: int | None = None
        self._records_seen = 0
        self._raw_inputs = NO_RAW_INPUTS

    def namespace_type(self) -> Any:
        """Return the declared type of namespaces; None is any, stored pickled."""
        return None

    def _ttl_states(self, backend: KeyedBackend) -> TtlStates:
        """Return the place for states that expire."""
        chosen = self.facts.backend
        return TtlStates(
            backend,
            self.facts.clock,
            backend_kind=chosen.kind,
            options=chosen.options,
            operator=self.node.name,
        )

    def restore(
        self,
        checkpoint_id: int,
        keyed: list[RestoreSource],
        operator: list[OperatorRestoreSource],
        raw_keyed: Sequence[RawKeyedSource] = (),
    ) -> None:
        """Fill state from a checkpoint; called before `open`."""
        self.restored_checkpoint = checkpoint_id
        if self.backend is not None:
            self.backend.restore(keyed)
        self.operator_store.restore(operator)
        self._raw_inputs = RawInputs(
            read_raw_keyed(raw_keyed), self.operator_store.take_raw_partitions()
        )

    def restore_watermark(self, watermark: int) -> None:
        """Begin where a checkpoint was: what is finished by then stays so; no timer fires."""
        self.watermark = watermark
        if self.ttl is not None:
            self.ttl.event_time.advance(watermark)

    def open(self) -> None:
        """Run the user's hooks: `initialize_state`, then `open`."""
        self._initialize_state()
        hook = getattr(self.function, "open", None)
        if hook is not None:
            self._call(hook, self.runtime_context)

    def _initialize_state(self) -> None:
        function = self.function
        raw, self._raw_inputs = self._raw_inputs, NO_RAW_INPUTS
        if hasattr(function, "initialize_state"):
            keyed = KeyedStateStore(self.node, self.backend, self.ttl, self.facts.queryable)
            context = InitializationContext(
                self.restored_checkpoint, self.operator_store, keyed, raw
            )
            self._call(function.initialize_state, context)
        elif hasattr(function, "restore_state") and hasattr(function, "snapshot_state"):
            state = self.operator_store.get_list_state(ListStateDescriptor(LIST_CHECKPOINTED, None))
            if self.restored_checkpoint is not None:
                self._call(function.restore_state, list(state.get()))

    def snapshot(
        self, checkpoint_id: int, timestamp_ms: int, kind: SnapshotKind
    ) -> OperatorSnapshot:
        """Freeze everything (sync phase): cost does not grow with the number of keys."""
        groups = None if self.backend is None else self.key_groups
        context = SnapshotContext(checkpoint_id, timestamp_ms, groups)
        self._snapshot_hooks(context)
        raw_keyed, partitions = context.finish()
        keyed = None if self.backend is None else self.backend.snapshot(checkpoint_id, kind)
        operator = self.operator_store.snapshot(checkpoint_id, partitions)
        return OperatorSnapshot(
            self.node,
            key_groups=groups,
            keyed=keyed,
            operator=operator,
            raw_keyed=raw_keyed,
            watermark=self.watermark,
        )

    def _snapshot_hooks(self, context: SnapshotContext) -> None:
        function = self.function
        hook = getattr(function, "snapshot_state", None)
        if hook is None:
            return
        self.clear_key()
        if hasattr(function, "initialize_state"):
            self._call(hook, context)
        elif hasattr(function, "restore_state"):
            state = self.operator_store.get_list_state(ListStateDescriptor(LIST_CHECKPOINTED, None))
            checkpoint_id = context.get_checkpoint_id()
            timestamp = context.get_checkpoint_timestamp()

            def snapshot_state() -> list[Any]:
                # A generator runs here too.
                elements = hook(checkpoint_id, timestamp)
                return [] if elements is None else list(elements)

            state.update(self._call(snapshot_state))

    def notify_complete(self, checkpoint_id: int) -> None:
        """Tell the backend, and a function that listens."""
        if self.backend is not None:
            self.backend.notify_complete(checkpoint_id)
        hook = getattr(self.function, "notify_checkpoint_complete", None)
        if hook is not None:
            self.clear_key()
            self._call(hook, checkpoint_id)

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Tell the backend, and a function that listens."""
        if self.backend is not None:
            self.backend.notify_aborted(checkpoint_id)
        hook = getattr(self.function, "notify_checkpoint_aborted", None)
        if hook is not None:
            self.clear_key()
            self._call(hook, checkpoint_id)

    def end_epoch(self) -> None:
        """Remove what expired, and let the backend do what it put off."""
        if self.ttl is not None:
            self.ttl.end_epoch(self.records_in - self._records_seen)
            self._records_seen = self.records_in
        if self.backend is not None:
            self.backend.end_epoch()

    def on_watermark(self, watermark: int) -> None:
        """Advance event time, also for state that expires by it."""
        super().on_watermark(watermark)
        if self.ttl is not None:
            self.ttl.event_time.advance(watermark)

    def next_processing_timer(self) -> int | None:
        """Return when state is to be removed that expires by then."""
        return None if self.ttl is None else self.ttl.next_processing_time()

    def end_key(self, group: int) -> None:
        """All records of a key were handled, in BATCH mode: its timers fire, its state goes."""
        self.on_watermark(MAX_WATERMARK)
        self.on_processing_time(MAX_WATERMARK)
        self.end_epoch()
        self.watermark = MIN_WATERMARK
        if self.backend is not None:
            cast(OneKeyState, self.backend).forget(group)

    def end_keys(self) -> None:
        """All keys were handled, in BATCH mode."""

    def end_stride(self) -> None:
        """Tell the backend, and what expires, that the records are handled that they were told."""
        if self.ttl is not None:
            self.ttl.event_time.end_records()
        if self.backend is not None:
            self.backend.end_stride()

    def clear_key(self) -> None:
        """Make state access fail until the next record sets a key."""
        if self.backend is not None:
            self.backend.current.key = NO_KEY

    def current_key(self) -> CurrentKey:
        """Return the current key, for timers and contexts."""
        if self.backend is None:
            msg = (
                f"operator '{self.node.name}' is not keyed: timers and the current key exist only "
                "after key_by()"
            )
            raise UsageError(msg)
        return self.backend.current

    def time_domain(self, domain: int) -> Any:
        """Return the door's name of a time domain."""
        return TimeDomain(domain)

    def close(self) -> None:
        """Run the user's `close` and drop the state."""
        try:
            hook = getattr(self.function, "close", None)
            if hook is not None:
                self._call(hook)
        finally:
            if self.backend is not None:
                self.backend.close()

    def state_entries(self) -> int:
        """Tell about how many keyed entries there are, for progress reports."""
        return 0 if self.backend is None else self.backend.approximate_size()

    def _call(self, hook: Callable[..., Any], *args: Any) -> Any:
        try:
            return hook(*args)
        except BaseException as error:
            raise self.failed_in(error, hook) from None
