"""What user functions see of the runtime: task facts, state, timers.

One context object is reused for all records of an operator; it is valid only during the call, as
in Flink.
"""

from __future__ import annotations

import logging
from typing import Any, BinaryIO

from weir.backend.base import KeyedBackend, Timers
from weir.errors import UsageError
from weir.graph.plan import OperatorNode
from weir.keygroup import KeyGroupRange
from weir.metrics import MetricGroup
from weir.notices import warn_once
from weir.runtime.operator import TaskFacts
from weir.runtime.queryable import QueryableNames
from weir.state.operator_state import OperatorStateStore
from weir.state.raw import NO_RAW_INPUTS, RawInputs, RawKeyedOutput, RawOperatorOutput
from weir.state.ttl import TtlStates

log = logging.getLogger("weir.runtime")


class KeyedStateStore:
    """Access to the keyed state of one operator."""

    def __init__(
        self,
        node: OperatorNode,
        backend: KeyedBackend | None,
        ttl: TtlStates | None = None,
        queryable: QueryableNames | None = None,
    ) -> None:
        """Bind to one operator of one subtask; `ttl` holds its states that expire."""
        self._node = node
        self._backend = backend
        self._ttl = ttl
        self._queryable = queryable

    def get_state(self, state_descriptor: Any) -> Any:
        """Return a ValueState."""
        return self._keyed(state_descriptor)

    def get_list_state(self, state_descriptor: Any) -> Any:
        """Return a ListState."""
        return self._keyed(state_descriptor)

    def get_map_state(self, state_descriptor: Any) -> Any:
        """Return a MapState."""
        return self._keyed(state_descriptor)

    def get_reducing_state(self, state_descriptor: Any) -> Any:
        """Return a ReducingState."""
        return self._keyed(state_descriptor)

    def get_aggregating_state(self, state_descriptor: Any) -> Any:
        """Return an AggregatingState."""
        return self._keyed(state_descriptor)

    get_folding_state = get_aggregating_state

    def advise_on_operator_state(self) -> None:
        """Say once that operator state beside keys is not of the keys."""
        if self._backend is not None:
            warn_once(
                log,
                f"operator {self._node.name!r} has keys and asks for operator state, which all "
                "keys of a subtask share and which is dealt out anew when the job is rescaled: for "
                "something of each key use keyed state, runtime_context.get_state()",
            )

    def _keyed(self, descriptor: Any) -> Any:
        if self._backend is None:
            kind = type(descriptor).__name__.removesuffix("Descriptor")
            msg = (
                f"Keyed state '{descriptor.get_name()}' with type {kind} can only be used on a "
                f"'keyed stream', i.e., after a 'key_by()' operation; operator "
                f"'{self._node.name}' has no keys"
            )
            raise UsageError(msg)
        if descriptor.queryable_name is not None and self._queryable is not None:
            self._queryable.add(descriptor.queryable_name, self._node, descriptor.name)
        if self._ttl is not None and descriptor.ttl_config is not None:
            return self._ttl.bind(descriptor)
        return self._backend.state(descriptor)


class RuntimeContext(KeyedStateStore):
    """Task facts, metrics and state access of one operator."""

    def __init__(
        self,
        node: OperatorNode,
        facts: TaskFacts,
        metrics: MetricGroup,
        backend: KeyedBackend | None,
        ttl: TtlStates | None = None,
    ) -> None:
        """Bind to one operator of one subtask; `ttl` holds its states that expire."""
        super().__init__(node, backend, ttl, facts.queryable)
        self._facts = facts
        self._metrics = metrics

    def get_task_name(self) -> str:
        """Return the operator's name."""
        return self._node.name

    def get_number_of_parallel_subtasks(self) -> int:
        """Return the operator's parallelism."""
        return self._node.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the operator's max parallelism."""
        return self._node.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """Return this subtask's index, from 0."""
        return self._facts.subtask

    def get_attempt_number(self) -> int:
        """Return the execution attempt, from 0."""
        return self._facts.attempt

    def get_task_name_with_subtasks(self) -> str:
        """Return the name with subtask and parallelism, counted from 1."""
        return f"{self._node.name} ({self._facts.subtask + 1}/{self._node.parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a global job parameter."""
        return self._facts.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Return the group in which the operator's function registers its metrics."""
        return self._metrics

    get_metric_group = get_metrics_group


