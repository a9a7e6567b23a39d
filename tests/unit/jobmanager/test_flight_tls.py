"""TLS between driver and slots over real sockets: the gateway, a slot process, and their calls."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from pyarrow import flight
from tests.certificates import make_files
from tests.harness.programs import environment, started

from weir.clock import SystemClock
from weir.errors import UsageError
from weir.jobmanager.gateway import FlightNetwork, Gateway, SlotPlace
from weir.jobmanager.network import Reception
from weir.jobmanager.registry import SlotRegistry
from weir.jobmanager.settings import JobSettings
from weir.runtime.epoch import Epoch
from weir.runtime.program import dump_program
from weir.slot.channel import TOKEN_BYTES, Channel, ChannelError
from weir.slot.messages import EpochCall, SlotFailure
from weir.slot.spawn import start_slot
from weir.spark.direct import Relay
from weir.spark.worker import connected, forget_connections, report_failure
from weir.storage.local import LocalStorage
from weir.testing.harness import collect

TOKEN = bytes(range(TOKEN_BYTES))
LONG_S = 60.0


class Told:
    """A reception that keeps which failures it was told of."""

    def __init__(self):
        self.failures = []

    def failure(self, message):
        self.failures.append(message)


@pytest.fixture
def files(tmp_path):
    return make_files(tmp_path / "ours")


@pytest.fixture
def gateway(files):
    server = Gateway("grpc+tls://127.0.0.1:0", TOKEN, Told(), files)
    yield server
    server.shutdown()


def location(server, scheme="grpc+tls"):
    return f"{scheme}://127.0.0.1:{server.port}"


def call(channel):
    with contextlib.closing(channel):
        return channel.call_struct("failure", SlotFailure(0, 0, "Kind", "text"), timeout_s=5.0)


def test_both_sides_with_certificates_of_one_authority_talk(gateway, files):
    assert call(Channel(location(gateway), TOKEN, files)) == b""


def test_the_token_is_needed_all_the_same(gateway, files):
    with pytest.raises(ChannelError, match="token of this call"):
        call(Channel(location(gateway), bytes(TOKEN_BYTES), files))


def test_certificates_of_another_authority_are_refused_on_both_sides(gateway, files, tmp_path):
    other = make_files(tmp_path / "theirs")
    for client in (other, replace(other, ca=files.ca), replace(files, ca=other.ca)):
        with pytest.raises(ChannelError, match=r"grpc\+tls://.*weir\.ssl\.ca"):
            call(Channel(location(gateway), TOKEN, client))


def test_a_client_without_tls_or_without_a_certificate_is_refused(gateway, files):
    with pytest.raises(ChannelError):
        call(Channel(location(gateway, "grpc"), TOKEN))
    with open(files.ca, "rb") as ca:
        bare = flight.connect(location(gateway), tls_root_certs=ca.read())
    options = flight.FlightCallOptions(timeout=5.0)
    with contextlib.closing(bare), pytest.raises(flight.FlightError):
        list(bare.do_action(flight.Action("failure", TOKEN), options))


def test_a_certificate_for_another_host_is_refused(tmp_path):
    files = make_files(tmp_path / "elsewhere", names=("worker.example",))
    server = Gateway("grpc+tls://127.0.0.1:0", TOKEN, Told(), files)
    try:
        with pytest.raises(ChannelError, match="does its certificate name this address"):
            call(Channel(location(server), TOKEN, files))
    finally:
        server.shutdown()


def test_a_missing_file_is_named_before_anything_is_opened(files, tmp_path):
    lost = replace(files, key=str(tmp_path / "gone.pem"))
    with pytest.raises(UsageError, match=r"weir\.ssl\.key '.*gone\.pem' cannot be read"):
        Channel("grpc+tls://127.0.0.1:1", TOKEN, lost)
    with pytest.raises(UsageError, match=r"gone\.pem"):
        Gateway("grpc+tls://127.0.0.1:0", TOKEN, Told(), lost)


def test_the_switch_has_flinks_key_and_needs_the_files(files):
    paths = {f"weir.ssl.{name}": path for name, path in vars(files).items()}
    switch = {"security.ssl.internal.enabled": "true"}
    assert JobSettings.of([{**paths, **switch}]).tls == files
    assert JobSettings.of([paths]).tls is None
    with pytest.raises(UsageError, match=r"'security\.ssl\.internal\.enabled' is on, but"):
        JobSettings.of([switch])


# ---- from the driver to a slot process and back -------------------------------------------------


@pytest.fixture
def network(files, tmp_path, monkeypatch):
    """Slots that may be on other hosts, at an address of this one."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    clock = SystemClock()
    place = SlotPlace(tmp_path / "s", tmp_path / "log", local=False, tls=files)
    network = FlightNetwork(SlotRegistry(clock, 10_000), clock, place)
    yield network
    network.close()


