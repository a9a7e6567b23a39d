"""Epochs that are too large for the memory they may have, and functions that never stop."""

from __future__ import annotations

import sys

import pytest
from tests.harness.overtaking import Count, Overtake, Total, job, lost_and_extra
from tests.harness.programs import environment, run, started

from weir.common.typeinfo import Types
from weir.errors import JobExecutionError, UserFunctionError
from weir.jobmanager.restart import NoRestart
from weir.runtime import memory
from weir.runtime.memory import MemoryLimits
from weir.testing.harness import collect

NOTHING = MemoryLimits(held=0)
NUMBERS = 300


def totals(env, type_info=None):
    stream = env.from_sequence(1, NUMBERS).key_by(lambda n: n % 5).process(Total(), type_info)
    return collect(stream.uid("totals").key_by(lambda r: r[0]).process(Count()).uid("counts"))


def expected():
    sums, counts, found = {}, {}, []
    for n in range(1, NUMBERS + 1):
        key = n % 5
        sums[key] = sums.get(key, 0) + n
        counts[key] = counts.get(key, 0) + 1
        found.append((key, n, sums[key], counts[key]))
    return sorted(found)


@pytest.fixture
def spilled(monkeypatch):
    """Counts the payloads that went to files."""
    counted = []
    offload = memory.offload

    def counting(payloads, directory):
        counted.extend(payloads)
        return offload(payloads, directory)

    monkeypatch.setattr(memory, "offload", counting)
    return counted


@pytest.mark.parametrize("repeated", [False, True], ids=["once", "asked again"])
@pytest.mark.parametrize(
    "type_info",
    [None, Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])],
    ids=["pickled", "columns"],
)
def test_an_epoch_of_which_nothing_may_be_in_memory_gives_the_same(spilled, repeated, type_info):
    env = environment()
    handle = totals(env, type_info)
    harness = run(env, repeated=repeated, memory=NOTHING)
    assert sorted(harness.collected(handle)) == expected()
    assert spilled


def test_nothing_goes_to_files_by_default(spilled):
    env = environment()
    handle = totals(env)
    assert sorted(run(env).collected(handle)) == expected()
    assert not spilled


@pytest.mark.parametrize("at", [3, 40, 200])
def test_a_barrier_overtakes_rows_that_are_in_files(spilled, at):
    env = environment()
    handle = totals(env)
    hooks = Overtake(at)
    harness = job(env, hooks, memory=NOTHING)
    harness.run_epoch(checkpoint=True)
    assert hooks.settled
    harness.kill_slot(0)
    harness.fail_over()
    harness.run()
    assert lost_and_extra(expected(), harness.collected(handle)) == (0, 0)
    assert spilled


def test_output_without_end_fails_with_the_operators_name():
    env = environment()
    stream = env.from_sequence(1, 100).key_by(lambda n: n).process(Total()).name("doubling")
    collect(stream.key_by(lambda r: r[0]).process(Count()))
    harness = started(env, memory=MemoryLimits(output=500), restart=NoRestart())
    with pytest.raises(JobExecutionError, match=r"operator 'doubling' has sent .*output-limit"):
        harness.run()


class Leaving(Total):
    def process_element(self, value, ctx):
        if value == 7:
            sys.exit("enough")
        yield value


def test_a_function_that_ends_its_process_fails_the_job_with_operator_and_record():
    env = environment()
    stream = env.from_sequence(1, 10).key_by(lambda n: n % 2).process(Leaving())
    collect(stream.name("leaving"))
    harness = started(env, restart=NoRestart())
    with pytest.raises(UserFunctionError, match="'leaving' failed at record 7") as caught:
        harness.run()
    assert "SystemExit: enough" in str(caught.value)


def test_a_text_that_no_message_can_hold_is_told_all_the_same():
    class Broken(Total):
        def process_element(self, value, ctx):
            msg = "half a character: \ud800"
            raise ValueError(msg)
            yield

    env = environment()
    collect(env.from_sequence(1, 2).key_by(lambda n: n % 2).process(Broken()))
    with pytest.raises(UserFunctionError, match=r"half a character: \\ud800"):
        started(env, restart=NoRestart()).run()
