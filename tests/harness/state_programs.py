"""A program with every kind of keyed and operator state, whose output shows all of it."""

from __future__ import annotations

from tests.harness.programs import environment

from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.checkpoint.store import load_checkpoint
from weir.common import Row, Time
from weir.common.time import Instant
from weir.common.typeinfo import Types
from weir.datastream import CheckpointedFunction, KeyedProcessFunction
from weir.datastream.functions import AggregateFunction, ReduceFunction
from weir.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from weir.jobmanager.recovery import RestorePoint
from weir.storage.local import LocalStorage
from weir.testing.harness import HarnessOptions, JobHarness, collect

RETAINED = CheckpointSettings(retention=Retention.RETAIN_ON_CANCELLATION, num_retained=3)
STATES = ("total", "expiring", "many", "by_name", "reduced", "mean", "anything", "_timer.event")
POINT = Types.ROW_NAMED(
    ["at", "big", "tags"], [Types.INSTANT(), Types.BIG_INT(), Types.LIST(Types.STRING())]
)


class Sum(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 + value2


class Mean(AggregateFunction):
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


class EveryKind(KeyedProcessFunction, CheckpointedFunction):
    """Emits for each number what all states of its key hold."""

    def open(self, runtime_context):
        get = runtime_context
        expiring = ValueStateDescriptor("expiring", Types.STRING())
        expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.total = get.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.expiring = get.get_state(expiring)
        self.many = get.get_list_state(ListStateDescriptor("many", Types.DOUBLE()))
        self.by_name = get.get_map_state(MapStateDescriptor("by_name", Types.STRING(), POINT))
        self.reduced = get.get_reducing_state(
            ReducingStateDescriptor("reduced", Sum(), Types.LONG())
        )
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.mean = get.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), pair))
        self.anything = get.get_state(ValueStateDescriptor("anything", None))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value)
        self.expiring.update(f"{self.expiring.value() or ''}{value % 10}")
        self.many.add(value / 2)
        point = Row(at=Instant(value, 5), big=10**20 + value, tags=["x"] * (value % 3))
        self.by_name.put(f"n{value % 4}", point)
        self.reduced.add(value)
        self.mean.add(value)
        self.anything.update({"last": value, "seen": (self.anything.value() or {}).get("last")})
        ctx.timer_service().register_event_time_timer(1000 + value)
        self.buffered.append(value)
        yield self.shown(ctx.get_current_key(), "record")

    def on_timer(self, timestamp, ctx):
        yield self.shown(ctx.get_current_key(), f"timer {timestamp}")

    def shown(self, key, why):
        names = sorted((name, repr(point)) for name, point in self.by_name.items())
        return (
            key,
            why,
            self.total.value(),
            self.expiring.value(),
            tuple(self.many.get()),
            tuple(names),
            (self.reduced.get(), self.mean.get()),
            repr(self.anything.value()),
        )

    def initialize_state(self, context):
        self.kept = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("buffer", Types.LONG())
        )
        self.buffered = list(self.kept.get())

    def snapshot_state(self, context):
        self.kept.update(self.buffered)


def every_kind(numbers=40, keys=7, key_type=None, max_parallelism=None):
    env = environment()
    if max_parallelism is not None:
        env.set_max_parallelism(max_parallelism)
    key = key_type or Types.LONG()
    select = (lambda n: f"k{n % keys}") if key == Types.STRING() else (lambda n: n % keys)
    stream = env.from_sequence(1, numbers).uid("numbers").key_by(select, key)
    collect(stream.process(EveryKind()).uid("kinds"))
    return env


def run_job(env, root, parallelism, restore=None, **options):
    chosen = {"storage": LocalStorage(str(root)), "checkpoints": RETAINED, **options}
    graph = env.build_graph()
    return JobHarness(graph, parallelism, HarnessOptions(**chosen), restore).start()


def released(harness):
    return sorted(record for records in harness.results.released.values() for record in records)


def restore_point(root, place):
    """Return what a job in the harness starts from; its storage begins at `root`."""
    directory = str(place).removeprefix("file://").removeprefix(f"{root}/")
    metadata = load_checkpoint(LocalStorage(str(root)), directory)
    return RestorePoint(f"file://{root}", directory, metadata)
