"""The registry of slots: one start per slot, fencing by attempt, leases."""

from __future__ import annotations

import pytest

from weir.jobmanager.registry import STARTING_LEASES, SlotRegistry
from weir.slot.messages import LOST, Hello, Register, SlotFailure
from weir.testing import ManualClock

LEASE_MS = 10_000


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def registry(clock):
    made = SlotRegistry(clock, LEASE_MS)
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


def test_a_slot_that_is_started_and_never_speaks_fails_the_attempt(registry, clock):
    assert registry.locate(0, 0, 0).status == "start"
    clock.advance(STARTING_LEASES * LEASE_MS)
    assert registry.locate(0, 0, 0).status == "wait"
    clock.advance(1)
    found = registry.locate(0, 0, 0)
    assert (found.status, "never spoke" in found.message) == ("failed", True)


def test_a_slot_that_falls_silent_while_it_restores_fails_the_attempt(registry, clock):
    registry.locate(0, 0, 0)
    assert registry.hello(Hello(0, 0, 1, "host", "log"))
    clock.advance(LEASE_MS)
    assert registry.heartbeat(0, 0)
    clock.advance(LEASE_MS)
    assert registry.notice_lapsed() is None
    clock.advance(1)
    assert "began to restore" in registry.notice_lapsed().message


def test_a_process_that_is_seen_to_be_gone_is_a_lost_slot(registry):
    registry.locate(0, 0, 0)
    registry.started(0, 0, 4711)
    assert registry.all()[0].process == 4711
    assert registry.fail(SlotFailure(0, 0, LOST, "its process 4711 ended"))
    assert registry.locate(0, 0, 0).status == "failed"


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
    clock.advance(LEASE_MS // 2)
    assert registry.notice_lapsed() is None
    assert registry.heartbeat(0, 0)
    clock.advance(LEASE_MS + 1)
    assert registry.notice_lapsed().subtask == 0


def test_a_closed_registry_refuses_everybody(registry):
    ready(registry)
    assert len(registry.close()) == 1
    assert registry.locate(0, 0, 0).status == "fenced"
    assert not registry.heartbeat(0, 0)


class Seen:
    """Processes of which it is known that they end, and how."""

    def has_ended(self, slot, patience_s=0.0):
        return slot.process is not None

    def explain(self, slot, attempt, patience_s):
        return f"; process {slot.pid} of attempt {attempt} is gone after {patience_s} s"


@pytest.fixture
def seeing(clock):
    made = SlotRegistry(clock, LEASE_MS, Seen())
    made.begin_attempt(0)
    return made


def test_what_others_lost_is_explained_by_who_knows_the_process(seeing):
    ready(seeing)
    assert seeing.fail(SlotFailure(0, 0, LOST, "Stream removed"))
    said = "Stream removed; process 100 of attempt 0 is gone after 1.0 s"
    assert seeing.failure.message == said


def test_what_a_slot_says_itself_needs_no_explanation(seeing):
    ready(seeing)
    assert seeing.fail(SlotFailure(0, 0, "UserFunctionError", "boom"))
    assert seeing.failure.message == "boom"


def test_a_lease_that_ran_out_is_explained_without_waiting(seeing, clock):
    ready(seeing)
    clock.advance(LEASE_MS + 1)
    assert seeing.notice_lapsed().message.endswith("is gone after 0.0 s")


def test_who_waits_for_a_slot_learns_at_once_that_its_process_ended(seeing, clock):
    seeing.locate(0, 0, 0)
    seeing.started(0, 0, 100)
    clock.advance(1000)
    found = seeing.locate(0, 0, 10)
    assert found.status == "failed"
    assert found.message.startswith("it ended before it was ready; process None of attempt 0")


def test_who_looks_because_something_failed_finds_the_slot_that_was_lost_before(seeing):
    seeing.locate(0, 0, 0)
    seeing.started(0, 0, 100)
    seeing.look()
    assert seeing.failure is None  # It looks now and then.
    seeing.look_now()
    assert (seeing.failure.subtask, seeing.failure.kind) == (0, LOST)


def test_a_slot_that_ended_after_its_attempt_was_not_lost_by_the_next_one(clock):
    class Ending(Seen):
        """An attempt begins while somebody looks at the slots of the one before."""

        def has_ended(self, slot, patience_s=0.0):
            made.begin_attempt(1)
            return True

    made = SlotRegistry(clock, LEASE_MS, Ending())
    made.begin_attempt(0)
    ready(made)
    made.look_now()
    assert made.failure is None
