"""The registry of slots: one start per slot, fencing by attempt, leases."""

from __future__ import annotations

import pytest

from weir.jobmanager.registry import START_PATIENCE_MS, SlotRegistry
from weir.slot.messages import Hello, Register, SlotFailure
from weir.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def registry(clock):
    made = SlotRegistry(clock)
    made.begin_attempt(0)
    return made


def ready(registry, subtask=0, attempt=0):
    registry.locate(attempt, subtask, 0)
    assert registry.hello(Hello(attempt, subtask, 100 + subtask, "host", "log"))
    assert registry.register(Register(attempt, subtask, f"unix{subtask}", "", []))


def test_exactly_one_pipe_is_told_to_start_a_slot(registry):
    assert registry.locate(0, 0, 0).status == "start"
    assert registry.locate(0, 0, 0).status == "wait"
    assert registry.locate(0, 1, 0).status == "start"


def test_a_start_that_leads_to_nothing_is_given_to_another_pipe(registry, clock):
    assert registry.locate(0, 0, 0).status == "start"
    clock.advance(START_PATIENCE_MS + 1)
    assert registry.locate(0, 0, 0).status == "start"


def test_a_registered_slot_is_found(registry):
    ready(registry)
    found = registry.locate(0, 0, 0)
    assert (found.status, found.unix) == ("ready", "unix0")


def test_addresses_are_known_when_all_slots_take_epochs(registry):
    ready(registry)
    assert registry.addresses(0, 2) is None
    ready(registry, subtask=1)
    assert registry.addresses(0, 2) == ["unix0", "unix1"]
    assert registry.addresses(1, 2) is None


def test_addresses_are_those_that_other_hosts_reach(registry):
    registry.locate(0, 0, 0)
    registry.hello(Hello(0, 0, 1, "host", "log"))
    registry.register(Register(0, 0, "unix", "tcp", []))
    assert registry.addresses(0, 1) == ["tcp"]


def test_a_failed_attempt_has_no_addresses(registry):
    ready(registry)
    registry.fail(SlotFailure(0, 0, "SlotLost", "gone"))
    assert registry.addresses(0, 1) is None


def test_a_second_process_for_one_slot_is_not_wanted(registry):
    registry.locate(0, 0, 0)
    assert registry.hello(Hello(0, 0, 1, "host", "log"))
    assert not registry.hello(Hello(0, 0, 2, "host", "log"))


def test_a_new_attempt_fences_everything_of_the_old_one(registry):
    ready(registry)
    old = registry.begin_attempt(1)
    assert [slot.pid for slot in old] == [100]
    assert registry.locate(0, 0, 0).status == "fenced"
    assert not registry.heartbeat(0, 0)
    assert not registry.hello(Hello(0, 0, 5, "host", "log"))
    assert not registry.fail(SlotFailure(0, 0, "internal", "late"))
    assert registry.failure is None


def test_the_first_failure_of_an_attempt_is_its_cause(registry):
    assert registry.fail(SlotFailure(0, 0, "UserFunctionError", "first"))
    assert not registry.fail(SlotFailure(0, 1, "SlotLost", "second"))
    assert registry.locate(0, 1, 0).status == "failed"
    assert registry.failure.message == "first"


def test_silent_slots_are_noticed_after_their_lease(registry, clock):
    ready(registry)
    clock.advance(5000)
    assert registry.silent(10_000) == []
    assert registry.heartbeat(0, 0)
    clock.advance(10_001)
    assert [slot.subtask for slot in registry.silent(10_000)] == [0]


def test_a_closed_registry_refuses_everybody(registry):
    ready(registry)
    assert len(registry.close()) == 1
    assert registry.locate(0, 0, 0).status == "fenced"
    assert not registry.heartbeat(0, 0)
