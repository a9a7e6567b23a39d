"""Keys of Flink that change nothing are said, and what only Spark can bring is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from weir.config.effective import Settings
from weir.config.effects import reason_of, without_effect
from weir.errors import UsageError
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


def test_archives_are_refused_with_sparks_setting() -> None:
    with pytest.raises(UsageError, match=r"data\.zip#data.*spark\.archives"):
        JobSettings.of([{"python.archives": "data.zip#data"}])


def test_another_python_is_refused_and_this_one_is_fine() -> None:
    JobSettings.of([{"python.executable": sys.executable}])
    with pytest.raises(UsageError, match=r"/opt/other/python.*spark\.pyspark\.python"):
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


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "there.py").touch()
    JobSettings.of([{"python.files": f"{tmp_path}/there.py,hdfs://nn/there.py"}])
    with pytest.raises(UsageError, match=r"none\.py', where there is nothing"):
        JobSettings.of([{"python.files": f"{tmp_path}/there.py,{tmp_path}/none.py"}])
