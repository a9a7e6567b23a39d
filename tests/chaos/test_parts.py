"""The parts of the chaos suite that need no Spark: choices, proxy, clock, hosts, damage, tables."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import threading
import zlib
from pathlib import Path

import pytest
from tests.chaos import report
from tests.chaos.__main__ import lacking, wishes_of
from tests.chaos.clock import FakeClock, jump_of, library
from tests.chaos.cluster import HOSTS, Network, without_namespaces
from tests.chaos.faults import (
    BLINK_S,
    CUT_S,
    LEASE_S,
    NEEDS_NO_RESTART,
    Fault,
    Kind,
    choose,
)
from tests.chaos.places import (
    FILE_KINDS,
    HOW,
    DamageTurns,
    changed,
    damage,
    files_of,
    newest_checkpoint,
)
from tests.chaos.plan import Plan, Wishes, deal
from tests.chaos.proxy import Proxy, Weather
from tests.chaos.recount import KEYS, Feed, Verdict

from weir.checkpoint.metadata import (
    CheckpointMetadata,
    FileRecord,
    SourcePositions,
    layout_of,
)
from weir.checkpoint.paths import resolve
from weir.checkpoint.store import load_checkpoint, verify_files, write_metadata
from weir.storage import open_storage

ALL_HERE = {"clock": "", "s3": "", "cluster": "", "ends": ""}
NONE_HERE = {"clock": "no clock", "s3": "no s3", "cluster": "no cluster", "ends": "none"}


# ---- choice ------------------------------------------------------------------------------------


def test_nothing_comes_beside_a_fault_that_needs_no_restart():
    faults = choose(3, 400, list(Kind), double=1.0)
    assert {f.kind for f in faults if f.second is None} >= NEEDS_NO_RESTART
    assert any(f.second is not None for f in faults)


def test_a_host_is_cut_off_for_longer_and_for_shorter_than_the_lease():
    assert BLINK_S < LEASE_S < CUT_S
    lasting = {f.lasts for f in choose(1, 40, [Kind.NETWORK])}
    assert lasting == {BLINK_S, CUT_S}


def test_kinds_bring_along_what_they_need():
    (cluster,) = deal(Wishes(faults=3, kinds=(Kind.NETWORK,)), ALL_HERE)
    assert cluster.cluster
    (bucket,) = deal(Wishes(faults=3, kinds=(Kind.FLAKY,)), ALL_HERE)
    assert bucket.storage == "s3"
    assert lacking([cluster], NONE_HERE) == "no cluster"
    assert lacking([bucket], NONE_HERE) == "no s3"
    assert lacking([cluster, bucket], ALL_HERE) == ""


@pytest.mark.parametrize(
    ("plan", "kind", "reason"),
    [
        (Plan(1, 1), Kind.HOST, "--cluster"),
        (Plan(1, 1), Kind.SLOW, "--storage s3"),
        (Plan(1, 1, storage="s3"), Kind.FULL, "--storage disk"),
        (Plan(1, 1, cluster=True), Kind.CLOCK, "not on a cluster"),
        (Plan(1, 1, cluster=True), Kind.HOST, ""),
        (Plan(1, 1, cluster=True), Kind.WORKER, ""),
        (Plan(1, 1, cluster=True), Kind.RESCALE, ""),
        (Plan(1, 1), Kind.FROZEN_EXECUTOR, "--cluster"),
        (Plan(1, 1, storage="s3"), Kind.FLAKY, ""),
        (Plan(1, 1), Kind.LIVE_DAMAGE, ""),
    ],
)
def test_a_run_says_why_it_leaves_a_kind_out(plan, kind, reason):
    said = plan.refuses(kind)
    assert reason in said if reason else said == ""


def test_a_bucket_that_fails_meets_the_restart_strategy_that_nobody_chose():
    assert "restart-strategy.type" not in Plan(1, 1, storage="s3").settings
    assert "restart-strategy.type" in Plan(1, 1).settings


def test_the_command_line_says_where_and_what(capsys):
    wishes, judging = wishes_of(["--faults", "3", "--kinds", "CLOCK,SLOT", "--report", "x.md"])
    assert (wishes.faults, wishes.kinds) == (3, (Kind.CLOCK, Kind.SLOT))
    assert (str(judging.path), judging.limits) == ("x.md", False)
    assert wishes_of(["--limits"])[1].limits
    with pytest.raises(SystemExit):
        wishes_of(["--kinds", "CLOCKS"])
    assert "CLOCKS" in capsys.readouterr().err


def test_every_file_of_rows_has_every_key(tmp_path):
    feed = Feed(tmp_path, seed=1)
    feed.add()
    assert {row["key"] for row in feed.rows} == set(range(KEYS))


# ---- proxy -------------------------------------------------------------------------------------


@pytest.fixture
def echo():
    """A server on loopback that sends back what it gets; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection):
            with connection:
                while data := connection.recv(4096):
                    connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo):
    made = Proxy(echo, seed=5, delay_s=0.01, share=0.5)
    yield made
    made.close()


