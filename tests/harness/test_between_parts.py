"""A checkpoint is written, completed and given back while the next epoch is being handled."""

from __future__ import annotations

import threading

import pytest
from tests.harness.programs import environment, started

from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from weir.testing.campaign_backends import BACKENDS, settings_of
from weir.testing.harness import collect

LONG_S = 30.0
SHARED = {}


class Totals(KeyedProcessFunction):
    """Every kind of entry changes with every record."""

    def open(self, runtime_context):
        long = Types.LONG()
        self.total = runtime_context.get_state(ValueStateDescriptor("total", long))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", long))
        self.parity = runtime_context.get_map_state(MapStateDescriptor("parity", long, long))

    def process_element(self, value, ctx):
        SHARED["before"](value)
        total = (self.total.value() or 0) + value
        self.total.update(total)
        self.seen.add(value)
        self.parity.put(value % 2, (self.parity.get(value % 2) or 0) + 1)
        yield ctx.get_current_key(), total, list(self.seen.get()), sorted(self.parity.items())


def expected(numbers):
    seen = {}
    for n in numbers:
        mine = seen.setdefault(n % 3, [])
        mine.append(n)
        odd = sum(k % 2 for k in mine)
        counts = [(0, len(mine) - odd), (1, odd)]
        yield n % 3, sum(mine), list(mine), [c for c in counts if c[1]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_is_that_of_the_moment_and_goes_on(backend):
    SHARED["before"] = lambda value: None
    env = environment()
    numbers = env.from_sequence(1, 40)
    collect(numbers.key_by(lambda n: n % 3).process(Totals()).uid("totals"))
    harness = started(env, 1, partitions=1, deferred=True, backend=settings_of(backend))
    harness.run_epoch(take=12, checkpoint=True)
    writing = threading.Thread(target=harness.run_async)

    def before(value):
        """From the second record on, let the async phase come as far as it can."""
        if value == 14:
            writing.start()
        service = harness.slots.slots[0].service
        while value >= 14 and writing.is_alive() and not service.waiting:
            writing.join(0.001)

    SHARED["before"] = before
    harness.run_epoch(take=12)
    writing.join(LONG_S)
    assert not writing.is_alive()
    assert [ref.checkpoint_id for ref in harness.runner.coordinator.completed] == [1]

    SHARED["before"] = lambda value: None
    harness.run_epoch(take=4)
    harness.kill_slot(0)
    harness.fail_over()
    harness.run()
    right = list(expected(range(1, 41)))
    assert harness.collected() == right[:28] + right[12:]
