"""What refuses a program is found before any engine runs: `prepare` reads, and starts nothing."""

from __future__ import annotations

import os
import sys
import threading

import pytest
from tests.unit.offline.samples import job as sample_job
from tests.unit.offline.samples import take_savepoint

from weir.common import Types
from weir.config import ambient
from weir.datastream import (
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.state import ValueStateDescriptor
from weir.errors import CorruptStateError, IncompatibleStateError, StorageError, UsageError
from weir.graph.transformation import DEFAULT_BATCH_JOB_NAME, DEFAULT_JOB_NAME
from weir.jobmanager.directory import JobEntry, publish
from weir.jobmanager.preparation import prepare
from weir.storage.processes import process_started


@pytest.fixture(autouse=True)
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("WEIR_CONF_DIR", str(tmp_path))


def prepared(env=None, name="payments", **settings):
    if env is None:
        env = StreamExecutionEnvironment()
        env.from_collection([1]).uid("numbers").print()
    layer = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    return prepare(env.build_graph(name), [ambient.program_layer(layer)])


class Everything(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


def everything(uid="everything", source="numbers"):
    env = StreamExecutionEnvironment()
    stream = env.from_sequence(1, 60).uid(source).key_by(lambda n: n % 7, Types.LONG())
    stream.process(Everything()).uid(uid).print()
    return env


def test_a_sound_program_is_prepared_and_nothing_is_made(tmp_path):
    before = sorted(tmp_path.iterdir())
    found = prepared(
        execution__checkpointing__dir=str(tmp_path / "a" / "b"), parallelism__default=3
    )
    assert found.settings.parallelism == 3
    assert sorted(tmp_path.iterdir()) == before


def test_the_max_parallelism_of_the_settings_becomes_that_of_the_program():
    env = everything()
    graph = env.build_graph("payments")
    prepare(graph, [ambient.program_layer({"pipeline.max-parallelism": 64})])
    assert graph.max_parallelism == 64


def test_a_savepoint_that_is_not_there_is_refused_with_its_path(tmp_path):
    with pytest.raises(UsageError, match=r"no checkpoint or savepoint at 'file:///nope'"):
        prepared(execution__state_recovery__path="/nope")
    with pytest.raises(UsageError, match=str(tmp_path / "gone")):
        prepared(execution__state_recovery__path=str(tmp_path / "gone"))


def test_uids_that_do_not_fit_the_savepoint_are_refused(tmp_path):
    harness = sample_job(tmp_path / "s")
    where = f"{tmp_path / 's'}/{take_savepoint(harness)}"
    path = {"execution__state_recovery__path": where}
    prepared(everything(), **path)
    with pytest.raises(IncompatibleStateError, match="everything"):
        prepared(everything(uid="renamed"), **path)
    with pytest.raises(IncompatibleStateError, match=r"source 'numbers'"):
        prepared(everything(source="other"), **path)
    ignore = {"execution__state_recovery__ignore_unclaimed_state": "true"}
    prepared(everything(uid="renamed", source="other"), **path, **ignore)


def test_damaged_metadata_is_refused(tmp_path):
    harness = sample_job(tmp_path / "s")
    where = tmp_path / "s" / take_savepoint(harness)
    metadata = where / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-3])
    with pytest.raises(CorruptStateError):
        prepared(everything(), execution__state_recovery__path=str(where))


def test_a_twin_is_refused(tmp_path):
    place = f"file://{tmp_path}/chk"
    publish(
        JobEntry(
            job_id="a" * 32,
            name="payments",
            pid=os.getpid(),
            process=process_started(os.getpid()),
            url="http://127.0.0.1:1",
            started_ms=1,
            checkpoint_dir=place,
        )
    )
    with pytest.raises(UsageError, match=r"running already.*weir stop a{32}"):
        prepared(execution__checkpointing__dir=str(tmp_path / "chk"))
    prepared(name="others", execution__checkpointing__dir=str(tmp_path / "chk"))


@pytest.mark.parametrize("name", [DEFAULT_JOB_NAME, DEFAULT_BATCH_JOB_NAME])
def test_programs_without_a_name_are_no_twins(name, tmp_path):
    place = f"file://{tmp_path}/chk"
    pid = os.getpid()
    publish(
        JobEntry(
            job_id="a" * 32,
            name=name,
            pid=pid,
            process=process_started(pid),
            url="http://127.0.0.1:1",
            started_ms=1,
            checkpoint_dir=place,
        )
    )
    prepared(name=name, execution__checkpointing__dir=str(tmp_path / "chk"))


