"""Names of PyFlink 1.13 to 1.16, and of Java, do what they did or say that they do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir import metrics
from weir.common import Encoder, JobClient, Types
from weir.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from weir.common.serialization import RowFieldExtractorSchema
from weir.common.typeinfo import BasicTypeInfo
from weir.datastream import (
    CheckpointConfig,
    ExternalizedCheckpointCleanup,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.connectors import (
    FileSink,
    FileSource,
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
    StreamingFileSink,
)
from weir.datastream.functions import ProcessAllWindowFunction, ProcessWindowFunction
from weir.datastream.state import FoldingState, FoldingStateDescriptor
from weir.datastream.window import EventTimeSessionWindows, TimeWindow
from weir.errors import UsageError
from weir.metrics import metricbase
from weir.state.descriptor import AggregatingStateDescriptor
from weir.testing.harness import JobHarness, collect


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def test_names_at_their_older_places() -> None:
    assert metricbase.Counter is metrics.Counter
    assert CheckpointConfig.ExternalizedCheckpointCleanup is ExternalizedCheckpointCleanup
    assert JobClient.__module__ == "weir.common.job_client"
    assert (MIN_LONG_VALUE, MAX_LONG_VALUE) == (-9223372036854775808, 9223372036854775807)


def test_nested_builders_are_the_builders() -> None:
    builder = OutputFileConfig.builder()
    assert isinstance(builder, OutputFileConfig.OutputFileConfigBuilder)
    assert isinstance(FileSink.for_row_format("/out", Encoder()), FileSink.RowFormatBuilder)


def test_the_older_file_sink_is_added_as_a_function_and_writes_the_same_files(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    builder = StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    names = OutputFileConfig.builder().with_part_prefix("old").with_part_suffix(".txt").build()
    policy = RollingPolicy.default_rolling_policy()
    sink = builder.with_rolling_policy(policy=policy).with_output_file_config(names).build()
    words = env.from_collection(["ab", "c"], Types.STRING())
    words.map(str.upper, Types.STRING()).add_sink(sink)
    JobHarness(env.build_graph(), 2).start().run()
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert all(p.name.startswith("old-") and p.suffix == ".txt" for p in files)
    assert sorted("".join(p.read_text() for p in files).split()) == ["AB", "C"]


def test_files_are_joined_by_a_strategy_and_a_compactor_only() -> None:
    builder = FileSink.for_row_format("/out", Encoder.simple_string_encoder())
    assert builder.disable_compact() is builder
    with pytest.raises(UsageError, match="expected a FileCompactStrategy and a FileCompactor"):
        builder.enable_compact(None, None)


def test_options_of_jdbc_have_their_getters() -> None:
    built = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:postgresql://h/d")
    built = built.with_user_name("u").with_password("p").with_driver_name("d").build()
    found = (built.get_db_url(), built.get_user_name(), built.get_password())
    assert (*found, built.get_driver_name()) == ("jdbc:postgresql://h/d", "u", "p", "d")
    options = JdbcExecutionOptions.Builder().with_batch_size(size=7).build()
    assert (options.get_batch_size(), options.get_batch_interval_ms()) == (7, 0)
    assert JdbcExecutionOptions.defaults().get_max_retries() == 3


def test_every_basic_type_has_its_older_spelling() -> None:
    assert BasicTypeInfo.LONG_TYPE_INFO() == Types.LONG()
    assert BasicTypeInfo.BIG_DEC_TYPE_INFO() == Types.BIG_DEC()
    assert BasicTypeInfo.INSTANT_TYPE_INFO() == Types.INSTANT()


def test_java_types_are_kept_and_said_to_have_no_effect(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    env.register_type("com.A")
    env.add_default_kryo_serializer("com.A", "com.S")
    config = env.get_config().register_type_with_kryo_serializer("com.B", "com.T")
    assert config.register_kryo_type("com.C").get_registered_kryo_types() == ["com.C"]
    assert config.get_registered_pojo_types() == ["com.A"]
    assert config.get_default_kryo_serializer_classes() == {"com.A": "com.S"}
    assert config.get_registered_types_with_kryo_serializer_classes() == {"com.B": "com.T"}
    assert not config.is_auto_type_registration_disabled()
    assert config.disable_auto_type_registration().is_auto_type_registration_disabled()


def test_the_cache_of_a_stream_changes_nothing(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection([1]).key_by(lambda v: v)
    assert keyed.cache() is keyed


def test_formats_and_enumerators_of_java_are_refused(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(UsageError, match="from_dataframe"):
        env.create_input(object())
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/in")
    with pytest.raises(UsageError, match="pathGlobFilter"):
        builder.set_file_enumerator(object())
    with pytest.raises(UsageError, match="leave it out"):
        builder.set_split_assigner(object())


def test_the_context_of_a_window_function_takes_the_type_of_the_window() -> None:
    # Without deferred annotations, which PyFlink's own examples do not have, this is evaluated.
    assert ProcessWindowFunction.Context[TimeWindow]
    assert ProcessAllWindowFunction.Context[TimeWindow]


def test_gaps_of_sessions_have_pyflinks_keyword() -> None:
    assert EventTimeSessionWindows.with_dynamic_gap(extractor=lambda value: 5)


def test_a_field_of_a_row_is_the_message() -> None:
    assert RowFieldExtractorSchema(field_index=1).serialize(("k", b"v")) == b"v"
    assert RowFieldExtractorSchema(0).serialize((None,)) == b""
    for row in (("k",), (1, "text")):
        with pytest.raises(UsageError, match=r"RowFieldExtractorSchema\(1\)"):
            RowFieldExtractorSchema(1).serialize(row)
    with pytest.raises(ValueError, match="non-negative"):
        RowFieldExtractorSchema(-1)


WORDS = FoldingStateDescriptor("words", [], lambda seen, word: [*seen, word], None)


class Fold(KeyedProcessFunction):
    """Emits what was folded, before and after."""

    def open(self, runtime_context):
        self.words = runtime_context.get_folding_state(WORDS)

    def process_element(self, value, ctx):
        before = self.words.get()
        self.words.add(value[1])
        yield before, self.words.get()
        if value[1] == "clear":
            self.words.clear()


def test_folding_state_begins_with_a_copy_and_survives(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([]).key_by(lambda v: v[0])
    collect(stream.process(Fold()).uid("fold"))
    job = JobHarness(env.build_graph(), parallelism=1).start()
    job.run_epoch([("a", "x"), ("b", "y"), ("a", "z")], checkpoint=True)
    job.fail_over()
    job.run_epoch([("a", "clear"), ("a", "new")], checkpoint=True)
    assert sorted(job.collected(), key=str) == sorted(
        [
            (None, ["x"]),
            (None, ["y"]),
            (["x"], ["x", "z"]),
            (["x", "z"], ["x", "z", "clear"]),
            (None, ["new"]),
        ],
        key=str,
    )
    assert WORDS.initial_value == []


def test_a_fold_cannot_merge_and_needs_a_function() -> None:
    assert issubclass(FoldingStateDescriptor, AggregatingStateDescriptor)
    assert FoldingState is not None
    with pytest.raises(UsageError, match="cannot be merged"):
        WORDS.get_agg_function().merge([], [])
    with pytest.raises(UsageError, match="expects a fold function, found 7"):
        FoldingStateDescriptor("f", 0, 7)
