"""Settings from outside the program, and which of them is stronger."""

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
    for name in ("WEIR_CONF_DIR", "WEIR_PROPERTIES", "WEIR_PARALLELISM_DEFAULT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    yield tmp_path
    ambient.set_overrides({})


def test_without_a_file_variables_and_a_command_line_there_is_nothing(here):
    assert ambient.layers() == [{}, {}, {}, {}]


def test_each_layer_is_stronger_than_the_one_before(here, monkeypatch):
    program = {"parallelism.default": "5"}
    spark = {"spark.weir.parallelism.default": "2", "spark.app.name": "x"}

    def found(*, conf=None, code=None):
        layers = [*ambient.layers(conf), ambient.program_layer(code or {})]
        return Settings(layers).get(PARALLELISM)

    (here / "weir-conf.yaml").write_text("parallelism.default: 1\nweir.trigger: 5 s\n")
    assert found() == 1
    assert found(conf=spark) == 2
    monkeypatch.setenv("WEIR_PARALLELISM_DEFAULT", "3")
    assert found(conf=spark) == 3
    ambient.set_overrides({"parallelism.default": "4"})
    assert found(conf=spark) == 4
    assert found(conf=spark, code=program) == 5
    assert Settings(ambient.layers(spark)).get(TRIGGER) == "5 s"


def test_our_own_keys_need_not_say_weir_twice_in_spark():
    found = ambient.spark_layer({"spark.weir.trigger": "1 s", "spark.weir.weir.log.dir": "/l"})
    assert found == {"weir.trigger": "1 s", "weir.log.dir": "/l"}


@pytest.mark.parametrize(
    ("layer", "place"),
    [
        ("file", r"weir-conf\.yaml', line 2"),
        ("spark", r"Spark's configuration \(spark\.weir\.parallelism\.default\)"),
        ("variable", r"the environment variable WEIR_PARALLELISM_DEFAULT"),
        ("lines", r"the environment variable WEIR_PROPERTIES, line 1"),
        ("command", r"the command line"),
        ("program", r"the program"),
    ],
)
def test_a_bad_value_is_refused_with_the_place_where_it_was_set(here, monkeypatch, layer, place):
    conf, code = {}, {}
    if layer == "file":
        (here / "weir-conf.yaml").write_text("# many\nparallelism.default: many\n")
    elif layer == "spark":
        conf = {"spark.weir.parallelism.default": "many"}
    elif layer == "variable":
        monkeypatch.setenv("WEIR_PARALLELISM_DEFAULT", "many")
    elif layer == "lines":
        monkeypatch.setenv("WEIR_PROPERTIES", "parallelism.default: many")
    elif layer == "command":
        ambient.set_overrides({"parallelism.default": "many"})
    else:
        code = {"parallelism.default": "many"}
    settings = Settings([*ambient.layers(conf), ambient.program_layer(code)])
    with pytest.raises(UsageError, match=rf"'parallelism\.default': found 'many'.*{place}"):
        settings.validate()


def test_it_can_be_asked_where_a_value_comes_from(here):
    ambient.set_overrides({"parallelism.default": "4"})
    settings = Settings(ambient.layers())
    assert settings.where(PARALLELISM) == "the command line"
    assert settings.where(TRIGGER) == ""


def test_a_job_is_named_by_the_call_then_the_program_then_the_command_line(here):
    env = StreamExecutionEnvironment(Configuration())
    ambient.set_overrides({PIPELINE_NAME.key: "outside"})
    assert env._job_name(None) == "outside"
    env.get_configuration().set(PIPELINE_NAME.key, "inside")
    assert env._job_name(None) == "inside"
    assert env._job_name("given") == "given"
