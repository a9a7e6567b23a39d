"""Watermark generators of the user: they hold state, so they live in slots.

Next to a source there is one generator for each partition, as in Flink's sources. All records of a
partition go to one subtask, which owns it, by the partition's name: they arrive there in order, and
every slot knows all partitions that there are. A partition holds the watermark back from its first
record on, and after a restore until its new generator says something. A subtask that owns none of
the partitions is idle. Behind an exchange there is one generator for each subtask.

Records are handed on before a generator sees them. What it says counts at the end of the epoch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final

from weir.common.watermark_strategy import Watermark, WatermarkOutput
from weir.errors import UsageError
from weir.graph.plan import OperatorNode
from weir.runtime.frame import MAX_WATERMARK, MIN_WATERMARK, Chunk
from weir.runtime.looks import IdleTimer
from weir.runtime.operator import TaskFacts
from weir.runtime.partition_time import partition_owner
from weir.runtime.stateful import StatefulOperator
from weir.runtime.stateless import assigned
from weir.runtime.watermarks import Combined, is_moment

_METHODS: Final = ("on_event", "on_periodic_emit")
_WHOLE: Final = ""


class GeneratorContext:
    """What a generator's supplier may ask for."""

    def __init__(self, metric_group: Any) -> None:
        """Hold the operator's metrics."""
        self._metric_group = metric_group

    def get_metric_group(self) -> Any:
        """Return the metrics of the operator."""
        return self._metric_group


class _Output(WatermarkOutput):
    """Takes what the generator of one partition says."""

    def __init__(self, name: str, combined: Combined) -> None:
        self._name = name
        self._combined = combined

    def emit_watermark(self, watermark: Watermark | int) -> None:
        found = watermark.timestamp if isinstance(watermark, Watermark) else watermark
        if not is_moment(found):
            msg = (
                f"emit_watermark: got {watermark!r}, expected a Watermark or whole milliseconds, "
                "of 64 bits"
            )
            raise UsageError(msg)
        self._combined.emit(self._name, found)

    def mark_idle(self) -> None:
        self._combined.mark_idle(self._name)

    def mark_active(self) -> None:
        self._combined.mark_idle(self._name, idle=False)


class _Generated:
    """One generator, its output, and how long it has seen nothing."""

    def __init__(self, generator: Any, output: _Output, silence: IdleTimer) -> None:
        self.generator = generator
        self.output = output
        self.silence = silence
        self.heard = False


class GeneratorOperator(StatefulOperator):
    """Assigns timestamps, and asks generators of the user for watermarks."""

    def __init__(self, node: OperatorNode, facts: TaskFacts) -> None:
        super().__init__(node, facts)
        self._combined = Combined()
        self._generated: dict[str, _Generated] = {}
        self._by_partition = bool(node.options.get("by_partition"))
        self._owns_none = False

    def open(self) -> None:
        """Begin with the generator of the subtask, unless each partition has one."""
        super().open()
        if not self._by_partition:
            self._of(_WHOLE)

    def know(self, partitions: Iterable[str]) -> None:
        """Take the partitions that there are now; those that are over have no generator."""
        if not self._by_partition:
            return
        known = list(partitions)
        owned = {name for name in known if self._owns(name)}
        for name in sorted(owned):
            self._of(name)
        for name in [name for name in self._generated if name not in owned]:
            del self._generated[name]
            self._combined.remove(name)
        self._owns_none = bool(known) and not owned

    def _owns(self, partition: str) -> bool:
        return partition_owner(partition, self.node.parallelism) == self.facts.subtask

    def _of(self, name: str) -> _Generated:
        found = self._generated.get(name)
        if found is None:
            self._combined.add(name)
            silence = IdleTimer(self.facts.looks, self.function.idleness_ms)
            output = _Output(name, self._combined)
            found = self._generated[name] = _Generated(self._supplied(), output, silence)
        return found

    def _supplied(self) -> Any:
        supplier: Callable[..., Any] = self.function.generator
        context = GeneratorContext(self.metrics.group)
        generator = self._call(supplier, *([context] if _takes_context(supplier) else []))
        missing = [name for name in _METHODS if not hasattr(generator, name)]
        if missing:
            msg = (
                f"operator '{self.node.name}': the supplier of watermark generators returned "
                f"{generator!r}, which has no {' and no '.join(missing)}"
            )
            raise UsageError(msg)
        return generator

    def process(self, chunk: Chunk, input_index: int) -> None:
        """Hand records on, then show them to the generators of their partitions."""
        self.records_in += len(chunk.values)
        stamps = assigned(self, chunk)
        self.emit(chunk.values, stamps)
        times = repeat(None) if stamps is None else stamps
        for v, t, name in zip(chunk.values, times, self._names(chunk)):  # noqa: B905 - repeat()
            if not self._by_partition or self._owns(name):
                made = self._of(name)
                made.heard = True
                try:
                    stamp = MIN_WATERMARK if t is None else t
                    made.generator.on_event(v, stamp, made.output)
                except BaseException as error:
                    raise self.failed(error, v) from None

    def _names(self, chunk: Chunk) -> Iterable[str]:
        if not self._by_partition:
            return repeat(_WHOLE)
        names: Sequence[str] = chunk.keys or ()
        return names

    def end_records(self) -> None:
        """Let generators speak at the end of the epoch; one that is silent for too long is idle."""
        for made in self._generated.values():
            if made.heard:
                made.heard = False
                made.silence.active()
            if made.silence.expired:
                made.output.mark_idle()
            else:
                self._call(made.generator.on_periodic_emit, made.output)
        self._combined.update()

    def output_time(self) -> tuple[int, bool]:
        """Return what the generators said; of what came before only the end counts."""
        if self.watermark == MAX_WATERMARK:
            return MAX_WATERMARK, False
        return self._combined.value, self._owns_none or self._combined.idle

    def idle_from_ms(self) -> int | None:
        """Return when silence makes a partition idle, which takes an epoch."""
        moments = (m.silence.due_ms() for m in self._generated.values() if not m.silence.expired)
        return min((moment for moment in moments if moment is not None), default=None)


def _takes_context(supplier: Callable[..., Any]) -> bool:
    try:
        inspect.signature(supplier).bind(None)
    except TypeError:
        return False
    except ValueError:
        # A callable that does not tell its arguments takes what Flink gives it.
        return True
    return True
