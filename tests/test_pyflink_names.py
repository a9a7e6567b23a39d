"""Every public name and parameter of PyFlink's DataStream API is here, or is left out on purpose.

`tests/pyflink_names.txt` holds PyFlink's names as facts, written by `scripts/pyflink_names.py`.
"""

from __future__ import annotations

import importlib
import re
from functools import cache

import pytest
from tests.pyflink_facts import gaps, names

# Members and parameters that Weir leaves out, and why. A new gap has to be closed or added here.
LEFT_OUT = {
    r".*\.(get_java_\w+|to_j_row_kind|get_transformer)": "hands out an object of Java",
    r"[\w.]+ \w*TypeInfo\w*\.(need_conversion|(to|from)_internal_type)": "PyFlink's way to Java's "
    "rows; values are kept as they are",
    r"common\.typeinfo \w+\.EPOCH_ORDINAL": "a constant of that conversion",
    r"common\.typeinfo \w+\.__init__\(basic_type\)": "made by Types.X()",
    r"common\.restart_strategy RestartStrategies\.\w+\.__init__\(\w+\)": "made by "
    "RestartStrategies.fixed_delay_restart() and its like",
    r"common\.completable_future CompletableFuture\.__init__\(py_class\)": "made by Weir",
    r"datastream\.data_stream \w+\.__init__\(\w+\)": "streams are made by streams",
    r"datastream\.stream_execution_environment \w+\.__init__\(serializer\)": "made by "
    "get_execution_environment()",
    r"datastream\.state StateTtlConfig\.CleanupStrategies.*__init__\(\w+\)": "made by the builder",
    r"metrics\.metricbase \w+\.__init__\(inner_\w+\)": "made by a MetricGroup",
    r"datastream\.connectors(\.base)? (Source|Sink)\.__init__\((source|sink)\)": "wraps Java's",
    r"datastream\.connectors\.file_system FileSink\.__init__\(transformer\)": "made by the builder",
    r"datastream\.functions (Source|Sink)Function\.__init__\(\w+\)": "wraps Java's; here a "
    "program writes its own",
    r"datastream\.functions ProcessWindowFunction\.process\(content\)": "called by place",
    r"datastream\.window \w+\.register_next_fire_timestamp": "a private step of the trigger",
    r"datastream\.data_stream KeyedStream\.AccumulateType": "PyFlink's private enumeration",
    r"datastream\.connectors\.kafka KafkaSink\.__init__\(transformer\)": "made by the builder",
    r"datastream\.connectors\.kafka \w+Schema\.__init__\(topic_selector\)": "made by the builder",
    r"datastream\.connectors(\.kafka)? FlinkKafkaConsumer\.disable_filter_restored\w+": "a switch "
    "of Flink's own consumer",
}


@cache
def found() -> list[str]:
    return list(dict.fromkeys(gaps()))


def helpful(gap: str) -> bool:
    """Tell whether importing the name says what to use instead."""
    module, _, name = gap.partition(" ")
    if not name:
        return False
    try:
        getattr(importlib.import_module(f"weir.{module}"), name.partition(".")[0])
    except ImportError as error:
        return f"weir.{module}." in str(error) and "is not in Weir: it" in str(error)
    except AttributeError:
        return False
    return False


def test_what_pyflink_has_is_here_or_says_what_to_use_or_is_left_out_for_a_reason() -> None:
    unexplained = [
        gap
        for gap in found()
        if not helpful(gap) and not any(re.fullmatch(row, gap) for row in LEFT_OUT)
    ]
    assert unexplained == []


@pytest.mark.parametrize("row", LEFT_OUT)
def test_a_reason_stands_for_something_that_is_left_out(row: str) -> None:
    assert any(re.fullmatch(row, gap) for gap in found())


def test_the_facts_cover_three_versions_of_pyflink() -> None:
    facts = names()
    assert len(facts) > 60
    assert "merge" in facts["datastream.functions"]["AggregateFunction"].members
    assert facts["datastream.data_stream"]["DataStream"].members["map"] == [["func", "output_type"]]


@pytest.mark.parametrize(
    ("module", "name", "says"),
    [
        ("datastream.connectors.pulsar", "PulsarSource", r"readStream\.format\('pulsar'\)"),
        ("datastream.connectors", "RMQSink", "TwoPhaseCommitSinkFunction"),
        ("datastream.connectors.kinesis", "KinesisStreamsSink", "foreach_batch"),
        ("datastream.connectors.hybrid_source", "HybridSource", "union"),
        ("common", "AssignerWithPeriodicWatermarksWrapper", "for_generator"),
        ("datastream.functions", "JavaFunctionWrapper", "Java"),
        ("common", "AvroRowSerializationSchema", r"weir\.datastream\.formats\.avro"),
        ("datastream.formats.csv", "RowDataBulkWriterFactory", "CsvBulkWriters"),
    ],
)
def test_importing_what_is_not_here_says_what_to_use(module: str, name: str, says: str) -> None:
    with pytest.raises(ImportError, match=says):
        exec(f"from weir.{module} import {name}")


def test_a_name_that_nobody_knows_is_an_ordinary_error() -> None:
    module = importlib.import_module("weir.datastream.connectors.pulsar")
    assert not hasattr(module, "PulsarSauce")
    with pytest.raises(ImportError, match="cannot import name 'PulsarSauce'"):
        exec("from weir.datastream.connectors.pulsar import PulsarSauce")


def test_the_table_api_is_refused_with_what_to_use() -> None:
    with pytest.raises(ImportError, match=r"there is no Table API.*use Spark SQL"):
        exec("from weir.table import StreamTableEnvironment")
    exec("from weir.table import DataTypes\nfrom weir.table.types import RowType")
