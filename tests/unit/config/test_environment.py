"""Settings from environment variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weir.config import ALL_OPTIONS
from weir.config import checkpointing as c
from weir.config.effective import Settings
from weir.config.environment import NO_SETTINGS, environment_layer, variable_of
from weir.config.execution import TRIGGER
from weir.errors import UsageError

SOURCE = Path(__file__).resolve().parents[3] / "src" / "weir"


def test_a_variable_is_named_by_the_key_in_capitals():
    layer = environment_layer(
        {
            "WEIR_EXECUTION_CHECKPOINTING_INTERVAL": "10s",
            "WEIR_TRIGGER": "5 s",
            "PATH": "/bin",
        }
    )
    assert layer == {"execution.checkpointing.interval": "10s", "weir.trigger": "5 s"}
    assert environment_layer({"WEIR_WEIR_TRIGGER": "5 s"}) == {"weir.trigger": "5 s"}
    assert Settings([layer]).get(c.INTERVAL) == 10_000


def test_every_option_has_a_variable_that_is_its_own():
    for option in ALL_OPTIONS:
        name = variable_of(option.key)
        assert name not in NO_SETTINGS, name
        layer = environment_layer({name: "1"})
        assert list(layer.items()) == [(option.key, "1")], name
        assert layer.notes == ()


def test_old_spellings_have_variables_too():
    layer = environment_layer({"WEIR_STATE_CHECKPOINTS_DIR": "/chk"})
    assert Settings([layer]).get(c.CHECKPOINT_DIR) == "/chk"


def test_lines_of_properties_are_settings_and_single_variables_are_stronger():
    lines = "state.savepoints.dir: /lines\nweir.trigger: 1 s\n"
    layer = environment_layer({"WEIR_PROPERTIES": lines})
    assert Settings([layer]).get(c.SAVEPOINT_DIR) == "/lines"
    single = {"WEIR_EXECUTION_CHECKPOINTING_SAVEPOINT_DIR": "/single", "WEIR_PROPERTIES": lines}
    settings = Settings([environment_layer(single)])
    assert settings.get(c.SAVEPOINT_DIR) == "/single"
    assert settings.get(TRIGGER) == "1 s"
    assert settings.validate() == []


def test_properties_that_are_no_lines_are_refused_by_the_variables_name():
    with pytest.raises(UsageError, match="environment variable WEIR_PROPERTIES"):
        environment_layer({"WEIR_PROPERTIES": "interval=10"})


@pytest.mark.parametrize("name", sorted(NO_SETTINGS - {"WEIR_PROPERTIES"}))
def test_variables_of_other_purposes_are_no_settings(name):
    layer = environment_layer({name: "x"})
    assert layer == {}
    assert layer.notes == ()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "WEIR_EXECUTION_CHECKPOINTING_INTERVALL",
            "did you mean WEIR_EXECUTION_CHECKPOINTING_INTERVAL?",
        ),
        ("WEIR_STATE_BACKND_TYPE", "did you mean WEIR_STATE_BACKEND_TYPE?"),
        ("WEIR_TRIGER", "did you mean WEIR_TRIGGER?"),
        ("WEIR_EXECUTION_NO_SUCH_THING_ANYWHERE", "names no setting"),
    ],
)
def test_a_variable_that_looks_like_a_setting_and_is_none_is_worth_a_warning(name, hint):
    layer = environment_layer({name: "x"})
    assert layer == {}
    (note,) = Settings([layer]).validate()
    assert name in note
    assert hint in note


def test_variables_of_strangers_are_left_alone():
    assert environment_layer({"WEIR_UNRELATED": "x"}).notes == ()


def test_an_old_spelling_that_two_options_share_sets_both():
    settings = Settings([environment_layer({"WEIR_STATE_BACKEND_LOCAL_RECOVERY": "true"})])
    assert settings.get(c.LOCAL_BACKUP) is True
    assert settings.get(c.RECOVERY_FROM_LOCAL) is True


def test_a_variable_that_may_mean_two_options_is_ignored_with_a_warning():
    names = {"WEIR_X": {c.INTERVAL.key, c.TIMEOUT.key}}
    layer = environment_layer({"WEIR_X": "1 s"}, names)
    assert layer == {}
    (note,) = layer.notes
    assert f"it may mean {c.INTERVAL.key!r} or {c.TIMEOUT.key!r}" in note


def test_every_variable_that_the_code_reads_itself_is_no_setting():
    files = [path for path in SOURCE.rglob("*.py") if path.name != "environment.py"]
    code = "".join(path.read_text("utf-8") for path in files)
    named = set(re.findall(r"[\"'](WEIR_[A-Z_]*[A-Z])[\"']", code))
    assert "WEIR_CONF_DIR" in named
    assert named - NO_SETTINGS == set()
