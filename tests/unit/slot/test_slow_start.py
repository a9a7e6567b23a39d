"""What a slot says that starts for long, or has no memory left: where it is, who holds most."""

from __future__ import annotations

import logging
import threading

import pytest
from tests.harness.programs import environment, started
from tests.harness.querying import job_of

from weir.datastream import KeyedProcessFunction
from weir.runtime.whereabouts import most_state
from weir.slot.main import SlowStart
from weir.slot.service import out_of_memory
from weir.testing.campaign_backends import settings_of
from weir.testing.harness import collect


def test_a_slot_that_starts_for_long_says_where_it_is_ever_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = SlowStart(1000, started_ms=500)
    said = []
    with caplog.at_level(logging.WARNING, "weir.slot"):
        for second in range(20):
            start.look(500 + second * 1000)
            said += [second] * len(caplog.records)
            caplog.clear()
    assert said == [3, 6, 12]


class Slow(KeyedProcessFunction):
    """Takes long in `open`, where the thread that keeps the lease looks at it."""

    def open(self, runtime_context):
        start = SlowStart(1000, started_ms=0)
        looking = threading.Thread(target=start.look, args=(4000,))
        looking.start()
        looking.join()

    def process_element(self, value, ctx):
        yield value


def test_a_slow_start_names_the_operator_and_the_place_in_its_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = environment()
    collect(env.from_sequence(1, 3).key_by(lambda n: n).process(Slow()).name("slow one"))
    started(env, 1).end_slots()
    assert "has been starting for 4 s: operator 'slow one', in open (test_slow_start" in caplog.text


def test_a_slow_start_outside_of_operators_says_so(caplog: pytest.LogCaptureFixture) -> None:
    SlowStart(1000, started_ms=0).look(4000)
    assert "has been starting for 4 s: in no operator" in caplog.text


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "hashmap-changelog"])
def test_who_holds_most_state_is_named_when_memory_runs_out(backend: str) -> None:
    job = job_of(numbers=200, backend=settings_of(backend))
    job.run_epoch()
    service = job.slots.slots[0].service
    assert service is not None
    most = service.most_state()
    assert most.startswith("most state: operator '")
    assert most.endswith(" MB")
    failure = out_of_memory(3, 0, "it uses 9 MB", most)
    assert failure.message == f"it uses 9 MB; no operator was at work; {most}"
    job.end_slots()


def test_without_state_nobody_holds_most() -> None:
    assert most_state([]) == ""
