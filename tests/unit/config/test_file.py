"""The configuration file: where it is found, what it may say, how mistakes are explained."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_the_spellings_of_older_releases_of_flink_are_understood():
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


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        ("weir.trigger: 1 s\nweir.trigger: 2 s\n", "line 2.*'weir.trigger' is there twice, line 1"),
        ("weir.trigger: 1 s\nweir:\n  trigger: 2 s\n", "line 3: 'weir.trigger' .*twice, line 1"),
        ("weir.trigger:\nweir:\n  trigger: 2 s\n", "line 3: 'weir.trigger' .*twice, line 1"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", "line 4.*'b' is there twice, line 2"),
        ("pipeline.global-job-parameters: {x: 1, x: 2}\n", "line 1.*'x' is there twice"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_both_lines(text, explained):
    with pytest.raises(UsageError, match=f"the file, {explained}"):
        parsed(text)


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
        ("a: 1\nb: \0\n", r"line 2: there is the character U\+0000"),
        ("a: 1\nb: \x1b[31m\n", r"line 2: there is the character U\+001B"),
        ('a: 1\nb: "\\0"\n', "line 2, column 4: there is an escape"),
        ('a: 1\nb: "\\ud800"\n', "line 2, column 4: there is an escape"),
        ('a: 1\nb: "\\Uffffffff"\n', "is not valid YAML"),
        ("a: " + "[" * 100_000, "line 1, column 36: it is nested deeper than 32 levels"),
        ("".join(f"{' ' * n}a:\n" for n in range(200)), "line 32, column 32: it is nested"),
        ("a: &x 1\nb: *x\n", r"line 2, column 4: aliases \(\*name\) are not taken"),
        ("a: &x [*x]\n", "aliases"),
        ("a: 1\n? [b]\n: c\n", "line 2, column 3: a key has to be plain text"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1"),
        ("# no settings\n" * 20_000, "is too large: at most 131072 bytes"),
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
    (here / "weir-conf.yaml").write_bytes(b"a: 1\nb: \xff")
    with pytest.raises(
        UsageError, match=r"weir-conf\.yaml', line 2: cannot be read, it is not UTF-8"
    ):
        ambient.layers()


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_key(here):
    (here / "weir-conf.yaml").write_bytes(b"\xef\xbb\xbfpipeline.name: a\n")
    assert ambient.layers()[0] == {"pipeline.name": "a"}


LAUGHS = "a: &a [lol, lol]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(24)
)


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        "[" * file.SIZE_MAX,
        "{a: " * (file.SIZE_MAX // 4),
        "- " * (file.SIZE_MAX // 2),
        "? " * (file.SIZE_MAX // 2),
        "!" * file.SIZE_MAX,
        "&" * file.SIZE_MAX,
        "%YAML " + "9" * 10_000,
        "\0" * file.SIZE_MAX,
        'a: "' + "\\" * (file.SIZE_MAX - 5),
    ],
)
def test_a_file_made_to_harm_is_refused_soon(text):
    began = time.monotonic()
    with pytest.raises(UsageError, match="the file"):
        parsed(text)
    assert time.monotonic() - began < 1


@given(st.text("ab:-?[]{},&*!|>'\"%@`#\\\t\n 0x~.\0\ud800é", max_size=60))
def test_any_text_gives_settings_or_an_error_that_names_the_file(text):
    try:
        layer = parsed(text)
    except UsageError as error:
        explained = str(error)
    else:
        explained = layer.origin
        assert all(isinstance(key, str) for key in layer)
    assert "the file" in explained
