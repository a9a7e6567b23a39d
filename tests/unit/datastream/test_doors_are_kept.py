"""Every method that a door declares exists on what users are given behind it.

The doors are protocols and abstract classes that annotate users' functions. What the runtime hands
out does not inherit from them, so nothing but this table holds it to their word.
"""

from __future__ import annotations

import inspect

import pytest

import weir.datastream.functions
from weir.connector.bucket import BucketContext
from weir.connector.function_sink import InvokeContext
from weir.datastream import _checkpointed_functions as checkpointed
from weir.datastream._runtime_context import KeyedStateStore, RuntimeContext
from weir.datastream.functions import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    SinkFunction,
    SourceFunction,
)
from weir.datastream.timerservice import TimerService
from weir.datastream.window import Evictor, Trigger, WindowAssigner
from weir.runtime import async_wait, connected, context, interval_join, keyed, window_context
from weir.spark.function_source import JournalingContext
from weir.testing.harness_sources import CollectingContext

KEPT_BY = {
    SourceFunction.SourceContext: (JournalingContext, CollectingContext),
    SinkFunction.Context: (InvokeContext, BucketContext),
    KeyedStateStore: (
        context.KeyedStateStore,
        context.RuntimeContext,
        window_context.WindowStateStore,
    ),
    RuntimeContext: (context.RuntimeContext, async_wait.AsyncRuntimeContext),
    checkpointed.FunctionInitializationContext: (context.InitializationContext,),
    checkpointed.FunctionSnapshotContext: (context.SnapshotContext,),
    TimerService: (context.OperatorTimerService,),
    ProcessFunction.Context: (keyed.ElementContext,),
    KeyedProcessFunction.Context: (keyed.ElementContext,),
    KeyedProcessFunction.OnTimerContext: (keyed.TimerContext,),
    ProcessJoinFunction.Context: (interval_join.PairContext,),
    CoProcessFunction.Context: (keyed.ElementContext,),
    KeyedCoProcessFunction.Context: (keyed.ElementContext,),
    KeyedCoProcessFunction.OnTimerContext: (keyed.TimerContext,),
    BaseBroadcastProcessFunction.BaseContext: (connected.BroadcastContext,),
    BaseBroadcastProcessFunction.Context: (connected.BroadcastContext,),
    BaseBroadcastProcessFunction.ReadOnlyContext: (connected.ReadOnlyContext,),
    BroadcastProcessFunction.Context: (connected.BroadcastContext,),
    BroadcastProcessFunction.ReadOnlyContext: (connected.ReadOnlyContext,),
    KeyedBroadcastProcessFunction.Context: (connected.BroadcastContext,),
    KeyedBroadcastProcessFunction.ReadOnlyContext: (connected.ReadOnlyContext,),
    KeyedBroadcastProcessFunction.OnTimerContext: (connected.BroadcastTimerContext,),
    ProcessWindowFunction.Context: (window_context.WindowFunctionContext,),
    ProcessAllWindowFunction.Context: (window_context.WindowFunctionContext,),
    Trigger.TriggerContext: (window_context.WindowTriggerContext,),
    Trigger.OnMergeContext: (window_context.WindowTriggerContext,),
    WindowAssigner.WindowAssignerContext: (window_context.AssignerContext,),
    Evictor.EvictorContext: (window_context.EvictionContext,),
}

PAIRS = [(door, kept) for door, classes in KEPT_BY.items() for kept in classes]


def declared(door):
    """Public methods of a door and of the doors that it extends, by name."""
    own = [c for c in door.__mro__ if c.__module__.startswith("weir.")]
    names = {name for c in own for name in vars(c) if not name.startswith("_")}
    return {name: getattr(door, name) for name in names if callable(getattr(door, name))}


def name_of(value):
    return value.__qualname__


@pytest.mark.parametrize(("door", "kept"), PAIRS, ids=name_of)
def test_what_a_door_declares_can_be_called(door, kept):
    methods = declared(door)
    assert methods
    missing = [name for name in methods if not callable(getattr(kept, name, None))]
    assert missing == []


@pytest.mark.parametrize(("door", "kept"), PAIRS, ids=name_of)
def test_arguments_have_the_names_that_the_door_gives_them(door, kept):
    """A caller may pass them by name; what is behind may take more, if that has defaults."""
    for name, method in declared(door).items():
        promised = list(inspect.signature(method).parameters)
        found = inspect.signature(getattr(kept, name)).parameters
        assert list(found)[: len(promised)] == promised, name
        further = list(found.values())[len(promised) :]
        assert all(p.default is not inspect.Parameter.empty for p in further), name


def doors_of(function):
    """The contexts that a class of functions declares for its methods."""
    nested = [value for value in vars(function).values() if inspect.isclass(value)]
    return [value for value in nested if value.__module__.startswith("weir.datastream")]


def test_every_context_of_every_function_is_in_the_table():
    functions = [getattr(weir.datastream.functions, n) for n in weir.datastream.functions.__all__]
    doors = {door for f in functions if inspect.isclass(f) for door in doors_of(f)}
    named = {f for f in functions if inspect.isclass(f) and f.__name__.endswith("Context")}
    assert doors | named <= set(KEPT_BY)
    assert len(doors) > 10
