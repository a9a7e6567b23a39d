"""Settings from outside the program."""

from __future__ import annotations

import pytest

from weir.common import Configuration
from weir.config import ambient
from weir.config.effective import Settings
from weir.config.execution import PARALLELISM, PIPELINE_NAME, TRIGGER
from weir.datastream import StreamExecutionEnvironment
from weir.errors import UsageError


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEIR_CONF_DIR", raising=False)
    yield tmp_path
    ambient.set_overrides({})


def test_without_a_file_and_a_command_line_there_is_nothing(here):
    assert ambient.layers() == [{}, {}]


def test_nested_and_dotted_keys_of_the_file_are_the_same(here):
    (here / "weir-conf.yaml").write_text("parallelism.default: 3\nweir:\n  trigger: 5 s\n")
    assert ambient.layers()[0] == {"parallelism.default": 3, "weir.trigger": "5 s"}


def test_the_command_line_is_stronger_than_the_file_and_spark_than_both(here):
    (here / "weir-conf.yaml").write_text("parallelism.default: 3\nweir.trigger: 5 s\n")
    ambient.set_overrides({"parallelism.default": "4"})
    assert Settings(ambient.layers()).get(PARALLELISM) == 4
    spark = ambient.spark_layer({"spark.weir.parallelism.default": "5", "spark.app.name": "x"})
    settings = Settings([*ambient.layers(), spark])
    assert (settings.get(PARALLELISM), settings.get(TRIGGER)) == (5, "5 s")


def test_our_own_keys_need_not_say_weir_twice_in_spark():
    found = ambient.spark_layer({"spark.weir.trigger": "1 s", "spark.weir.weir.log.dir": "/l"})
    assert found == {"weir.trigger": "1 s", "weir.log.dir": "/l"}


def test_the_named_directory_comes_first_and_must_hold_the_file(here, monkeypatch):
    (here / "weir-conf.yaml").write_text("parallelism.default: 3")
    other = here / "other"
    other.mkdir()
    monkeypatch.setenv("WEIR_CONF_DIR", str(other))
    with pytest.raises(UsageError, match="WEIR_CONF_DIR"):
        ambient.layers()
    (other / "weir-conf.yaml").write_text("")
    assert ambient.layers()[0] == {}


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "just words"])
def test_a_file_that_is_no_mapping_is_refused(here, text):
    (here / "weir-conf.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"weir-conf\.yaml"):
        ambient.layers()


def test_a_job_is_named_by_the_call_then_the_program_then_the_command_line(here):
    env = StreamExecutionEnvironment(Configuration())
    ambient.set_overrides({PIPELINE_NAME.key: "outside"})
    assert env._job_name(None) == "outside"
    env.get_configuration().set(PIPELINE_NAME.key, "inside")
    assert env._job_name(None) == "inside"
    assert env._job_name("given") == "given"
