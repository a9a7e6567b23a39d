"""What is refused is refused by the real command before Java starts, and soon."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

# What a program says of its process when it was refused: what of Spark it imported, which processes
# it started, and for how many nanoseconds it was ready to run and had to wait for a processor.
SAID = """
def say():
    import os, sys
    print(sorted({"pyspark", "py4j"} & set(sys.modules)))
    task = f"/proc/self/task/{os.getpid()}"
    print(open(f"{task}/children").read().split() if os.path.exists(f"{task}/children") else [])
    stat = f"{task}/schedstat"
    print(open(stat).read().split()[1] if os.path.exists(stat) else 0)
"""
PROGRAM = f"""{SAID}
from weir.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).key_by(lambda v: v).reduce(lambda a, b: a + b).uid("sum").print()
try:
    env.execute("early")
finally:
    say()
"""
# Says of each program that is refused by which error. One process makes all mistakes, because
# starting it is most of what it takes: what holds for all of them together holds for each.
REFUSED = (
    SAID
    + """
import os, sys, threading
from weir.common import Configuration, Types
from weir.datastream import MapFunction, StreamExecutionEnvironment
from weir.datastream.state import ValueStateDescriptor
from weir.errors import WeirError
from weir.jobmanager.directory import JobEntry, publish
from weir.storage.processes import process_started

folder = sys.argv[1]
pid = os.getpid()
publish(JobEntry(job_id="a" * 32, name="twin", pid=pid, process=process_started(pid),
    url="http://127.0.0.1:9", started_ms=1, status="RUNNING", checkpoint_dir=f"file://{folder}/chk"))
sys.modules["rocksdict"] = None

class Keyed(MapFunction):
    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor("state", Types.LONG()))

    def map(self, value):
        return value

def refused(what, change=lambda stream: stream, **settings):
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key.replace("__", ".").replace("_", "-"), value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    change(env.from_collection([1])).print()
    try:
        env.execute(what)
    except WeirError as error:
        print(f"{what}: {error}".splitlines()[0])

lock = threading.Lock()
refused("path", execution__checkpointing__dir=f"{folder}/job.py/chk")
refused("twin", execution__checkpointing__dir=f"{folder}/chk")
refused("uid", lambda stream: stream.map(str), pipeline__auto_generate_uids="false")
refused("extra", state__backend__type="rocksdb")
refused("pickling", lambda stream: stream.map(lambda v: (v, lock)).name("locked"))
refused("key_by", lambda stream: stream.map(Keyed()))
refused("archive", python__archives=f"{folder}/none.zip")
say()
"""
)
SECONDS_MAX = 3.0
_ATTEMPTS = 3
WEIR_RUN = ("-m", "weir.cli.main", "run")


@dataclass(frozen=True)
class Ended:
    """A process that has ended, and how long it took, by the clock and of processors."""

    code: int
    out: list[str]
    err: str
    wall_s: float
    cpu_s: float

    @property
    def own_s(self) -> float:
        """By the clock, without the time in which others had the processor."""
        return self.wall_s - int(self.out[-1]) / 1e9 if self.out else self.wall_s


@pytest.fixture
def host(tmp_path):
    """A directory for programs, and an environment whose Java tells that somebody started it."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    java.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.endswith(("_CONF_DIR", "_CONFIG_HOME"))}
    environment = {
        **kept,
        "HOME": str(tmp_path / "home"),
        "JAVA_HOME": str(tmp_path / "java"),
        "WEIR_RUN_DIR": str(tmp_path / "run"),
    }
    return tmp_path, environment


def ended(host, *options, program=PROGRAM, arguments=(), launcher=WEIR_RUN):
    """Run a program by a real command."""
    folder, environment = host
    job = folder / "job.py"
    job.write_text(program)
    command = [sys.executable, *launcher, *options, str(job), *arguments]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ended(done.returncode, done.stdout.splitlines(), done.stderr, wall, spent)


def soon(host, *options, **how):
    """Run a program that has to be refused soon; a busy machine gets another chance."""
    for _ in range(_ATTEMPTS):
        found = ended(host, *options, **how)
        if found.own_s < SECONDS_MAX:
            break
    assert found.own_s < SECONDS_MAX, f"{found.wall_s:.1f} s by the clock, {found.cpu_s:.1f} s CPU"
    assert found.cpu_s < SECONDS_MAX
    # Neither Spark's Python nor its Java was there, nor any other process.
    assert found.out[-3:-1] == ["[]", "[]"]
    assert not (host[0] / "started").exists()
    return found


def test_a_missing_savepoint_is_refused_without_java_in_less_than_three_seconds(host):
    found = soon(host, "-s", "/nope")
    assert found.code == 2
    assert "weir: there is no checkpoint or savepoint at 'file:///nope'" in found.err
    assert len(found.out) == 3


@pytest.mark.parametrize("launcher", [WEIR_RUN, ()], ids=["weir run", "python"])
def test_everything_that_can_be_known_is_refused_without_java(host, launcher):
    folder = host[0]
    found = soon(host, program=REFUSED, arguments=[str(folder)], launcher=launcher)
    assert found.code == 0, found.err
    said = found.out[:-3]
    for line, text in zip(
        said,
        [
            f"path: the checkpoint directory '{folder}/job.py/chk' cannot be used",
            "twin: job 'twin' is running already with checkpoints in",
            "uid: ",
            "extra: the state backend 'rocksdb' needs the package rocksdict: install it with",
            "pickling: ",
            "key_by: operator 'Map': Keyed.open() calls get_state(), and keyed state can only be",
            "archive: python.archives names",
        ],
        strict=True,
    ):
        assert line.startswith(text)
    assert "uid" in said[2].removeprefix("uid:")
    assert "'locked' cannot be sent" in said[4]


def test_settings_of_flink_that_change_nothing_are_said_once_with_the_reason(host):
    folder = host[0]
    lines = "akka.framesize: 10485760b\ntable.exec.state.ttl: 1 h\njobmanager.rpc.port: 6123\n"
    (folder / "flink-conf.yaml").write_text(lines)
    forced = "execution.checkpointing.unaligned.forced"
    found = ended(host, "-D", f"{forced}=true", "-s", "/nope")
    for key, reason in {
        "akka.framesize": "processes talk over Arrow Flight",
        "table.exec.state.ttl": "there is no Table API; state of a program expires by",
        "jobmanager.rpc.port": "Spark's driver and executors",
        forced: "unaligned checkpoints are never refused",
    }.items():
        assert found.err.count(f"{key} ({reason}") == 1
        assert found.err.count(key) == 1
    assert "settings are read from Flink's file 'flink-conf.yaml'" in found.err


def test_what_nothing_refuses_comes_to_java(host):
    found = ended(host, "-D", "execution.checkpointing.interval=1s")
    assert found.code != 0
    assert (host[0] / "started").exists()