def test_a_backend_without_its_package_is_refused(monkeypatch):
    prepared(state__backend__type="rocksdb")
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(UsageError, match=r"'rocksdb' needs the package rocksdict.*\[rocksdb\]"):
        prepared(state__backend__type="rocksdb")


def test_what_cannot_be_pickled_is_refused_by_the_operators_name():
    lock = threading.Lock()
    env = StreamExecutionEnvironment()
    env.from_collection([1]).map(lambda v: (lock, v)).name("Locked").print()
    with pytest.raises(UsageError, match=r"operator 'Locked' cannot be sent.*create them in open"):
        prepared(env)


def test_functions_that_stay_in_the_driver_need_not_be_pickled():
    lock = threading.Lock()
    env = StreamExecutionEnvironment()
    env.from_collection([1]).foreach_batch(lambda rows, number: lock)
    prepared(env)


def test_directories_that_cannot_be_made_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "chk")
    for key in ("execution__checkpointing__dir", "execution__checkpointing__savepoint_dir"):
        with pytest.raises(StorageError, match=r"cannot be used: '.*file' is a file"):
            prepared(**{key: below})
    with pytest.raises(UsageError, match="memory of one process"):
        prepared(execution__checkpointing__dir="memory://m")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    env = StreamExecutionEnvironment()
    env.read_text_file(str(tmp_path / "gone.txt")).print()
    with pytest.raises(UsageError, match=r"gone\.txt' does not exist"):
        prepared(env)


class Counting(MapFunction):
    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("count", Types.LONG())
        self.count = runtime_context.get_state(descriptor)

    def map(self, value):
        return value


class Sometimes(ProcessFunction):
    keyed = False

    def open(self, runtime_context):
        if self.keyed:
            self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        yield value


class Trying(MapFunction):
    def open(self, runtime_context):
        try:
            self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        except UsageError:
            self.count = None

    def map(self, value):
        return value


class OfItsOwn(MapFunction):
    def __init__(self, other):
        self.other = other

    def open(self, runtime_context):
        self.count = self.other.get_state(runtime_context)

    def map(self, value):
        return value


def test_keyed_state_without_key_by_is_refused_where_the_code_leaves_no_doubt():
    env = StreamExecutionEnvironment()
    env.from_collection([1]).map(Counting()).name("Count").print()
    with pytest.raises(UsageError, match=r"operator 'Count': Counting\.open\(\) calls get_state"):
        prepared(env)
    env = StreamExecutionEnvironment()
    env.from_collection([1]).key_by(lambda v: v).map(Counting()).uid("c").print()
    prepared(env)


@pytest.mark.parametrize("function", [Trying(), OfItsOwn(None), MapFunction])
def test_where_there_is_doubt_the_slots_decide(function):
    env = StreamExecutionEnvironment()
    chosen = function if not isinstance(function, type) else (lambda v: v)
    env.from_collection([1]).map(chosen).print()
    env.from_collection([1]).process(Sometimes()).print()
    prepared(env)


def test_the_runtime_mode_is_decided_before_anything_runs():
    assert not prepared().batch
    assert prepared(execution__runtime_mode="BATCH").batch
    assert prepared(execution__runtime_mode="AUTOMATIC").batch
    with pytest.raises(UsageError, match="begins at the beginning"):
        prepared(execution__runtime_mode="BATCH", execution__state_recovery__path="/none")


def test_an_unbounded_source_is_refused_in_batch_mode_unless_its_trigger_ends_it():
    class Endless(SourceFunction):
        def run(self, ctx):
            ctx.collect(1)

        def cancel(self):
            pass

    env = StreamExecutionEnvironment()
    env.add_source(Endless()).print()
    with pytest.raises(UsageError, match="Detected an UNBOUNDED source"):
        prepared(env, execution__runtime_mode="BATCH")
    assert not prepared(env, execution__runtime_mode="AUTOMATIC").batch
    assert prepared(env, execution__runtime_mode="BATCH", weir__trigger="available-now").batch


def test_directories_from_which_nothing_could_be_restored_are_refused_or_warned_of(
    tmp_path, caplog
):
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    for kind, key in (("checkpoint", "execution__checkpointing__dir"), ("work", "weir__work_dir")):
        with pytest.raises(UsageError, match=rf"the {kind} directory '.*everybody can write to it"):
            prepared(**{key: str(place)})
        prepared(**{key: str(place), "weir__recovery__foreign_files": "trust"})
    assert caplog.text == ""
    prepared(execution__checkpointing__savepoint_dir=str(place))
    assert "nothing can be restored from the savepoint directory" in caplog.text
