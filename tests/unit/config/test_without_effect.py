"""Keys of Flink that change nothing are said, and what only Spark can bring is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from weir.config.effective import Settings
from weir.config.effects import reason_of, without_effect
from weir.errors import UsageError
from weir.jobmanager import dependencies
from weir.jobmanager.settings import JobSettings


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("akka.framesize", "Arrow Flight"),
        ("pekko.ask.timeout", "Arrow Flight"),
        ("table.exec.state.ttl", "StateTtlConfig"),
        ("taskmanager.numberOfTaskSlots", "Spark's driver and executors"),
        ("jobmanager.rpc.address", "Spark's driver and executors"),
        ("yarn.application.queue", "cluster manager"),
        ("high-availability", "checkpoints"),
        ("high-availability.type", "checkpoints"),
        ("metrics.reporter.prom.port", "/metrics"),
        ("execution.checkpointing.unaligned.forced", "never refused"),
    ],
)
def test_a_key_of_flink_without_effect_is_named_with_the_reason(key: str, says: str) -> None:
    found = without_effect(Settings([{key: "true"}]))
    assert len(found) == 1
    assert found[0].startswith(f"{key} (")
    assert says in found[0]


@pytest.mark.parametrize(
    "key", ["parallelism.default", "security.ssl.internal.enabled", "my.own.key", "io.tmp.dirs"]
)
def test_known_keys_and_those_of_others_are_not_named(key: str) -> None:
    assert reason_of(key) is None


def test_a_key_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    JobSettings.of([{"table.exec.state.ttl": "1 h", "state.backend.novel": "1"}])
    text = caplog.text
    assert text.count("table.exec.state.ttl") == 1
    assert text.count("state.backend.novel") == 1


def test_archives_are_taken_if_spark_can_unpack_them(tmp_path: Path) -> None:
    for name in ("a.zip", "b.tar.gz", "c.rar"):
        (tmp_path / name).touch()
    names = f"{tmp_path}/a.zip#data,{tmp_path}/b.tar.gz,hdfs://nn/d.zip"
    assert JobSettings.of([{"python.archives": names}]).python_archives == tuple(names.split(","))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("none.zip", "where there is no file"),
        ("c.rar", r"cannot unpack: expected \.zip, \.jar"),
        ("a.zip#/etc", "relative path"),
        ("a.zip#../a", "relative path"),
        ("a.zip#x,a.zip#x", "as '.*a.zip#x' is"),
        ("a.zip,hdfs://nn/a.zip", "unpacked at 'a.zip', as"),
    ],
)
def test_other_archives_are_refused(names: str, says: str, tmp_path: Path) -> None:
    for name in ("a.zip", "c.rar"):
        (tmp_path / name).touch()
    given = ",".join(n if "://" in n else f"{tmp_path}/{n}" for n in names.split(","))
    with pytest.raises(UsageError, match=says):
        JobSettings.of([{"python.archives": given}])


def test_another_python_is_refused_unless_it_is_this_one_or_sparks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    JobSettings.of([{"python.executable": sys.executable}])
    with pytest.raises(UsageError, match=r"/opt/other/python.*spark\.pyspark\.python"):
        JobSettings.of([{"python.executable": "/opt/other/python"}])
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/other/python")
    JobSettings.of([{"python.executable": "/opt/other/python"}])


def test_packages_that_are_not_installed_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("# ours\npytest  # any\n--no-index\nmsgspec>=0.1\n", "utf-8")
    JobSettings.of([{"python.requirements": f"{file}#cached"}])
    file.write_text("pytest==0.0.1\nno-such-package-at-all\n", "utf-8")
    wanted = r"asks for pytest==0\.0\.1, no-such-package-at-all.*spark\.archives"
    with pytest.raises(UsageError, match=wanted):
        JobSettings.of([{"python.requirements": str(file)}])
    with pytest.raises(UsageError, match="cannot be read"):
        JobSettings.of([{"python.requirements": str(tmp_path / "none.txt")}])


@pytest.mark.parametrize(
    ("bound", "fits"),
    [
        ("", True),
        (">=2.4, <3", True),
        ("==2.4.10", True),
        ("==2.4.*", True),
        ("==2.*", True),
        ("!=2.4.9", True),
        ("~=2.4", True),
        ("~=2.4.3", True),
        ("[extra]>2.4 ; python_version < '3.8'", True),
        (" @ file:///made/here-9.9.whl", True),
        (">=2.5", False),
        ("<2.4", False),
        ("==2.4", False),
        ("==2.40.*", False),
        ("!=2.4.*", False),
        ("~=2.5", False),
        ("~=2.3.1", False),
        ("===2.4.1", False),
    ],
)
def test_versions_of_requirements_are_compared(
    bound: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "version", {"made-here": "2.4.10"}.__getitem__)
    (tmp_path / "requirements.txt").write_text(f"made-here{bound}\n", "utf-8")
    layers = [{"python.requirements": str(tmp_path / "requirements.txt")}]
    if fits:
        JobSettings.of(layers)
    else:
        with pytest.raises(UsageError, match="asks for made-here"):
            JobSettings.of(layers)


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "there.py").touch()
    JobSettings.of([{"python.files": f"{tmp_path}/there.py,hdfs://nn/there.py"}])
    with pytest.raises(UsageError, match=r"none\.py', where there is nothing"):
        JobSettings.of([{"python.files": f"{tmp_path}/there.py,{tmp_path}/none.py"}])
