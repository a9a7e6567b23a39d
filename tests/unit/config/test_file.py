"""The configuration file: where it is found, what it may say, how mistakes are explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.config import ambient, file
from weir.config import checkpointing as c
from weir.config import execution as e
from weir.config.effective import Settings
from weir.errors import UsageError


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEIR_CONF_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def write(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weir-conf.yaml").write_text(text)


def parsed(text):
    return file.parse(text, "the file")


def test_the_working_directory_comes_before_the_users_and_the_systems():
    assert file.search_path({"HOME": "/h/u"}) == [
        Path(),
        Path("/h/u/.config/weir"),
        Path("/etc/weir"),
    ]
    assert file.search_path({"HOME": "/h/u", "XDG_CONFIG_HOME": "/x"})[1] == Path("/x/weir")
    assert file.search_path({"HOME": "/h/u", "WEIR_CONF_DIR": "/c"}) == [Path("/c")]


def test_the_first_file_of_the_search_path_is_read_alone(here):
    write(here / "config" / "weir", "parallelism.default: 2\nweir.trigger: 5 s\n")
    assert ambient.layers()[0] == {"parallelism.default": "2", "weir.trigger": "5 s"}
    write(here, "parallelism.default: 3\n")
    assert ambient.layers()[0] == {"parallelism.default": "3"}


def test_the_named_directory_replaces_the_search_and_must_hold_the_file(here, monkeypatch):
    write(here, "parallelism.default: 3")
    other = here / "other"
    monkeypatch.setenv("WEIR_CONF_DIR", str(other))
    with pytest.raises(UsageError, match="WEIR_CONF_DIR"):
        ambient.layers()
    write(other, "")
    assert ambient.layers()[0] == {}


def test_nested_and_dotted_keys_are_the_same():
    assert parsed("parallelism.default: 3\nweir:\n  trigger: 5 s\n") == {
        "parallelism.default": "3",
        "weir.trigger": "5 s",
    }
    parameters = "pipeline.global-job-parameters:\n  a: 1\n"
    assert Settings([parsed(parameters)]).get(e.GLOBAL_JOB_PARAMETERS) == {"a": "1"}


def test_values_are_text_so_yaml_never_reads_a_truth_into_off():
    settings = Settings([parsed("restart-strategy.type: off\npipeline.jars: [a, b]\n")])
    assert settings.get(e.RESTART_STRATEGY) == "none"
    assert settings.get(e.PIPELINE_JARS) == ("a", "b")


def test_a_key_without_a_value_is_not_set():
    assert parsed("parallelism.default:\nweir.trigger: ~\npipeline.name: ''\n") == {
        "pipeline.name": ""
    }


def test_the_seeds_old_spellings_are_understood():
    settings = Settings(
        [
            parsed(
                "state.backend: filesystem\n"
                "state.checkpoints.dir: hdfs://namenode:40010/flink/checkpoints\n"
                "state.savepoints.dir: hdfs://namenode:40010/flink/savepoints\n"
            )
        ]
    )
    assert settings.validate() == []
    assert (settings.state_backend(), settings.checkpoint_storage()) == ("hashmap", "filesystem")
    assert settings.get(c.CHECKPOINT_DIR) == "hdfs://namenode:40010/flink/checkpoints"
    assert settings.get(c.SAVEPOINT_DIR) == "hdfs://namenode:40010/flink/savepoints"


def test_spellings_that_disagree_are_warned_about_and_the_new_one_counts():
    text = "state.savepoints.dir: /old\nexecution.checkpointing.savepoint-dir: /new\n"
    settings = Settings([parsed(text)])
    (warning,) = settings.validate()
    assert settings.get(c.SAVEPOINT_DIR) == "/new"
    assert "'execution.checkpointing.savepoint-dir' counts" in warning
    assert "'state.savepoints.dir' (the file, line 1)" in warning
    assert Settings([parsed(text.replace("/old", "/new"))]).validate() == []


def test_a_key_that_is_there_twice_is_warned_about_and_the_last_one_counts():
    layer = parsed("weir.trigger: 1 s\nweir:\n  trigger: 2 s\n")
    assert layer == {"weir.trigger": "2 s"}
    (warning,) = Settings([layer]).validate()
    assert "the file, line 3: 'weir.trigger' is there twice" in warning


def test_a_misspelt_key_is_refused_with_its_line():
    settings = Settings([parsed("a: b\nexecution.checkpointing.intervall: 1 s\n")])
    with pytest.raises(UsageError) as caught:
        settings.validate()
    assert "in the file, line 2; did you mean 'execution.checkpointing.interval'" in str(
        caught.value
    )


def test_a_key_outside_of_our_namespaces_that_is_nearly_ours_is_worth_a_warning():
    (warning,) = Settings([{"stat.backend.type": "rocksdb"}]).validate()
    assert "did you mean 'state.backend.type'?" in warning


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        ("- a\n- b\n", "expected lines of 'key: value'"),
        ("just words", "expected lines of 'key: value'"),
        ("a: 1\nb: [\n", r"line 3, column 1"),
        ("a: 1\nweir:\n\ttrigger: 5 s\n", r"line 3, column 1: there is a tab character"),
        ("a: 1\nb: c: d\n", r"line 2, column 5"),
    ],
)
def test_a_broken_file_is_explained_by_line(here, text, explained):
    write(here, text)
    with pytest.raises(UsageError, match=rf"weir-conf\.yaml.*{explained}"):
        ambient.layers()


def test_an_explanation_never_quotes_a_line():
    with pytest.raises(UsageError) as caught:
        parsed("s3.secret-key: hunter2: x\n")
    assert "hunter2" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused(here):
    (here / "weir-conf.yaml").write_bytes(b"a: \xff")
    with pytest.raises(UsageError, match="cannot be read"):
        ambient.layers()
