"""The base of all runtime operators: chunks in, chunks out, hooks for time and checkpoints.

An operator handles whole chunks (parallel lists) and hands its output to the next operators by
direct call. It is driven by one thread. A user function's exception becomes a `UserFunctionError`
that names the operator and the record and shows the user's frames only.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weir.backend.base import SharedFiles, SnapshotKind
from weir.backend.changelog.backend import Background
from weir.backend.factory import BackendContext, BackendSettings, NoSharedFiles
from weir.clock import Clock
from weir.errors import UserFunctionError, WeirError
from weir.graph.output_tag import OutputTag
from weir.graph.plan import OperatorNode
from weir.runtime.exchange import shorten
from weir.runtime.frame import MIN_WATERMARK, Chunk

Consumer = Callable[[Chunk], None]
_PACKAGE = str(Path(__file__).resolve().parent.parent)


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
    background: Background | None = None

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
            self.backend,
            shared,
            self.clock,
            self.local_dir,
            operator,
            self.subtask,
            self.background,
        )


def user_traceback(error: BaseException) -> str:
    """Format an exception with the user's frames only."""
    shown = traceback.TracebackException.from_exception(error)
    seen: traceback.TracebackException | None = shown
    while seen is not None:
        kept = [f for f in seen.stack if not f.filename.startswith(_PACKAGE)]
        if kept:
            seen.stack = traceback.StackSummary.from_list(kept)
        seen = seen.__cause__ or seen.__context__
    return "".join(shown.format())


class Operator:
    """One operator in one subtask."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        """Take the plan's node; nothing of the user runs before `open`."""
        self.node = node
        self.facts = facts
        self.function = node.function
        self.consumers: list[Consumer] = []
        self.side_consumers: dict[str, list[Consumer]] = {}
        self.watermark = MIN_WATERMARK
        self.records_in = 0
        self.records_out = 0

    def open(self) -> None:
        """Prepare for records; state is restored before."""

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Handle a chunk of one input."""
        raise NotImplementedError

    def on_watermark(self, watermark: int) -> None:
        """Advance event time: everything up to `watermark` has been seen."""
        self.watermark = watermark

    def on_processing_time(self, now_ms: int) -> None:
        """Let processing-time timers that are due fire."""

    def next_processing_timer(self) -> int | None:
        """Return when this operator next wants `on_processing_time`."""
        return None

    def finish(self) -> None:
        """Handle the end of bounded input, after the last watermark."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint is complete."""

    def notify_aborted(self, checkpoint_id: int) -> None:
        """Learn that a checkpoint was given up."""

    def close(self) -> None:
        """Release everything; called once, also after failures."""

    def emit(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Hand records to all consumers of the main output."""
        if values:
            self.records_out += len(values)
            chunk = Chunk(values, timestamps)
            for consumer in self.consumers:
                consumer(chunk)

    def emit_tagged(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Hand records to main and side outputs, by the tags among them."""
        tagged = [i for i, v in enumerate(values) if _is_tagged(v)]
        if not tagged:
            self.emit(values, timestamps)
            return
        for i in tagged:
            tag, value = values[i]
            stamp = None if timestamps is None else [timestamps[i]]
            for consumer in self.side_consumers.get(tag.tag_id, ()):
                consumer(Chunk([value], stamp))
        drop = set(tagged)
        rest = [v for i, v in enumerate(values) if i not in drop]
        stamps = None
        if timestamps is not None:
            stamps = [t for i, t in enumerate(timestamps) if i not in drop]
        self.emit(rest, stamps)

    def failed(self, error: BaseException, record: Any) -> BaseException:
        """Wrap a user function's exception; Weir's own errors pass with the operator's name."""
        if isinstance(error, UserFunctionError):
            return error
        if isinstance(error, WeirError):
            text = f"operator '{self.node.name}' at record {shorten(record)}: {error}"
            return type(error)(text)
        return UserFunctionError(self.node.name, shorten(record), user_traceback(error))


def _is_tagged(value: Any) -> bool:
    return value.__class__ is tuple and len(value) == 2 and value[0].__class__ is OutputTag
