"""What a program says about windows: types, names, descriptions, and which functions fit."""

from __future__ import annotations

import pytest

from weir.common import Types
from weir.datastream import (
    AggregateFunction,
    AllWindowFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from weir.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from weir.window.spec import Calling, Holding

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


def stream():
    return StreamExecutionEnvironment().from_collection([], PAIR)


def keyed():
    return stream().key_by(lambda v: v[0], Types.STRING())


class Sum(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[1]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Apply(WindowFunction):
    def apply(self, key, window, inputs):
        return inputs


class Process(ProcessWindowFunction):
    def process(self, key, context, elements):
        return elements


class ApplyAll(AllWindowFunction):
    def apply(self, window, inputs):
        return inputs


class ProcessAll(ProcessAllWindowFunction):
    def process(self, context, elements):
        return elements


def add(a, b):
    return a[0], a[1] + b[1]


def tumbling(*, whole=False):
    assigner = TumblingEventTimeWindows.of(5)
    return stream().window_all(assigner) if whole else keyed().window(assigner)


def declared(result):
    """Return the operator that a program ends with."""
    return result.get_execution_environment().build_graph().transformations[-1]


# call: the windows, what they hold and its type, who gets it, the type of the results
CALLS = {
    "reduce": (lambda w: w.reduce(add), Holding.REDUCED, PAIR, Calling.PASS, PAIR),
    "reduce, typed": (
        lambda w: w.reduce(add, output_type=Types.LONG()),
        Holding.REDUCED,
        PAIR,
        Calling.PASS,
        Types.LONG(),
    ),
    "reduce, apply": (lambda w: w.reduce(add, Apply()), Holding.REDUCED, PAIR, Calling.APPLY, None),
    "reduce, process": (
        lambda w: w.reduce(add, Process(), PAIR),
        Holding.REDUCED,
        PAIR,
        Calling.PROCESS,
        PAIR,
    ),
    "aggregate": (lambda w: w.aggregate(Sum()), Holding.AGGREGATED, None, Calling.PASS, None),
    "aggregate, typed": (
        lambda w: w.aggregate(Sum(), Process(), Types.LONG(), PAIR),
        Holding.AGGREGATED,
        Types.LONG(),
        Calling.PROCESS,
        PAIR,
    ),
    "aggregate, list of types": (
        lambda w: w.aggregate(Sum(), accumulator_type=[Types.INT(), Types.STRING()]),
        Holding.AGGREGATED,
        Types.ROW([Types.INT(), Types.STRING()]),
        Calling.PASS,
        None,
    ),
    "apply": (lambda w: w.apply(Apply()), Holding.RECORDS, PAIR, Calling.APPLY, None),
    "process": (lambda w: w.process(Process(), PAIR), Holding.RECORDS, PAIR, Calling.PROCESS, PAIR),
    "sum": (lambda w: w.sum(1), Holding.REDUCED, PAIR, Calling.PASS, PAIR),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_windows_hold_and_who_gets_it(call):
    build, holding, held, calling, results = CALLS[call]
    operator = declared(build(tumbling()))
    spec = operator.options["window"]
    assert (spec.contents.holding, spec.calling) == (holding, calling)
    assert spec.contents.value_type == held
    assert operator.output_type == results


ALL_CALLS = {
    "reduce": (lambda w: w.reduce(add), Calling.PASS, PAIR),
    "reduce, apply": (lambda w: w.reduce(add, ApplyAll()), Calling.APPLY_ALL, None),
    "aggregate, process": (lambda w: w.aggregate(Sum(), ProcessAll()), Calling.PROCESS_ALL, None),
    "apply": (lambda w: w.apply(ApplyAll(), PAIR), Calling.APPLY_ALL, PAIR),
    "process": (lambda w: w.process(ProcessAll()), Calling.PROCESS_ALL, None),
}


@pytest.mark.parametrize("call", ALL_CALLS)
def test_what_windows_of_a_whole_stream_are(call):
    build, calling, results = ALL_CALLS[call]
    operator = declared(build(tumbling(whole=True)))
    assert operator.options["window"].calling is calling
    assert operator.output_type == results


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: tumbling().reduce(add, ApplyAll()),
            "window_function should be a WindowFunction or ProcessWindowFunction",
        ),
        (
            lambda: tumbling().aggregate(Sum(), lambda k, w, e: e),
            "window_function should be a WindowFunction or ProcessWindowFunction",
        ),
        (
            lambda: tumbling(whole=True).reduce(add, Process()),
            "window_function should be a AllWindowFunction or ProcessAllWindowFunction",
        ),
        (lambda: tumbling().apply(Process()), "WindowFunction"),
        (lambda: tumbling().process(Process), "add parentheses"),
        (lambda: tumbling(whole=True).process(Process()), "ProcessAllWindowFunction"),
        (lambda: tumbling().aggregate(Sum(), accumulator_type="LONG"), "accumulator_type"),
        (lambda: tumbling().process(Process(), "STRING"), "output_type"),
    ],
)
def test_functions_and_types_that_do_not_fit_are_refused(build, message):
    with pytest.raises(TypeError, match=message):
        build()


