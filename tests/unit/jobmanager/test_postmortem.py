"""How the end of a slot's process is told."""

from __future__ import annotations

import os

import pytest

from weir.jobmanager.gateway import FlightNetwork, SlotPlace
from weir.jobmanager.postmortem import (
    HostProcesses,
    OomKills,
    count_in,
    describe,
    how_it_ended,
    is_stopped,
)
from weir.jobmanager.registry import SlotRegistry
from weir.slot.messages import LOST, Hello, Register, SlotFailure
from weir.testing import ManualClock

NOBODY = 4_194_304 + 1
"""No process has this number: it is beyond the highest one."""


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "ended"),
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (137, "was killed by SIGKILL"),
        (139, "was killed by SIGSEGV"),
        (128 + 99, "was killed by signal 99"),
    ],
)
def test_a_status_is_told_in_words(status, text):
    assert how_it_ended(status, starved=False) == text


def test_only_sigkill_is_put_down_to_a_lack_of_memory():
    assert "probably by the kernel because memory was out" in how_it_ended(137, starved=True)
    assert "memory" not in how_it_ended(139, starved=True)


def test_the_kernel_ending_processes_for_memory_is_seen_once():
    counts = iter([3, 3, 4, 4])
    kills = OomKills(lambda: next(counts))
    assert [kills.happened() for _ in range(3)] == [False, True, False]


def test_a_kernel_that_does_not_count_says_nothing():
    counts = iter([None, None, 4])
    kills = OomKills(lambda: next(counts))
    assert [kills.happened() for _ in range(2)] == [False, False]


def test_the_kernels_files_are_read():
    assert count_in("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n") == 1
    assert count_in("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n") == 12
    assert count_in("nr_free_pages 1\n") is None


def test_the_end_of_the_log_is_shown_without_the_note_of_the_shell(tmp_path):
    log = tmp_path / "slot.log"
    lines = [f"line {n}\n" for n in range(9)]
    log.write_text("".join(lines) + "the process of the slot ended with status 3\n")
    assert describe(7, str(log), OomKills(lambda: 0)) == (
        "; its process 7 ended with exit code 3; its log ends with:\n"
        "line 4\nline 5\nline 6\nline 7\nline 8"
    )


def test_this_process_is_not_stopped():
    assert not is_stopped(os.getpid())
    assert not is_stopped(NOBODY)


@pytest.fixture
def network(tmp_path):
    clock = ManualClock()
    place = SlotPlace(tmp_path / "sockets", tmp_path, local=True)
    registry = SlotRegistry(clock, 10_000, HostProcesses(place.host, place.log_dir, clock))
    registry.begin_attempt(0)
    return FlightNetwork(registry, clock, place)


def start(network, status=""):
    """Let a slot be started whose process is gone already."""
    log = network.place.log_dir / "slot-0-attempt-0.log"
    log.write_text(f"begins\n{status}")
    network.registry.locate(0, 0, 0)
    network.registry.started(0, 0, NOBODY)
    return str(log)


KILLED = "the process of the slot ended with status 137\n"


def test_a_slot_that_ended_before_it_spoke_is_noticed_with_its_status_and_its_log(network):
    start(network, KILLED)
    network._clock.advance(200)
    network.watch()
    assert network.registry.failure.message == (
        f"it ended before it was ready; its process {NOBODY} was killed by SIGKILL; its log ends "
        "with:\nbegins"
    )


def test_a_connection_that_broke_off_is_told_with_the_end_of_the_process(network):
    log = start(network, KILLED)
    assert network.registry.hello(Hello(0, 0, NOBODY, network.host, log))
    assert network.registry.register(Register(0, 0, "unix", "", []))
    assert network.registry.fail(SlotFailure(0, 0, LOST, "Stream removed"))
    assert "Stream removed; its process" in network.registry.failure.message
    assert "was killed by SIGKILL" in network.registry.failure.message


def test_nothing_is_said_about_processes_of_other_hosts(network):
    log = start(network, KILLED)
    assert network.registry.hello(Hello(0, 0, NOBODY, "elsewhere", log))
    assert network.registry.fail(SlotFailure(0, 0, LOST, "Stream removed"))
    assert network.registry.failure.message == "Stream removed"
