"""Backends of the user's own: found by path or entry point, refused in plain words, and running."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from weir.backend import registry
from weir.backend.base import NATIVE_PREFIX, RestoreSource, StateLayer
from weir.backend.factory import BackendContext, BackendSettings, create_backend
from weir.backend.restored import common_sources
from weir.common import Types
from weir.config.backend import STATE_BACKEND
from weir.config.state_backends import state_backend
from weir.datastream import CustomStateBackend, MapFunction, StreamExecutionEnvironment
from weir.datastream.state import ValueStateDescriptor
from weir.errors import IncompatibleStateError, UsageError
from weir.jobmanager.settings import JobSettings
from weir.keygroup import KeyGroupRange
from weir.testing.harness import HarnessOptions, JobHarness, collect

GROUPS = KeyGroupRange(0, 7)
COUNT = ValueStateDescriptor("count", Types.LONG())
SOURCE = """
from weir.backend.hashmap import HashMapBackend
from weir.backend.registry import BackendProvider

made = []

def create(context, key_type, key_groups, namespace_type):
    made.append(context.operator)
    return HashMapBackend(key_type, key_groups, namespace_type)

def expand(source, key_groups, names=None):
    return source

PROVIDER = BackendProvider(create, expand_native=expand)

class Factory:
    def __new__(cls):
        return PROVIDER

NOTHING = 7
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module with a backend, installed with an entry point `my-own`."""
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(SOURCE), "utf-8")
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = f"[weir.backends]\nmy-own = {name}:PROVIDER\nbroken = {name}:MISSING\n"
    (info / "entry_points.txt").write_text(lines)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_own", {})
    return name


def kind_of(value: str) -> str:
    return JobSettings.of([{"state.backend": value}]).backend.kind


@pytest.mark.parametrize("form", ["{}:PROVIDER", "{}.PROVIDER", "{}:Factory", "{}.Factory"])
def test_a_path_names_a_provider_or_what_makes_one(package: str, form: str) -> None:
    path = form.format(package)
    assert kind_of(path) == path
    backend = create_backend(BackendContext(BackendSettings(path)), Types.STRING(), GROUPS)
    assert backend.key_groups == GROUPS
    assert sys.modules[package].made == ["operator"]
    assert state_backend(path).flink_class == path[len(package) + 1 :]


def test_an_entry_point_names_it_too(package: str) -> None:
    assert kind_of("my-own") == "my-own"
    create_backend(BackendContext(BackendSettings("my-own")), Types.STRING(), GROUPS)
    with pytest.raises(UsageError, match=r"entry point 'broken' of weir\.backends .*MISSING"):
        kind_of("broken")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("no_such_module:PROVIDER", "cannot be imported: No module named 'no_such_module'"),
        ("com.example.OwnStateBackendFactory", "No module named 'com"),
        ("weir.backend.registry:MISSING", "MISSING.* Expected the path of a"),
        ("weir.backend.registry:GROUP", "is 'weir.backends', expected a .*BackendProvider"),
        ("rocks", "expected one of hashmap, rocksdb.* or the path of a backend of your own"),
        ("org.apache.flink.runtime.state.NovelStateBackendFactory", "expected one of hashmap"),
    ],
)
def test_what_is_no_backend_is_refused_before_the_job_starts(value: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        kind_of(value)


def test_a_log_of_changes_needs_a_backend_that_tells_them(package: str) -> None:
    settings = {"state.backend": f"{package}:PROVIDER", "state.changelog.enabled": True}
    with pytest.raises(UsageError, match=r"cannot tell what changed.*create_tracked"):
        JobSettings.of([settings])


class Empty:
    """A snapshot file of which only the name is asked for."""

    name = "checkpoint/1"


def native(name: str) -> RestoreSource:
    layer = StateLayer(Empty(), {NATIVE_PREFIX + name: {"groups": {}}})  # type: ignore[arg-type]
    return RestoreSource((layer,), GROUPS, GROUPS)


def test_a_file_cannot_name_what_is_imported(package: str) -> None:
    path = f"{package}:PROVIDER"
    with pytest.raises(IncompatibleStateError, match="no backend here reads"):
        common_sources([native(path)], GROUPS)
    assert package not in sys.modules
    registry.provider(path)  # the job's settings may
    source = native(path)
    assert common_sources([source], GROUPS) == [source]


def test_installed_entry_points_read_their_own_files(package: str) -> None:
    assert len(common_sources([native("my-own")], GROUPS)) == 1
    with pytest.raises(UsageError, match="no expand_plain that reads them without running code"):
        common_sources([native("my-own")], GROUPS, plain=True)


FLINK = "org.apache.flink."


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        (FLINK + "runtime.state.hashmap.HashMapStateBackendFactory", "hashmap"),
        (FLINK + "runtime.state.hashmap.HashMapStateBackend", "hashmap"),
        (FLINK + "runtime.state.memory.MemoryStateBackendFactory", "jobmanager"),
        (FLINK + "runtime.state.filesystem.FsStateBackendFactory", "filesystem"),
        (FLINK + "contrib.streaming.state.RocksDBStateBackendFactory", "rocksdb"),
        (FLINK + "contrib.streaming.state.EmbeddedRocksDBStateBackendFactory", "rocksdb"),
        (FLINK + "state.rocksdb.EmbeddedRocksDBStateBackendFactory", "rocksdb"),
        (FLINK + "state.forst.ForStStateBackendFactory", "rocksdb"),
        (FLINK + "runtime.state.gemini.GeminiStateBackendFactory", "hashmap"),
        ("HashMap", "hashmap"),
        ("memory", "jobmanager"),
    ],
)
def test_factories_of_flink_choose_their_backend(value: str, chosen: str) -> None:
    assert STATE_BACKEND.parse(value) == chosen


def test_another_backend_than_the_one_named_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert kind_of(FLINK + "runtime.state.gemini.GeminiStateBackendFactory") == "hashmap"
    assert kind_of("forst") == "rocksdb"
    notes = [record.message for record in caplog.records]
    assert "state.backend: Gemini is part of Ververica's platform" in notes[0]
    assert "state.backend: ForSt is not here" in notes[1]


class Numbered(MapFunction):
    """Counts per key."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(COUNT)

    def map(self, value):
        self.count.update((self.count.value() or 0) + 1)
        return value, self.count.value()


def test_a_job_runs_on_it_and_restores_it(package: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_state_backend(CustomStateBackend(f"{package}:PROVIDER"))
    kind = str(env.get_configuration().get_string("state.backend.type", ""))
    words = env.from_collection([], Types.STRING())
    collect(words.key_by(lambda word: word).map(Numbered()).uid("numbered"))
    options = HarnessOptions(backend=BackendSettings(kind))
    job = JobHarness(env.build_graph(), 2, options).start()
    job.run_epoch(["tea", "tea"], checkpoint=True)
    job.fail_over()
    job.run_epoch(["tea"])
    assert job.state("numbered", COUNT, "tea").value() == 3
    assert len(sys.modules[package].made) == 4
