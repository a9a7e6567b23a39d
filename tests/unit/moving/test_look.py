"""What `weir check` says about programs, by their text alone."""

from __future__ import annotations

import importlib
import textwrap

import pytest

from weir.config.effects import WITHOUT_EFFECT
from weir.errors import UsageError
from weir.moving.facts import FACTS, INSTEAD, METHODS, Meets
from weir.moving.look import _members, look_at


def look(text, package="pyflink"):
    head = f"from {package}.datastream import StreamExecutionEnvironment\n"
    found = look_at(head + textwrap.dedent(text), "job.py")
    return [(f.meets.value, f.what, f.line) for f in found]


@pytest.mark.parametrize("package", ["pyflink", "weir"])
def test_a_program_without_surprises_has_no_findings(package):
    text = f"""
    from {package}.common import Types, WatermarkStrategy
    from {package}.datastream.functions import KeyedProcessFunction
    import {package}.datastream.state as states
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_config().set_parallelism(2)
    descriptor = states.ValueStateDescriptor("x", Types.LONG())
    env.from_collection([1]).map(lambda v: v).uid("m").sink_to(None)
    """
    assert look(text, package) == []


@pytest.mark.parametrize("package", ["pyflink", "weir"])
def test_names_that_are_not_there_are_refused_with_what_to_do(package):
    text = f"""
    from {package}.table import StreamTableEnvironment, EnvironmentSettings
    from {package}.datastream.no_such_module import Thing
    from {package}.common import NoSuchName
    import {package}.ml
    """
    refused = [what for meets, what, _ in look(text, package) if meets == "refused"]
    assert refused == [
        f"{package}.table.StreamTableEnvironment",
        f"{package}.table.EnvironmentSettings",
        f"{package}.datastream.no_such_module.Thing",
        f"{package}.common.NoSuchName",
        f"{package}.ml",
    ]
    first = look_at(f"from {package}.table import TableEnvironment", "job.py")[0]
    assert "use Spark SQL" in first.text


def test_names_are_followed_through_modules_and_aliases():
    text = """
    import pyflink.datastream as ds
    import pyflink.common.typeinfo
    one = ds.StreamExecutionEnvironment
    two = ds.NoSuchClass()
    three = pyflink.common.typeinfo.Types.LONG()
    """
    assert look(text) == [("refused", "pyflink.datastream.NoSuchClass", 6)]


def test_what_is_ignored_and_what_differs_is_said_once_each():
    text = """
    stream = env.from_collection([1]).start_new_chain()
    stream.start_new_chain().print()
    stream.count_window(3)
    env.set_buffer_timeout(5)
    """
    assert look(text) == [
        ("ignored", "start_new_chain()", 3),
        ("different", "print()", 4),
        ("different", "count_window()", 5),
        ("ignored", "set_buffer_timeout()", 6),
    ]


def test_settings_without_effect_and_misspelt_ones_are_found():
    text = """
    config.set_string("pipeline.object-reuse", "true")
    config.set_string("execution.checkpointing.intervall", "1 s")
    config.set_string("execution.checkpointing.interval", "1 s")
    names = {"pipeline.closure-cleaner-level": "NONE", "not.a.key": 1, "client.id": "a"}
    config.set_string("akka.framesize", "1 mb")
    texts.set("just a sentence. Or two")
    """
    assert look(text) == [
        ("ignored", "pipeline.object-reuse", 3),
        ("refused", "execution.checkpointing.intervall", 4),
        ("ignored", "pipeline.closure-cleaner-level", 6),
        ("ignored", "akka.framesize", 7),
    ]


def test_what_leads_to_java_is_refused():
    assert look("stream._j_data_stream.x\nenv.get_java_thing()") == [
        ("refused", "_j_data_stream", 2),
        ("refused", "get_java_thing", 3),
    ]


def test_state_without_any_uid_is_worth_one_word_of_advice():
    stateful = "stream.key_by(f).reduce(g)\nstream.key_by(f).sum(1)\n"
    assert look(stateful) == [("advice", "uid", 2)]
    assert look(stateful + "stream.uid('x')") == []


def test_a_program_is_never_run(tmp_path):
    text = f"open({str(tmp_path / 'made')!r}, 'w')\nraise SystemExit(3)\n"
    assert look(text) == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_program_is_refused():
    with pytest.raises(UsageError, match=r"'job\.py' cannot be read as Python, line 1"):
        look_at("from pyflink import (", "job.py")
    with pytest.raises(UsageError, match="imports neither pyflink nor weir"):
        look_at("print(1)", "job.py")
    with pytest.raises(UsageError, match="cannot be read as Python"):
        look_at("import pyflink\0", "job.py")


# ---- the table is true ---------------------------------------------------------------------------


def test_calls_that_are_ignored_or_different_exist_here():
    names = {call for f in FACTS if f.meets is not Meets.REFUSED for call in f.calls}
    names -= {"add_default_kryo_serializer", "register_kryo_type", "register_pojo_type"}
    names -= {"register_type_with_kryo_serializer"}  # in some of PyFlink's versions only
    assert names - _members() == set()


def test_calls_that_are_refused_are_refused():
    from weir.common import Types
    from weir.datastream import StreamExecutionEnvironment
    from weir.datastream.connectors.file_system import (
        FileCompactor,
        FileCompactStrategy,
        FileSink,
        FileSource,
        ParquetBulkWriters,
        StreamFormat,
    )

    refused = {call for f in FACTS if f.meets is Meets.REFUSED for call in f.calls}
    java = {"set_file_enumerator", "set_split_assigner"}
    assert refused == java
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(UsageError):
        env.create_input(None)
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "x")
    for name in java:
        with pytest.raises(UsageError):
            getattr(builder, name)(None)
    row = Types.ROW_NAMED(["id"], [Types.LONG()])
    strategy = FileCompactStrategy.builder().set_size_threshold(1).build()
    parquet = FileSink.for_bulk_format("x", ParquetBulkWriters.for_row_type(row))
    with pytest.raises(UsageError):
        parquet.enable_compact(strategy, FileCompactor.concat_file_compactor())


def test_advice_is_for_what_is_not_there():
    """What came to exist needs no advice any more: take it out of the tables."""
    for inside in ("java_gateway", "fn_execution", "dataset", "ml"):
        assert inside in INSTEAD
        with pytest.raises(ImportError):
            importlib.import_module(f"weir.{inside}")
    assert [name for name in METHODS if name in _members()] == []


def test_options_are_those_that_the_code_knows_as_without_effect():
    text = "\n".join(f"c.set({key!r}, 1)" for key in WITHOUT_EFFECT)
    assert [what for meets, what, _ in look(text) if meets == "ignored"] == list(WITHOUT_EFFECT)
