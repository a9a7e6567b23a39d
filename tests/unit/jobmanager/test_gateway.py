"""Messages between slots and the JobManager are as long as state in memory may be."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from pyarrow import flight

from weir.errors import StorageError
from weir.jobmanager import gateway
from weir.jobmanager.gateway import FlightNetwork, Gateway, SlotPlace
from weir.jobmanager.registry import SlotRegistry
from weir.slot import service
from weir.slot.channel import TOKEN_BYTES, Channel, ChannelError, UnreachableError
from weir.slot.files import SlotFiles
from weir.slot.messages import LOST, Acknowledge, Hello, OperatorShare, Register
from weir.slot.service import refuse_too_long
from weir.slot.upload import Upload
from weir.snapshot import FileHandle
from weir.storage.memory import MemoryStorage
from weir.testing import ManualClock

OPERATORS = 8
STATE_BYTES = 5 << 20


class Kept:
    """A reception that keeps what it is told."""

    def acknowledge(self, message):
        self.message = message


def handles():
    return [FileHandle(f"state-{i}", STATE_BYTES, i, bytes(STATE_BYTES)) for i in range(OPERATORS)]


@pytest.mark.slow
def test_state_of_many_operators_passes_in_one_acknowledgement():
    token, kept = bytes(TOKEN_BYTES), Kept()
    with tempfile.TemporaryDirectory() as directory:
        location = f"grpc+unix://{os.path.join(directory, 's')}"
        served = Gateway(location, token, kept)
        channel = Channel(location, token)
        try:
            shares = [
                OperatorShare(f"op{i}", None, [], {}, layers=[h]) for i, h in enumerate(handles())
            ]
            channel.call_struct("acknowledge", Acknowledge(0, 0, 1, None, shares), 60.0)
        finally:
            channel.close()
            served.shutdown()
    assert sum(len(h.data) for p in kept.message.operators for h in p.layers) == 8 * STATE_BYTES


def test_more_than_a_message_can_take_is_refused_before_it_is_sent(monkeypatch):
    upload = Upload(SlotFiles(MemoryStorage(), "job", 0, 0))
    upload.file = handles()[0]
    refuse_too_long(upload)
    monkeypatch.setattr(service, "ACKNOWLEDGED_BYTES_MAX", STATE_BYTES - 1)
    with pytest.raises(
        StorageError, match=r"5242880 bytes.*5242879.*execution\.checkpointing\.dir"
    ):
        refuse_too_long(upload)


class Silent(flight.FlightServerBase):
    """A slot that takes a call and does not answer before it is allowed to."""

    def __init__(self):
        super().__init__("grpc://127.0.0.1:0")
        self.asked, self.allowed = threading.Event(), threading.Event()

    def do_action(self, context, action):
        if action.type == "complete":
            self.asked.set()
            assert self.allowed.wait(60)
        return [b"\x90"]


@pytest.fixture
def silent():
    server = Silent()
    yield server
    server.allowed.set()
    server.shutdown()


def network_of(clock, tmp_path, *locations, processes=None):
    """Return how a job speaks to its slots, which are on another host."""
    registry = SlotRegistry(clock, 10_000, processes)
    registry.begin_attempt(0)
    for subtask, location in enumerate(locations):
        registry.locate(0, subtask, 0)
        assert registry.hello(Hello(0, subtask, 1, "elsewhere", ""))
        assert registry.register(Register(0, subtask, "", location, []))
    return FlightNetwork(registry, clock, SlotPlace(tmp_path / "sockets", tmp_path, local=True))


@pytest.fixture
def committing(silent, tmp_path, monkeypatch):
    """A job whose one slot is silent in the middle of a commit."""
    monkeypatch.setattr(gateway, "_COMMIT_LOOK_S", 0.01)
    clock = ManualClock()
    network = network_of(clock, tmp_path, f"grpc://127.0.0.1:{silent.port}")
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(network.complete, 7)
        assert silent.asked.wait(30)
        yield network, commit, clock
        silent.allowed.set()


@pytest.mark.parametrize("end", ["next attempt", "end of the job"])
def test_failover_does_not_wait_for_the_commit_of_a_host_that_is_gone(committing, end):
    network, commit, clock = committing
    network.registry.begin_attempt(1) if end == "next attempt" else network.registry.close()
    # It has the time that a slot has to leave, from the moment when that is noticed.
    while not commit.done():
        clock.advance(1000)
        wait([commit], 0.05)
    with pytest.raises(ChannelError, match=r"complete at grpc://.*attempt 0 has been over"):
        commit.result()


def test_a_commit_of_the_current_attempt_may_take_long(committing, silent):
    _, commit, clock = committing
    clock.advance(300_000)
    assert not wait([commit], 0.1).done
    silent.allowed.set()
    assert commit.result(30) == []


def test_a_slot_that_is_gone_when_it_should_commit_is_lost(tmp_path):
    network = network_of(ManualClock(), tmp_path, f"grpc+unix://{tmp_path}/nobody")
    with pytest.raises(ChannelError):
        network.complete(7)
    failure, _ = network.registry.known_failure(0)
    assert (failure.subtask, failure.kind) == (0, LOST)
    assert "complete at" in failure.message


def test_slots_commit_at_once(silent, tmp_path):
    other = Silent()
    try:
        servers = (silent, other)
        locations = [f"grpc://127.0.0.1:{server.port}" for server in servers]
        network = network_of(ManualClock(), tmp_path, *locations)
        with ThreadPoolExecutor(1) as pool:
            commit = pool.submit(network.complete, 7)
            # Neither has answered when both are asked.
            assert all(server.asked.wait(30) for server in servers)
            for server in servers:
                server.allowed.set()
            assert commit.result(30) == []
    finally:
        other.allowed.set()
        other.shutdown()


class Refusing(flight.FlightServerBase):
    """A slot whose sink cannot commit."""

    def do_action(self, context, action):
        msg = "the disk is full"
        raise flight.FlightServerError(msg)


def test_a_slot_that_cannot_commit_is_not_lost(tmp_path):
    server = Refusing("grpc://127.0.0.1:0")
    try:
        network = network_of(ManualClock(), tmp_path, f"grpc://127.0.0.1:{server.port}")
        with pytest.raises(ChannelError, match="the disk is full"):
            network.complete(7)
        assert network.registry.known_failure(0) is None
    finally:
        server.shutdown()


class BreakingOff(flight.FlightServerBase):
    """A slot whose connections break off as those of a process do that is killed."""

    def do_action(self, context, action):
        msg = "Stream removed"
        raise flight.FlightInternalError(msg)


class Ended:
    """The process of every slot has ended."""

    def has_ended(self, slot, patience_s=0.0):
        return True

    def explain(self, slot, attempt, patience_s):
        return "; its process was killed by SIGKILL"


def test_a_slot_whose_process_ended_in_a_commit_is_lost_whatever_broke_off(tmp_path):
    server = BreakingOff("grpc://127.0.0.1:0")
    location = f"grpc://127.0.0.1:{server.port}"
    network = network_of(ManualClock(), tmp_path, location, processes=Ended())
    try:
        with pytest.raises(UnreachableError, match="Stream removed"):
            network.complete(7)
    finally:
        server.shutdown()
    failure, _ = network.registry.known_failure(0)
    assert (failure.subtask, failure.kind) == (0, LOST)
    assert "Stream removed" in failure.message
    assert failure.message.endswith("its process was killed by SIGKILL")


KILLED_IN_A_COMMIT = """
import os, signal
from pyarrow import flight

