"""The base of all runtime operators: chunks in, chunks out, hooks for time and checkpoints.

An operator handles whole chunks (parallel lists) and hands its output to the next operators by
direct call. It is driven by one thread. Whatever a user's function raises, `StopIteration` and
`SystemExit` included, becomes a `UserFunctionError` that names the operator and the record and
shows the user's frames only: it ends no iteration and no process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar

from weir.backend.base import SharedFiles, SnapshotKind
from weir.backend.factory import BackendContext, BackendSettings, BackgroundExecutor, NoSharedFiles
from weir.clock import Clock
from weir.codec.plan import scalar_clean
from weir.connector.sink import NewerOutput
from weir.errors import UsageError, UserFunctionError, WeirError
from weir.failpoint import ProcessDeath
from weir.graph.output_tag import OutputTag
from weir.graph.plan import EdgeNode, OperatorNode
from weir.runtime.columnar import ColumnInput
from weir.runtime.frame import MIN_WATERMARK, Chunk
from weir.runtime.looks import Looks
from weir.runtime.memory import MemoryLimits
from weir.runtime.queryable import QueryableNames
from weir.runtime.raised import last_given, shorten, user_traceback

Consumer = Callable[[Chunk], None]


@dataclass
class TaskFacts:
    """Where an operator runs: handed to user functions through the runtime context."""

    job_id: str
    job_name: str
    attempt: int
    subtask: int
    clock: Clock
    report: Callable[[int, str, list[Any]], None]
    lineage: tuple[str, ...] = ()
    job_parameters: dict[str, str] = field(default_factory=dict)
    backend: BackendSettings = field(default_factory=BackendSettings)
    shared_files: Callable[[str], SharedFiles] = lambda operator: NoSharedFiles()
    local_dir: Path | None = None
    background: BackgroundExecutor | None = None
    newer_output: NewerOutput = NewerOutput.NONE
    from_savepoint: bool = False
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    epoch_ms: int | None = None
    looks: Looks = field(default_factory=Looks)
    queryable: QueryableNames = field(default_factory=QueryableNames)

    def now_ms(self) -> int:
        """Return the processing time of the epoch, the same in all slots, or else the clock's."""
        return self.clock.now_ms() if self.epoch_ms is None else self.epoch_ms

    def snapshot_kind(self, *, full: bool, native: bool = False) -> SnapshotKind:
        """Return how keyed state is snapshotted for a checkpoint."""
        if native:
            return SnapshotKind.NATIVE
        shares = self.backend.incremental or self.backend.changelog
        return SnapshotKind.INCREMENTAL if shares and not full else SnapshotKind.FULL

    def backend_of(self, operator: str) -> BackendContext:
        """Return what the keyed backend of an operator needs to know."""
        shared = self.shared_files(operator)
        return BackendContext(
            settings=self.backend,
            shared=shared,
            clock=self.clock,
            local_dir=self.local_dir,
            operator=operator,
            subtask=self.subtask,
            background=self.background,
        )


