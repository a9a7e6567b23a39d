"""Flink's own configuration files are read where there is no weir-conf.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.config import ambient, file
from weir.config.effective import Settings
from weir.errors import UsageError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("WEIR_CONF_DIR", "FLINK_CONF_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(file, "SYSTEM_DIRECTORY", tmp_path / "etc")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings() -> Settings:
    return Settings(ambient.layers())


def test_lines_of_the_older_file_are_read_as_flink_reads_them(here: Path) -> None:
    (here / "flink-conf.yaml").write_text(
        "# a comment\nstate.backend: rocksdb # the large one\nstate.backend: filesystem\n"
        "state.checkpoints.dir: hdfs://namenode:40010/flink/checkpoints\nnonsense\n",
        "utf-8",
    )
    found = settings()
    assert found.state_backend() == "hashmap"
    assert found.to_dict()["state.checkpoints.dir"] == "hdfs://namenode:40010/flink/checkpoints"
    notes = found.validate()
    assert any("Flink's file 'flink-conf.yaml'" in note for note in notes)
    assert any("line 5: passed over" in note for note in notes)
    twice = "line 3: 'state.backend' is there twice, line 2 has it first"
    (said,) = [note for note in notes if twice in note]
    assert said.endswith("this one counts")


def test_the_newer_file_is_yaml_nested_or_flat(here: Path) -> None:
    folder = here / "conf"
    folder.mkdir()
    text = "state:\n  backend:\n    type: rocksdb\nparallelism.default: 3\n"
    (folder / "config.yaml").write_text(text, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLINK_CONF_DIR", str(folder))
        assert settings().state_backend() == "rocksdb"
        assert settings().to_dict()["parallelism.default"] == "3"
        patch.delenv("FLINK_CONF_DIR")
        patch.setenv("WEIR_CONF_DIR", str(folder))
        assert settings().state_backend() == "rocksdb"


def test_our_own_file_is_read_alone(here: Path) -> None:
    (here / "flink-conf.yaml").write_text("state.backend: rocksdb\n", "utf-8")
    (here / "weir-conf.yaml").write_text("parallelism.default: 3\n", "utf-8")
    found = settings()
    assert found.state_backend() == "hashmap"
    assert found.validate() == []


def test_a_configuration_of_somebody_else_is_left_alone(here: Path) -> None:
    for text in ("database: x\n", "- a\n- b\n", "a: *b\n"):
        (here / "config.yaml").write_text(text, "utf-8")
        assert settings().to_dict() == {}
    (here / "config.yaml").write_text("execution.runtime-mode: BATCH\n", "utf-8")
    assert settings().to_dict() == {"execution.runtime-mode": "BATCH"}


def test_a_chosen_directory_without_any_file_is_refused(here: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_CONF_DIR", str(here))
        with pytest.raises(UsageError, match=r"no file 'weir-conf\.yaml'"):
            settings()