class InitializationContext:
    """Given to `initialize_state`: is this a restore, and where is state kept."""

    def __init__(
        self,
        restored: int | None,
        operator_store: OperatorStateStore,
        keyed: KeyedStateStore | None,
        raw: RawInputs = NO_RAW_INPUTS,
    ) -> None:
        """Bind the stores, and what was restored of raw state."""
        self._raw = raw
        self._restored = restored
        self._operator_store = operator_store
        self._keyed = keyed

    def is_restored(self) -> bool:
        """Tell whether state was restored from a checkpoint or savepoint."""
        return self._restored is not None

    def get_restored_checkpoint_id(self) -> int | None:
        """Return the id of the restored checkpoint."""
        return self._restored

    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of operator state; where there are keys, advise once."""
        if self._keyed is not None:
            self._keyed.advise_on_operator_state()
        return self._operator_store

    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the store of keyed state; it raises on a stream without keys."""
        if self._keyed is None:
            msg = "a source has no keyed state: keep it in a function after key_by()"
            raise UsageError(msg)
        return self._keyed

    def get_raw_keyed_state_inputs(self) -> list[tuple[int, BinaryIO]]:
        """Return (key group, stream) for all key groups of this subtask with raw state."""
        return self._raw.keyed_streams()

    def get_raw_operator_state_inputs(self) -> list[BinaryIO]:
        """Return a stream for each partition of raw operator state that this subtask got."""
        return self._raw.operator_streams()


class SnapshotContext:
    """Given to `snapshot_state`."""

    def __init__(
        self, checkpoint_id: int, timestamp_ms: int, key_groups: KeyGroupRange | None = None
    ) -> None:
        """Hold id and trigger time; an operator without keys has no key groups."""
        self._checkpoint_id = checkpoint_id
        self._timestamp_ms = timestamp_ms
        self._key_groups = key_groups
        self._keyed: RawKeyedOutput | None = None
        self._operator: RawOperatorOutput | None = None

    def get_checkpoint_id(self) -> int:
        """Return the checkpoint's id."""
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """Return when the checkpoint was triggered."""
        return self._timestamp_ms

    def get_raw_keyed_operator_state_output(self) -> RawKeyedOutput:
        """Return where raw state of key groups goes; the same output for every call.

        Raises:
            UsageError: the stream has no keys.
        """
        if self._keyed is None:
            if self._key_groups is None:
                msg = "raw keyed state needs a keyed stream: call key_by() before this function"
                raise UsageError(msg)
            self._keyed = RawKeyedOutput(self._key_groups)
        return self._keyed

    def get_raw_operator_state_output(self) -> RawOperatorOutput:
        """Return where raw state of the subtask goes; the same output for every call."""
        if self._operator is None:
            self._operator = RawOperatorOutput()
        return self._operator

    def finish(self) -> tuple[dict[int, bytes], list[bytes]]:
        """Close the outputs; return the raw state by key group, and the partitions."""
        groups: dict[int, bytes] = {}
        partitions: list[bytes] = []
        if self._keyed is not None:
            self._keyed.close()
            groups = self._keyed.groups()
        if self._operator is not None:
            self._operator.close()
            partitions = self._operator.partitions()
        return groups, partitions


class OperatorTimerService:
    """Timers and the two clocks, for the key of the current record."""

    def __init__(self, operator: Any, event: Timers, processing: Timers) -> None:
        self._operator = operator
        self._event = event
        self._processing = processing

    def current_processing_time(self) -> int:
        """Return the wall clock in milliseconds."""
        return int(self._operator.facts.clock.now_ms())

    def current_watermark(self) -> int:
        """Return the event time that this operator has reached."""
        return int(self._operator.watermark)

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` for the current key when the wall clock reaches `timestamp`."""
        self._add(self._processing, timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` for the current key when the watermark reaches `timestamp`."""
        self._add(self._event, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget a processing-time timer of the current key."""
        self._remove(self._processing, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget an event-time timer of the current key."""
        self._remove(self._event, timestamp)

    def _add(self, queue: Timers, timestamp: int) -> None:
        current = self._operator.current_key()
        queue.register(int(timestamp), current.key, current.group, current.namespace)

    def _remove(self, queue: Timers, timestamp: int) -> None:
        current = self._operator.current_key()
        queue.delete(int(timestamp), current.key, current.group, current.namespace)