class Dying(flight.FlightServerBase):
    def do_action(self, context, action):
        os.kill(os.getpid(), signal.SIGKILL)

server = Dying("grpc://127.0.0.1:0")
print(server.port, flush=True)
server.serve()
"""


def test_a_slot_on_another_host_that_dies_in_a_commit_is_lost(tmp_path):
    program = [sys.executable, "-c", KILLED_IN_A_COMMIT]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as slot:
        location = f"grpc://127.0.0.1:{int(slot.stdout.readline())}"
        network = network_of(ManualClock(), tmp_path, location)
        with pytest.raises(UnreachableError, match="complete at"):
            network.complete(7)
    failure, _ = network.registry.known_failure(0)
    assert (failure.subtask, failure.kind) == (0, LOST)


def test_no_commit_is_under_way_when_another_one_has_been_refused(silent, tmp_path):
    refusing = Refusing("grpc://127.0.0.1:0")
    locations = [f"grpc://127.0.0.1:{server.port}" for server in (refusing, silent)]
    network = network_of(ManualClock(), tmp_path, *locations)
    try:
        with ThreadPoolExecutor(1) as pool:
            commit = pool.submit(network.complete, 7)
            assert silent.asked.wait(30)
            assert not wait([commit], 0.5).done
            silent.allowed.set()
            with pytest.raises(ChannelError, match="the disk is full"):
                commit.result(30)
    finally:
        refusing.shutdown()


def test_a_slot_that_is_gone_is_lost_at_once_though_another_one_commits(silent, tmp_path):
    locations = (f"grpc://127.0.0.1:{silent.port}", f"grpc+unix://{tmp_path}/nobody")
    network = network_of(ManualClock(), tmp_path, *locations)
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(network.complete, 7)
        assert silent.asked.wait(30)
        while network.registry.known_failure(0) is None:
            assert not wait([commit], 0.01).done
        failure, _ = network.registry.known_failure(0)
        assert (failure.subtask, failure.kind) == (1, LOST)
        silent.allowed.set()
        with pytest.raises(UnreachableError, match="nobody"):
            commit.result(30)


def test_a_lost_slot_goes_before_one_that_refuses(tmp_path):
    refusing = Refusing("grpc://127.0.0.1:0")
    locations = (f"grpc://127.0.0.1:{refusing.port}", f"grpc+unix://{tmp_path}/nobody")
    network = network_of(ManualClock(), tmp_path, *locations)
    try:
        with pytest.raises(UnreachableError, match="nobody"):
            network.complete(7)
    finally:
        refusing.shutdown()


def test_failover_waits_for_the_slots_that_answer_and_not_for_the_one_that_is_cut_off(
    silent, tmp_path, monkeypatch
):
    monkeypatch.setattr(gateway, "_COMMIT_LOOK_S", 0.01)
    other, clock = Silent(), ManualClock()
    locations = [f"grpc://127.0.0.1:{server.port}" for server in (silent, other)]
    network = network_of(clock, tmp_path, *locations)
    try:
        with ThreadPoolExecutor(1) as pool:
            commit = pool.submit(network.complete, 7)
            assert silent.asked.wait(30)
            assert other.asked.wait(30)
            network.registry.begin_attempt(1)
            other.allowed.set()
            while not commit.done():
                clock.advance(1000)
                wait([commit], 0.05)
            with pytest.raises(ChannelError, match=f"complete at {locations[0]}: attempt 0 has"):
                commit.result()
            silent.allowed.set()
    finally:
        other.allowed.set()
        other.shutdown()
