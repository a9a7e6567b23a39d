"""What Spark's configuration will say is known before Spark runs, or somebody else decides."""

from __future__ import annotations

import pytest

from weir.errors import UsageError
from weir.spark import expected
from weir.spark.expected import expected_settings, refuse_shared_threads


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    # Other tests of this process may have started one.
    monkeypatch.setattr(expected, "_is_running", lambda: False)


def test_without_a_file_of_defaults_nothing_is_said():
    assert expected_settings() == {}


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_the_file_of_defaults_is_read_as_spark_reads_it(tmp_path, monkeypatch, variable):
    folder = tmp_path if variable == "SPARK_CONF_DIR" else tmp_path / "conf"
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text(
        "# spark.weir.no 1\nspark.master local[3]\n\n"
        "spark.weir.parallelism.default  4  \n  spark.weir.a=b\nspark.weir.c : d e\n"
    )
    monkeypatch.setenv(variable, str(tmp_path))
    said = {"spark.weir.parallelism.default": "4", "spark.weir.a": "b", "spark.weir.c": "d e"}
    assert expected_settings() == said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYSPARK_GATEWAY_PORT", "1"),
        ("PYSPARK_SUBMIT_ARGS", "--conf spark.weir.x=y pyspark-shell"),
        ("PYSPARK_SUBMIT_ARGS", "--properties-file f pyspark-shell"),
    ],
)
def test_where_others_configure_spark_nobody_guesses(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert expected_settings() is None


def test_a_master_in_the_arguments_is_no_reason_to_wait(monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master local[2] pyspark-shell")
    assert expected_settings() == {}


def test_shared_threads_are_refused(monkeypatch):
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(UsageError, match="PYSPARK_PIN_THREAD is off"):
        refuse_shared_threads()