def ask(port, text=b"hello"):
    """Send and read back; False when the connection breaks off."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(text)
            got = b""
            while len(got) < len(text):
                data = connection.recv(4096)
                if not data:
                    return False
                got += data
    except (ConnectionError, TimeoutError):
        return False
    return got == text


def test_in_fair_weather_everything_passes(proxy):
    assert all(ask(proxy.port, os.urandom(100_000)) for _ in range(5))
    assert (proxy.late, proxy.broken) == (0, 0)


def test_a_slow_proxy_passes_everything_late(proxy):
    proxy.weather = Weather.SLOW
    assert all(ask(proxy.port) for _ in range(3))
    assert proxy.late >= 6


def test_a_flaky_proxy_breaks_a_share_off_and_is_well_again(proxy):
    proxy.weather = Weather.FLAKY
    answered = [ask(proxy.port) for _ in range(60)]
    assert 0 < sum(answered) < 60
    assert proxy.broken == answered.count(False)
    proxy.weather = Weather.FAIR
    assert all(ask(proxy.port) for _ in range(5))


def test_a_connection_from_fair_weather_breaks_too(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
        connection.sendall(b"one")
        assert connection.recv(10) == b"one"
        proxy.weather = Weather.DOWN
        connection.sendall(b"two")
        with pytest.raises(ConnectionResetError):
            connection.recv(10)


# ---- clock -------------------------------------------------------------------------------------


def test_clocks_jump_forward_and_back_by_minutes_to_hours():
    jumps = [jump_of(victim) for victim in range(500)]
    assert jumps == [jump_of(victim) for victim in range(500)]
    assert min(jumps) < -3600
    assert max(jumps) > 3600
    assert all(60 <= abs(jump) < 24 * 3600 for jump in jumps)
    assert any(abs(jump) < 3600 for jump in jumps)


def test_libfaketime_is_found_where_it_is_installed(tmp_path):
    assert library(tmp_path) is None
    there = tmp_path / "lib" / "x86_64-linux-gnu" / "faketime" / "libfaketimeMT.so.1"
    there.parent.mkdir(parents=True)
    there.touch()
    assert library(tmp_path) == there


def test_a_python_process_sees_the_clock_jump_and_its_own_time_go_on(tmp_path):
    found = library()
    if found is None:
        pytest.skip("needs libfaketime (package faketime)")
    clock = FakeClock(tmp_path, found)
    program = (
        "import time\n"
        "while True:\n"
        "    input()\n"
        "    time.sleep(0.01)\n"
        "    print(int(time.time()), int(time.monotonic()), flush=True)\n"
    )
    environment = clock.environment(os.environ)
    with subprocess.Popen(
        [environment["PYSPARK_PYTHON"], "-c", program],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def look():
            process.stdin.write("\n")
            process.stdin.flush()
            return list(map(int, process.stdout.readline().split()))

        wall, monotonic = look()
        for jump in (7200, -3600, 0):
            clock.jump(jump)
            now, own = look()
            assert abs(now - wall - jump) < 60
            assert 0 <= own - monotonic < 60
        process.kill()
    clock.close()
    assert not list(Path("/dev/shm").glob(f"*faketime_*_{process.pid}"))


# ---- hosts -------------------------------------------------------------------------------------


def test_hosts_have_names_and_addresses_of_their_own():
    network = Network("wc7")
    assert len({network.namespace(host) for host in (0, *HOSTS)}) == 3
    assert len({network.address(host) for host in (0, *HOSTS)}) == 3
    made = {words[3] for words in network.setup() if words[:3] == ["ip", "netns", "add"]}
    gone = {words[3] for words in network.teardown()}
    assert made == gone
    # Everything else is inside of a namespace of the run, nothing in the machine's own.
    others = [words for words in network.setup() if words[1] != "netns"]
    assert all(words[1] == "-n" and words[2] in made for words in others)
    assert network.link(1, up=False)[-2:] == ["up1", "down"]


def test_a_host_is_reached_until_its_link_is_cut():
    if reason := without_namespaces():
        pytest.skip(reason)
    network = Network(f"wt{os.getpid()}")

    def reaches(host):
        """Tell whether a connection to a port where nobody listens is refused by the host."""
        program = (
            "import socket, sys\n"
            "try:\n"
            f"    socket.create_connection(('{network.address(host)}', 9), timeout=0.5)\n"
            "except ConnectionRefusedError:\n"
            "    sys.exit(0)\n"
            "except OSError:\n"
            "    sys.exit(1)\n"
        )
        words = [*network.inside(0), "python3", "-S", "-c", program]
        return subprocess.run(words, check=False).returncode == 0

    try:
        for words in network.setup():
            subprocess.run(words, check=True, capture_output=True)
        assert reaches(1)
        assert reaches(2)
        subprocess.run(network.link(1, up=False), check=True)
        assert not reaches(1)
        assert reaches(2)
        subprocess.run(network.link(1, up=True), check=True)
        assert any(reaches(1) for _ in range(10))
    finally:
        for words in network.teardown():
            subprocess.run(words, check=False, capture_output=True)


# ---- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW[:2])
def test_changed_bytes_are_never_what_they_were(how):
    whole = os.urandom(50)
    for seed in range(50):
        found = changed(whole, how, random.Random(seed))
        assert found != whole
        assert len(found) == len(whole) if how == "flip" else whole.startswith(found)


@pytest.fixture
def storage(tmp_path):
    """Two checkpoints of one job; the newer one has a file of every kind, and an inlined one."""
    made = open_storage(tmp_path.as_uri())
    write_metadata(made, "job/chk-9", CheckpointMetadata(9, "job", "chaos", 0, "checkpoint", 1))
    contents = {"state-s0-a0-ab": b"data" * 9, "../shared/state-s0-a0-cd": b"shared" * 9}
    files = [FileRecord(n, len(data), zlib.crc32(data), 0) for n, data in contents.items()]
    files.append(FileRecord("inlined", 3, zlib.crc32(b"abc"), 0, data=b"abc"))
    query = tmp_path / "job" / "query-1"
    sources = SourcePositions(
        batch_id=12,
        offset_lines=("v1", "{}", '{"logOffset":12}', '{"logOffset":12}'),
        source_logs={"@directory": str(query), "sources/1/": ""},
        layout=layout_of(["large", "embedded"]),
    )
    for name in ("0/9.compact", "0/8", "0/9", "0/10", "0/12", "0/13", "0/.12.crc", "1/12"):
        (query / "sources" / name).parent.mkdir(parents=True, exist_ok=True)
        (query / "sources" / name).write_text("v1")
    facts = CheckpointMetadata(
        10, "job", "chaos", 0, "checkpoint", 2, files=tuple(files), sources=sources
    )
    for name, data in contents.items():
        made.create(resolve("job/chk-10", name), data)
    write_metadata(made, "job/chk-10", facts)
    return made


def test_files_of_the_newest_checkpoint_are_found_by_kind(storage):
    newest = newest_checkpoint(storage)
    assert newest == "job/chk-10"
    # Of a log only what its position needs, and what is nowhere else.
    assert files_of(storage, newest) == {
        "metadata": ["job/chk-10/_metadata"],
        "data": ["job/chk-10/state-s0-a0-ab"],
        "shared": ["job/shared/state-s0-a0-cd"],
        "source log": ["job/query-1/sources/0/10", "job/query-1/sources/0/12"],
    }


def test_files_of_every_kind_are_damaged_in_every_way_and_mended(storage):
    turns = DamageTurns(3)
    for victim in range(len(FILE_KINDS) * len(HOW)):
        harm = damage(storage, "job/chk-10", victim, turns)
        assert harm.how == "gone" or storage.read(harm.path) != harm.whole
        assert storage.exists(harm.path) == (harm.how != "gone")
        harm.mend(storage)
        assert verify_files(storage, "job/chk-10", load_checkpoint(storage, "job/chk-10")) == []
    # Each pair once, and none of them by chance.
    assert dict(turns.done) == {(kind, how): 1 for kind in FILE_KINDS for how in HOW}


def test_few_damages_of_each_of_several_runs_come_to_all_pairs():
    done = set()
    for seed in range(7, 13):
        turns = DamageTurns(seed)
        done |= {turns.next(FILE_KINDS) for _ in range(3)}
    assert len(done) == len(FILE_KINDS) * len(HOW)


def test_what_a_checkpoint_does_not_have_gives_its_turn_away():
    turns = DamageTurns(1)
    assert {turns.next(["metadata", "data"])[0] for _ in range(6)} == {"metadata", "data"}
    assert set(turns.done.values()) == {1}


# ---- tables ------------------------------------------------------------------------------------


def outcome(recoveries):
    verdict = Verdict(10, 0, 0, 0, complaints=0, examples=())
    return report.Outcome(verdict, 5, recoveries, {Kind.HOST: "needs root"}, [], drivers=1)


RECOVERIES = {
    Fault(1, Kind.SLOT, 0): 2.0,
    Fault(2, Kind.ALL_SLOTS, 0): 4.0,
    Fault(3, Kind.SLOT, 0, Kind.SLOT): 9.0,
    Fault(4, Kind.FROZEN_SLOT, 0): 13.0,
    Fault(5, Kind.NETWORK, 1, turn=1): CUT_S + 1.5,
    Fault(6, Kind.CLOCK, 1): 1.0,
    Fault(7, Kind.DRIVER, 1): 20.0,
    Fault(8, Kind.EXECUTOR, 1): 5.0,
    Fault(9, Kind.RESCALE, 1): 6.0,
    Fault(10, Kind.STARTING_SLOT, 1): 7.0,
}


def test_killed_slots_are_a_group_of_their_own_and_a_fault_s_own_time_is_no_recovery():
    assert report.by_group(RECOVERIES) == {
        "slot killed": [2.0, 4.0],
        "worker or executor killed": [5.0],
        "two faults": [9.0, 7.0],
        "lasting, after its end": [3.0, 1.5, 0.0],
        "driver anew": [20.0],
        "asked for": [6.0],
    }


def test_every_fault_has_a_group():
    assert {report.group_of(fault) for fault in choose(1, 300, list(Kind))} == set(report.SHOWN)


def test_a_summary_tells_the_seed_and_what_was_left_out():
    text = "\n".join(outcome(RECOVERIES).summary(Plan(17, 10, cluster=True)))
    assert "seed 17, hashmap, aligned, two hosts" in text
    assert "recovery, slot killed: p50 3.0 s, max 4.0 s of 2" in text
    assert "not done here: HOST (needs root)" in text
    assert "repeat: make chaos ARGS=" in text


def test_a_summary_tells_what_was_damaged_and_what_hit_nobody():
    found = outcome(RECOVERIES)
    found.damaged["data", "cut"] = 2
    found.missed.append(Fault(11, Kind.WORKER, 7))
    text = "\n".join(found.summary(Plan(17, 10)))
    assert "| data | 0 | 2 | 0 |" in text
    assert "missed, because nobody was there: 11: WORKER/7" in text
    assert "WORKER 1" not in text


def test_an_outcome_is_good_only_without_needless_deaths():
    found = outcome({})
    assert found.good
    found.faulty.append("died")
    assert not found.good


def test_limits_are_for_killed_slots_and_for_every_fault_that_leaves_the_driver_alive():
    fast = outcome(RECOVERIES)
    well, lines = report.judge_limits([fast])
    assert well, "a driver that is started anew has no limit"
    assert lines == [
        "limit of a killed slot, p50 5 s: p50 3.0 s, max 4.0 s of 2",
        "limit where the driver lives, 30 s: p50 4.0 s, max 9.0 s of 9",
    ]
    late = outcome({Fault(1, Kind.FROZEN_SLOT, 0): 41.0, Fault(2, Kind.WORKER, 0): 29.0})
    assert report.judge_limits([fast, late]) == (
        False,
        [
            "limit of a killed slot, p50 5 s: p50 3.0 s, max 4.0 s of 2",
            "limit where the driver lives, 30 s: p50 5.0 s, max 31.0 s of 11",
            "BROKEN: 1: FROZEN_SLOT/0 took 31.0 s",
        ],
    )
    assert report.judge_limits([fast, late], patience=2)[0]
    # The same fault of two runs is two faults.
    slow = outcome({Fault(1, Kind.SLOT, 0): 6.0})
    assert report.judge_limits([fast, slow])[0]
    assert not report.judge_limits([fast, slow, slow, slow])[0]
    assert report.judge_limits([outcome({})])[1][0].endswith("there was none")


def test_tables_for_a_page(tmp_path):
    report.write(tmp_path / "x.md", [(Plan(17, 10), outcome(RECOVERIES))])
    text = (tmp_path / "x.md").read_text()
    assert "| slot killed | 2 | 3.0 | 4.0 |" in text
    assert "| NETWORK | 1 | 1.5 | 1.5 |" in text
    columns = {line.count("|") for line in text.splitlines() if line.startswith("| seed")}
    assert columns == {11}
    assert "| damaged file | flip | cut | gone |" in text