class Operator:
    """One operator in one subtask."""

    by_epoch: ClassVar[bool] = False
    """Whether its processing time is that of the epoch, not that of its slot's clock."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        """Take the plan's node; nothing of the user runs before `open`."""
        self.node = node
        self.facts = facts
        self.function = node.function
        self.consumers: list[Consumer] = []
        self.side_consumers: dict[str, list[Consumer]] = {}
        self.watermark = MIN_WATERMARK
        self.idle = False
        self.records_in = 0
        self.records_out = 0
        self._is_clean = scalar_clean(node.output_type)

    def open(self) -> None:
        """Prepare for records; state is restored before."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Handle a chunk of one input."""
        raise NotImplementedError

    def takes_columns(self, edge: EdgeNode) -> bool:
        """Tell whether records of an edge may come as columns."""
        return False

    def process_columns(self, given: ColumnInput, edge: EdgeNode) -> bool:
        """Handle all columns of an edge in an epoch; False when records must do, and none did."""
        return False

    def settle(self) -> None:
        """Finish what records began: nothing of them is to be under way any more.

        Called when an epoch's records have all been given, before the watermark and the barrier,
        and before a barrier in the middle of a level; for producers before consumers.
        """

    def end_records(self) -> None:
        """All records of the epoch are handled; the watermark comes next."""

    def output_time(self) -> tuple[int, bool]:
        """Return the watermark that operators behind this one see, and whether it is idle."""
        return self.watermark, self.idle

    def on_watermark(self, watermark: int) -> None:
        """Advance event time: everything up to `watermark` has been seen."""
        self.watermark = watermark

    def on_processing_time(self, now_ms: int) -> None:
        """Let processing-time timers that are due fire."""

    def next_processing_timer(self) -> int | None:
        """Return when this operator next wants `on_processing_time`."""
        return None

    def idle_from_ms(self) -> int | None:
        """Return from which look at the sources on it is idle unless it hears something."""
        return None

    def finish(self) -> None:
        """Handle the end of bounded input, after the last watermark."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint is complete."""

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint was given up."""

    def close(self) -> None:
        """Release everything; called once, also after failures."""

    def leave_checks(self) -> None:
        """Let the consumers of the main output check the type of results: all of them do."""
        self._is_clean = None

    def emit(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Hand records to all consumers of the main output."""
        if values:
            self.records_out += len(values)
            chunk = Chunk(values, timestamps)
            for consumer in self.consumers:
                consumer(chunk)

    def emit_results(
        self,
        values: list[Any],
        timestamps: list[int | None] | None,
        inputs: list[Any] | None = None,
    ) -> None:
        """Hand on what a user's function returned, if it has the declared type.

        Scalars are looked at here, a chunk at a time; tuples and rows where they become columns.
        `inputs` are the records that the results are of, where there is one for each.

        Raises:
            UsageError: the declared type cannot hold a result.
        """
        if self._is_clean is not None and not self._is_clean(values):
            declared = self.node.output_type
            values = [
                self._admitted(declared, v, v if inputs is None else inputs[i])
                for i, v in enumerate(values)
            ]
        self.emit(values, timestamps)

    def _admitted(self, declared: Any, value: Any, record: Any) -> Any:
        try:
            return declared.check(value)
        except UsageError as error:
            msg = (
                f"operator '{self.node.name}' at record {shorten(record)}: its output is declared "
                f"as {declared!r}, and it gave {shorten(value)}: {error}"
            )
            raise UsageError(msg) from error

    def emit_tagged(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Hand records to main and side outputs, by the tags among them."""
        tagged = _tagged(values)
        if not tagged:
            self.emit_results(values, timestamps)
            return
        for i in tagged:
            tag, value = values[i]
            declared = self.node.side_types.get(tag.tag_id)
            if scalar_clean(declared) is not None:
                value = self._admitted(declared, value, value)
            stamp = None if timestamps is None else [timestamps[i]]
            for consumer in self.side_consumers.get(tag.tag_id, ()):
                consumer(Chunk([value], stamp))
        drop = set(tagged)
        rest = [v for i, v in enumerate(values) if i not in drop]
        stamps = None
        if timestamps is not None:
            stamps = [t for i, t in enumerate(timestamps) if i not in drop]
        self.emit_results(rest, stamps)

    def emit_side(self, tag: str, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Hand records to the consumers of a side output."""
        declared = self.node.side_types.get(tag)
        if scalar_clean(declared) is not None:
            values = [self._admitted(declared, v, v) for v in values]
        chunk = Chunk(values, timestamps)
        for consumer in self.side_consumers.get(tag, ()):
            consumer(chunk)

    def results(self, function: Callable[[Any], Any], values: list[Any]) -> list[Any]:
        """Return what a function returns for every record."""
        rest = iter(values)
        try:
            return [function(v) for v in rest]
        except BaseException as error:
            raise self.failed(error, last_given(values, rest)) from None

    def kept(
        self, function: Callable[[Any], Any], chunk: Chunk
    ) -> tuple[list[Any], list[int | None] | None]:
        """Return the records for which a function is true, with their timestamps."""
        values, stamps = chunk.values, chunk.timestamps
        rest = iter(values)
        try:
            if stamps is None:
                return [v for v in rest if function(v)], None
            keep = [True if function(v) else False for v in rest]  # noqa: SIM210 - saves a call
        except BaseException as error:
            raise self.failed(error, last_given(values, rest)) from None
        return list(compress(values, keep)), list(compress(stamps, keep))

    def failed(self, error: BaseException, record: Any) -> BaseException:
        """Wrap a user function's exception; Weir's own errors pass with the operator's name."""
        if isinstance(error, (UserFunctionError, ProcessDeath)):
            return error
        if isinstance(error, WeirError):
            return type(error)(f"operator '{self.node.name}' at record {shorten(record)}: {error}")
        return UserFunctionError(self.node.name, shorten(record), user_traceback(error))

    def failed_in(self, error: BaseException, hook: Callable[..., Any]) -> BaseException:
        """Wrap what a method of a user's function raised that is not given a record."""
        if isinstance(error, (UserFunctionError, ProcessDeath)):
            return error
        name = getattr(hook, "__name__", type(hook).__name__)
        if isinstance(error, WeirError):
            return type(error)(f"operator '{self.node.name}' in {name}(): {error}")
        return UserFunctionError(self.node.name, f"<{name}>", user_traceback(error))


def _tagged(values: list[Any]) -> list[int]:
    """Return where records of side outputs are."""
    kinds = set(map(type, values))
    if tuple not in kinds or (len(kinds) == 1 and 2 not in set(map(len, values))):
        return []
    return [
        i
        for i, v in enumerate(values)
        if v.__class__ is tuple and len(v) == 2 and v[0].__class__ is OutputTag
    ]
