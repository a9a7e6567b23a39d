"""Streams cut into windows, per key or as a whole.

These classes hold what a program says about its windows until a function ends the sentence; then
they declare one operator. Settings are made on the object itself, as in PyFlink. `result` turns the
operator back into a stream, so that this module stays below the stream classes, where the calls
have their types.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from weir.common.time import to_ms
from weir.common.typeinfo import TupleTypeInfo, TypeInformation, Types
from weir.datastream._checks import aggregate_field, require_type
from weir.datastream._plain_functions import PlainReduce, as_function, require_instance
from weir.datastream._stream import Stream, declared_type
from weir.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    CountAggregate,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from weir.errors import UsageError
from weir.graph import kinds
from weir.graph.output_tag import OutputTag
from weir.graph.transformation import Transformation
from weir.notices import warn_once
from weir.runtime.rolling import field_combiner, tuple_combiner
from weir.window.assigners import MergingWindowAssigner, WindowAssigner
from weir.window.counting import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from weir.window.evictors import Evictor
from weir.window.spec import COUNT, Calling, Contents, FieldAggregate, Holding, WindowSpec
from weir.window.triggers import Trigger, require_trigger

log = logging.getLogger("weir.datastream")
S = TypeVar("S", bound=Stream)
Self = TypeVar("Self", bound="Windows[Any]")


class Windows(Generic[S]):
    """What windows with and without keys have in common."""

    _apply_kind: ClassVar[type]
    _process_kind: ClassVar[type]
    _apply_call: ClassVar[Calling]
    _process_call: ClassVar[Calling]
    _title: ClassVar[str]

    def __init__(
        self, stream: Stream, window_assigner: Any, result: Callable[[Transformation], S]
    ) -> None:
        """Cut a keyed stream into the windows of an assigner."""
        require_type(window_assigner, WindowAssigner, "a WindowAssigner instance")
        self._stream = stream
        self._assigner: WindowAssigner[Any, Any] = window_assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor | None = None
        self._lateness_ms = 0
        self._late_tag: OutputTag | None = None
        self._result = result

    def get_execution_environment(self) -> Any:
        """Return the environment that the stream was created in."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the type of the records."""
        return self._stream.get_type()

    def trigger(self: Self, trigger: Trigger[Any, Any]) -> Self:
        """Let another trigger than the assigner's decide when windows fire."""
        self._check_trigger(require_trigger(trigger))
        self._trigger = trigger
        return self

    def evictor(self: Self, evictor: Evictor) -> Self:
        """Let an evictor remove records around the function; windows then hold all records."""
        require_type(evictor, Evictor, "an Evictor instance")
        self._evictor = evictor
        return self

    def allowed_lateness(self: Self, time_ms: Any) -> Self:
        """Keep windows so many milliseconds beyond their end, for late records."""
        lateness = to_ms(time_ms)
        if lateness < 0:
            msg = f"The allowed lateness cannot be negative, found {lateness} milliseconds"
            raise UsageError(msg)
        self._lateness_ms = lateness
        return self

    def side_output_late_data(self: Self, output_tag: OutputTag) -> Self:
        """Send records that come too late to a side output of the result."""
        require_type(output_tag, OutputTag, "an OutputTag")
        self._late_tag = output_tag
        return self

    def _reduce(self, function: Any, window_function: Any, output_type: Any) -> Transformation:
        reduction = as_function(function, ReduceFunction, PlainReduce)
        _warn_about_hooks(reduction, ReduceFunction)
        record_type = self._stream.record_type
        contents = Contents(Holding.REDUCED, reduction, record_type)
        if window_function is None and output_type is None:
            output_type = record_type
        return self._declare(contents, window_function, output_type)

    def _aggregate(
        self, function: Any, window_function: Any, accumulator_type: Any, output_type: Any
    ) -> Transformation:
        require_instance(function, "AggregateFunction")
        require_type(function, AggregateFunction, "an AggregateFunction")
        _warn_about_hooks(function, AggregateFunction)
        counts = type(function) is CountAggregate
        if counts:
            accumulator_type = Types.LONG() if accumulator_type is None else accumulator_type
            if window_function is None and output_type is None:
                output_type = Types.LONG()
        contents = Contents(
            Holding.AGGREGATED,
            function,
            declared_type(accumulator_type, "accumulator_type"),
            FieldAggregate(COUNT, None) if counts else None,
            record_type=self._stream.record_type,
        )
        return self._declare(contents, window_function, output_type)

    def _apply(self, function: Any, output_type: Any) -> Transformation:
        return self._whole(function, self._apply_kind, output_type)

    def _process(self, function: Any, output_type: Any) -> Transformation:
        return self._whole(function, self._process_kind, output_type)

    def _whole(self, function: Any, kind: type, output_type: Any) -> Transformation:
        require_instance(function, kind.__name__)
        require_type(function, kind, f"a {kind.__name__}")
        return self._declare(self._records(), function, output_type)

    def sum(self, position_to_sum: int | str = 0) -> S:
        """Emit, per window, the first record with the sum of a field."""
        return self._by_field("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> S:
        """Emit, per window, the first record with the least value of a field."""
        return self._by_field("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> S:
        """Emit, per window, the first record with the greatest value of a field."""
        return self._by_field("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> S:
        """Emit, per window, the record with the least value of a field, the first of equals."""
        return self._by_field("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> S:
        """Emit, per window, the record with the greatest value of a field, the first of equals."""
        return self._by_field("max_by", position_to_max_by)

    def _by_field(self, op: str, position: int | str) -> S:
        record_type = self._stream.record_type
        field = aggregate_field(op, position, record_type)
        if isinstance(record_type, TupleTypeInfo) and isinstance(field, int) and "_" not in op:
            function = PlainReduce(tuple_combiner(op, field))
        else:
            function = PlainReduce(field_combiner(op, field))
        aggregate = FieldAggregate(op, field)
        contents = Contents(Holding.REDUCED, function, record_type, aggregate)
        return self._result(self._declare(contents, None, record_type))

    def _records(self) -> Contents:
        return Contents(Holding.RECORDS, None, self._stream.record_type)

    def _declare(self, contents: Contents, function: Any, output_type: Any) -> Transformation:
        trigger = self._trigger
        if trigger is None:
            trigger = require_trigger(self._assigner.get_default_trigger(self._stream.env))
        self._check_trigger(trigger)
        if self._evictor is not None and contents.holding is not Holding.RECORDS:
            _warn_about_evictor(self._evictor)
        spec = WindowSpec(
            self._assigner,
            trigger,
            contents,
            self._calling(function),
            evictor=self._evictor,
            lateness_ms=self._lateness_ms,
            late_tag=self._late_tag,
        )
        return self._stream._declare(
            kinds.WINDOW,
            type(self._assigner).__name__,
            function=function,
            output_type=declared_type(output_type),
            options={"window": spec, "description": self._description(spec, function)},
        )

    def _check_trigger(self, trigger: Trigger[Any, Any]) -> None:
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            msg = (
                "A merging window assigner cannot be used with a trigger that does not support "
                f"merging: {self._assigner!r} with {trigger!r}"
            )
            raise TypeError(msg)

    def _calling(self, function: Any) -> Calling:
        if function is None:
            return Calling.PASS
        if isinstance(function, self._process_kind):
            return self._process_call
        if isinstance(function, self._apply_kind):
            return self._apply_call
        expected = f"{self._apply_kind.__name__} or {self._process_kind.__name__}"
        msg = f"window_function should be a {expected}, found {function!r}"
        raise TypeError(msg)

    def _description(self, spec: WindowSpec, function: Any) -> str:
        functions = [spec.contents.function, function]
        names = [type(f).__name__ for f in functions if f is not None]
        parts = [repr(spec.assigner), type(spec.trigger).__name__, *names]
        return f"{self._title}({', '.join(parts)})"


class WindowsByKey(Windows[S]):
    """A keyed stream cut into windows, each of one key."""

    _apply_kind = WindowFunction
    _process_kind = ProcessWindowFunction
    _apply_call = Calling.APPLY
    _process_call = Calling.PROCESS
    _title = "Window"


class WindowsOfAll(Windows[S]):
    """A whole stream cut into windows, which one subtask handles."""

    _apply_kind = AllWindowFunction
    _process_kind = ProcessAllWindowFunction
    _apply_call = Calling.APPLY_ALL
    _process_call = Calling.PROCESS_ALL
    _title = "AllWindow"


def _warn_about_hooks(function: Any, kind: type) -> None:
    """Say that windows do not open the function that makes their contents, as in PyFlink."""
    given = type(function)
    hooks = [name for name in ("open", "close") if getattr(given, name) is not getattr(kind, name)]
    if hooks:
        warn_once(
            log,
            f"windows do not call {' and '.join(hooks)} of {given.__name__}, only what a "
            f"{kind.__name__} has beside them; use a window function for what needs them",
        )


def _warn_about_evictor(evictor: Evictor) -> None:
    """Say that windows no longer hold one value each, as in Flink."""
    warn_once(
        log,
        f"windows with {type(evictor).__name__} hold all of their records: what reduces or "
        "aggregates them runs over those that are left, at every firing",
    )


def count_windows(size: int, slide: int) -> Any:
    """Return what assigns windows of so many records; without a slide they do not overlap."""
    if slide == 0:
        return CountTumblingWindowAssigner(size)
    return CountSlidingWindowAssigner(size, slide)
