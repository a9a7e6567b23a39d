"""A program with a queryable state of every kind, and what they must hold."""

from __future__ import annotations

from tests.harness.programs import environment, started

from weir.common import Time
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.functions import AggregateFunction
from weir.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from weir.queryable.queries import StateQueries
from weir.queryable.settings import QueryLimits
from weir.testing.harness import collect

KEYS = 7
TTL_MS = 1000
KINDS = ("total", "seen", "parity", "sum", "mean", "expiring")


class Mean(AggregateFunction):
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])


def add(a, b):
    return a + b


def descriptors():
    """A descriptor of every kind, whose names for queries are q-NAME."""
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    made = {
        "total": ValueStateDescriptor("total", Types.LONG()),
        "seen": ListStateDescriptor("seen", Types.LONG()),
        "parity": MapStateDescriptor("parity", Types.STRING(), Types.LONG()),
        "sum": ReducingStateDescriptor("sum", add, Types.LONG()),
        "mean": AggregatingStateDescriptor("mean", Mean(), pair),
        "expiring": ValueStateDescriptor("expiring", Types.STRING()),
    }
    made["expiring"].enable_time_to_live(
        StateTtlConfig.new_builder(Time.milliseconds(TTL_MS)).build()
    )
    for name, descriptor in made.items():
        descriptor.set_queryable(f"q-{name}")
    return made


class Everything(KeyedProcessFunction):
    def open(self, runtime_context):
        made = descriptors()
        self.total = runtime_context.get_state(made["total"])
        self.seen = runtime_context.get_list_state(made["seen"])
        self.parity = runtime_context.get_map_state(made["parity"])
        self.sum = runtime_context.get_reducing_state(made["sum"])
        self.mean = runtime_context.get_aggregating_state(made["mean"])
        self.expiring = runtime_context.get_state(made["expiring"])
        self.hidden = runtime_context.get_state(ValueStateDescriptor("hidden", Types.LONG()))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value)
        self.seen.add(value)
        name = "odd" if value % 2 else "even"
        self.parity.put(name, (self.parity.get(name) or 0) + 1)
        self.sum.add(value)
        self.mean.add(value)
        self.expiring.update(f"last {value}")
        self.hidden.update(value)
        yield value


def program(numbers=60):
    env = environment()
    stream = env.from_sequence(1, numbers).uid("numbers")
    keyed = stream.key_by(lambda n: n % KEYS, Types.LONG())
    collect(keyed.process(Everything()).uid("everything").set_max_parallelism(16))
    return env


def job_of(numbers=60, parallelism=2, **options):
    return started(program(numbers), parallelism, **options)


def queries_of(job, **limits):
    return StateQueries(job.supervisor, QueryLimits(**limits), pause=lambda seconds: None)


def expected(numbers, key):
    """What every state of a key holds after these numbers; None where there is nothing."""
    own = [n for n in numbers if n % KEYS == key]
    if not own:
        return dict.fromkeys(KINDS)
    odd = sum(n % 2 for n in own)
    parity = {"odd": odd, "even": len(own) - odd}
    return {
        "total": sum(own),
        "seen": own,
        "parity": {name: count for name, count in parity.items() if count},
        "sum": sum(own),
        "mean": sum(own) / len(own),
        "expiring": f"last {own[-1]}",
    }
