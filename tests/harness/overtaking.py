"""Shared by the tests of barriers that overtake rows: programs, and when the barrier does it."""

from __future__ import annotations

from collections import Counter

from weir.checkpoint.settings import CheckpointingMode, CheckpointSettings, Retention
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.state import ValueStateDescriptor
from weir.jobmanager.overtake import Outcome
from weir.testing.harness import HarnessOptions, JobHarness
from weir.testing.harness_slots import Hooks


class Total(KeyedProcessFunction):
    """Running totals per key: (key, number, total)."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value
        self.total.update(total)
        yield ctx.get_current_key(), value, total


class Count(KeyedProcessFunction):
    """Counts records per key: (record, count)."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield (*value, count)


class Overtake(Hooks):
    """Lets the barrier overtake at the n-th pause between two slices of an epoch, by subtask."""

    def __init__(self, at=1, subtask=None):
        self.at = at
        self.subtask = subtask
        self.harness = None
        self.outcomes = []
        self.then = lambda: None
        self._pauses = 0
        self._acts = {}

    def again(self, at):
        """Overtake once more, at a pause counted from here."""
        self.at, self._pauses = at, 0

    def on(self, label, act):
        """Act once, when a step is reached."""
        self._acts[label] = act

    def step(self, label):
        act = self._acts.pop(label, None)
        if act is not None:
            act()

    def paused(self, slot):
        if self.subtask not in (None, slot.subtask):
            return
        self._pauses += 1
        if self._pauses == self.at:
            self.outcomes.append(self.harness.overtake())
            self.then()

    @property
    def settled(self):
        return self.outcomes == [Outcome.SETTLED]


def settings(mode="unaligned", **others):
    at_least_once = mode == "at-least-once"
    return CheckpointSettings(
        retention=Retention.RETAIN_ON_CANCELLATION,
        unaligned=mode == "unaligned",
        mode=CheckpointingMode.AT_LEAST_ONCE if at_least_once else CheckpointingMode.EXACTLY_ONCE,
        **others,
    )


def job(env, hooks, parallelism=2, mode="unaligned", **options):
    """Start a job whose barriers overtake when the hooks say so; collected records wait."""
    options = {"wait_for_checkpoints": True, "checkpoints": settings(mode), **options}
    harness = JobHarness(env.build_graph(), parallelism, HarnessOptions(hooks=hooks, **options))
    hooks.harness = harness
    return harness.start()


def lost_and_extra(expected, found):
    expected, found = Counter(expected), Counter(found)
    return sum((expected - found).values()), sum((found - expected).values())