@pytest.mark.parametrize("whole", [False, True])
def test_settings_are_made_on_the_windows_themselves(whole):
    windows, tag = tumbling(whole=whole), OutputTag("late", PAIR)
    trigger, evictor = CountTrigger.of(3), CountEvictor.of(2)
    for change in (
        lambda: windows.trigger(trigger),
        lambda: windows.evictor(evictor),
        lambda: windows.allowed_lateness(7),
        lambda: windows.side_output_late_data(tag),
    ):
        assert change() is windows
    spec = declared(windows.sum(1)).options["window"]
    assert (spec.trigger, spec.evictor, spec.lateness_ms, spec.late_tag) == (
        trigger,
        evictor,
        7,
        tag,
    )


@pytest.mark.parametrize("whole", [False, True])
def test_windows_know_their_type_and_environment(whole):
    windows = tumbling(whole=whole)
    assert windows.get_input_type() == PAIR
    assert isinstance(windows.get_execution_environment(), StreamExecutionEnvironment)


@pytest.mark.parametrize(
    ("build", "name", "description"),
    [
        (
            lambda: tumbling().process(Process()),
            "TumblingEventTimeWindows",
            "Window(TumblingEventTimeWindows(5, 0), EventTimeTrigger, Process)",
        ),
        (
            lambda: tumbling(whole=True).aggregate(Sum(), ProcessAll()),
            "TumblingEventTimeWindows",
            "AllWindow(TumblingEventTimeWindows(5, 0), EventTimeTrigger, Sum, ProcessAll)",
        ),
        (
            lambda: keyed().window(SlidingEventTimeWindows.of(5000, 2000)).apply(Apply()),
            "SlidingEventTimeWindows",
            "Window(SlidingEventTimeWindows(5000, 2000, 0), EventTimeTrigger, Apply)",
        ),
        (
            lambda: keyed().window(EventTimeSessionWindows.with_gap(5000)).apply(Apply()),
            "EventTimeSessionWindows",
            "Window(EventTimeSessionWindows(5000), EventTimeTrigger, Apply)",
        ),
        (
            lambda: keyed().window(GlobalWindows.create()).trigger(CountTrigger.of(2)).sum(1),
            "GlobalWindows",
            "Window(GlobalWindows(), CountTrigger, PlainReduce)",
        ),
        (
            lambda: keyed().count_window(3).apply(Apply()),
            "CountTumblingWindowAssigner",
            "Window(CountTumblingWindowAssigner(3), PurgingTrigger, Apply)",
        ),
        (
            lambda: stream().count_window_all(2, 1).apply(ApplyAll()),
            "CountSlidingWindowAssigner",
            "AllWindow(CountSlidingWindowAssigner(2, 1), PurgingTrigger, ApplyAll)",
        ),
        (
            lambda: keyed().window(TumblingProcessingTimeWindows.of(5)).sum(1),
            "TumblingProcessingTimeWindows",
            "Window(TumblingProcessingTimeWindows(5, 0), ProcessingTimeTrigger, PlainReduce)",
        ),
    ],
)
def test_operators_are_named_and_described(build, name, description):
    operator = declared(build())
    assert operator.name == name
    assert operator.options["description"] == description


def test_windows_of_a_keyed_stream_as_a_whole_forget_its_keys():
    whole = keyed().window_all(TumblingEventTimeWindows.of(5)).process(ProcessAll())
    assert declared(whole).options["window"].calling is Calling.PROCESS_ALL