def reception_of(harness, network):
    """Return what gives a slot process the work of a job in this process."""
    supervisor = harness.supervisor
    plan = dump_program(supervisor.plan)
    return Reception(
        registry=network.registry,
        checkpoints=supervisor.checkpoints,
        assignment=lambda subtask: supervisor.restoration.assignment(
            subtask, supervisor.plan, plan
        ),
        failed=lambda attempt: None,
        staged=lambda attempt, staged: None,
    )


def test_a_slot_process_registers_and_is_called_over_tls(network, tmp_path):
    env = environment()
    collect(env.from_sequence(1, 3).key_by(lambda n: n).map(lambda n: n))
    harness = started(env, 1, storage=LocalStorage(str(tmp_path / "state")))
    network.registry.begin_attempt(0)
    network.open(reception_of(harness, network))
    contact = network.contact()
    assert contact.location.startswith("grpc+tls://127.0.0.1:")
    assert network.registry.locate(0, 0, 0).status == "start"
    network.registry.started(0, 0, start_slot(contact, 0, 0, network.host))
    found = network.registry.locate(0, 0, LONG_S)
    assert found.status == "ready", (found, *(tmp_path / "log").glob("*"))
    assert found.tcp.startswith("grpc+tls://127.0.0.1:")

    assert network.where(1, 1) == [(0, 0)]
    relay = Relay((1, 1), contact, 1 << 20, lambda: [found.tcp], watch=lambda: None)
    assert relay.connect()
    reports = relay.run(EpochCall(0, 0, Epoch(1)), [])
    assert reports
    try:
        answer = connected(found.tcp, contact).call("where", b"\x93\x00\x01\x02")
        assert answer
    finally:
        forget_connections()
    with pytest.raises(ChannelError):
        Channel(found.tcp.replace("grpc+tls", "grpc"), contact.token).call("where", timeout_s=5.0)
    network.dismiss(network.registry.ready(), "the test is over")


def test_a_worker_tells_the_driver_of_a_failure_over_tls(network):
    told = Told()
    network.open(told)
    report_failure(network.contact(), SlotFailure(3, 1, "Kind", "text"))
    assert [message.attempt for message in told.failures] == [3]


def test_a_worker_without_the_files_reports_nothing_and_raises_nothing(network, caplog):
    network.open(Told())
    contact = network.contact()
    lost = replace(contact, tls=replace(contact.tls, ca="/nowhere/ca.pem"))
    report_failure(lost, SlotFailure(3, 1, "Kind", "text"))
    assert "weir.ssl.ca '/nowhere/ca.pem' cannot be read" in caplog.text


def test_on_one_host_sockets_stay_as_they_are(files, tmp_path):
    clock = SystemClock()
    place = SlotPlace(tmp_path / "s", tmp_path / "log", local=True, tls=files)
    network = FlightNetwork(SlotRegistry(clock, 10_000), clock, place)
    network.open(Told())
    contact = network.contact()
    assert (contact.location, contact.tls) == (f"grpc+unix://{tmp_path}/s/jm", None)
    report_failure(contact, SlotFailure(0, 0, "Kind", "text"))
    network.close()
