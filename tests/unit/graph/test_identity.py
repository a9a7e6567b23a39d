"""Ids of operators without a uid: what changes them and what does not."""

from __future__ import annotations

import pytest

from weir.common import Encoder, Types
from weir.connector.file_sink import FileSink
from weir.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from weir.datastream.functions import CheckpointedFunction
from weir.errors import UsageError
from weir.graph.plan import compile_plan
from weir.graph.uids import check_uids, warn_of_missing_uids, without_uid
from weir.ids import operator_id


class Count(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Buffering(MapFunction, CheckpointedFunction):
    def map(self, value):
        return value

    def snapshot_state(self, context):
        pass

    def initialize_state(self, context):
        pass


class Rich(MapFunction):
    def open(self, runtime_context):
        pass

    def map(self, value):
        return value


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def ids(env):
    """The ids by operator name."""
    plan = compile_plan(env.build_graph(), 1)
    return {op.name: op.id for op in plan.operators}


def numbers(env):
    return env.from_collection([1], Types.LONG())


def counted(stream, name="count"):
    return stream.key_by(lambda v: v).process(Count()).name(name)


def program(env):
    counted(numbers(env).name("numbers")).print().name("out")
    return env


def fresh():
    return StreamExecutionEnvironment.get_execution_environment()


def test_the_same_program_has_the_same_ids(env):
    assert ids(program(env)) == ids(program(fresh()))


def test_what_comes_after_changes_nothing(env):
    before = ids(program(fresh()))
    result = counted(numbers(env).name("numbers"))
    result.map(lambda v: v).name("new")
    result.print().name("out")
    after = ids(env)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("first", [True, False])
def test_an_independent_branch_changes_nothing(env, first):
    before = ids(program(fresh()))

    def branch():
        stream = env.from_sequence(1, 2).name("others").map(lambda v: v).name("more")
        counted(stream, "second").print().name("second out")

    if first:
        branch()
    program(env)
    if not first:
        branch()
    after = ids(env)
    assert {name: after[name] for name in before} == before


def test_a_second_reader_of_the_same_stream_changes_nothing(env):
    before = ids(program(fresh()))
    stream = numbers(env).name("numbers")
    counted(stream).print().name("out")
    counted(stream, "again").print().name("out again")
    after = ids(env)
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == len(after)


def test_an_operator_before_changes_the_id_unless_a_uid_lies_between(env):
    before = ids(program(fresh()))
    counted(numbers(env).name("numbers").map(lambda v: v)).print().name("out")
    assert ids(env)["count"] != before["count"]

    def shielded(env, extra):
        stream = numbers(env)
        stream = stream.map(lambda v: v).name("extra") if extra else stream
        stream = stream.filter(lambda v: True).uid("shield")
        counted(stream).print().name("out")
        return ids(env)["count"]

    assert shielded(fresh(), False) == shielded(fresh(), True)


def test_equal_operators_are_told_apart_by_their_order(env):
    stream = numbers(env)
    first, second = (counted(stream, name) for name in ("first", "second"))
    first.print()
    second.print()
    found = ids(env)
    assert found["first"] != found["second"]
    other = fresh()
    stream = numbers(other)
    counted(stream, "second").print()
    counted(stream, "first").print()
    assert ids(other)["second"] == found["first"]


def test_a_union_has_no_order(env):
    def joined(env, swap):
        streams = [numbers(env).map(lambda v: v, Types.LONG()), env.from_sequence(1, 2)]
        first, second = reversed(streams) if swap else streams
        counted(first.union(second)).print()
        return ids(env)["count"]

    assert joined(env, False) == joined(fresh(), True)


def test_uids_and_hashes_give_the_ids_themselves(env):
    counted(numbers(env).uid("source")).uid("count").print().set_uid_hash("ab" * 16).name("out")
    found = ids(env)
    assert found["count"] == operator_id("count")
    assert found["out"] == "ab" * 16


def names(env, *, sources=False):
    return [t.name for t in without_uid(env.build_graph(), sources=sources)]


def test_operators_that_may_have_state_need_a_uid(env):
    stream = numbers(env).name("numbers")
    counted(stream).print()
    keyed = stream.key_by(lambda v: v)
    keyed.reduce(lambda a, b: a).name("reduce").print()
    keyed.sum().name("sum").print()
    keyed.map(Rich()).name("rich").print()
    keyed.map_with_state(lambda v, s: (v, s)).name("with state").print()
    stream.map(Buffering()).name("buffering").print()
    stream.sink_to(FileSink.for_row_format("out", Encoder.simple_string_encoder()).build()).name(
        "files"
    )
    expected = ["count", "reduce", "sum", "rich", "with state", "buffering", "files"]
    assert names(env) == expected


def test_operators_without_state_need_none(env):
    stream = numbers(env).map(lambda v: v).filter(lambda v: True)
    stream.map(Rich()).print()
    stream.key_by(lambda v: v).map(lambda v: v).print()
    stream.key_by(lambda v: v).print()
    assert names(env) == []


def test_a_uid_or_a_hash_is_enough(env):
    counted(numbers(env)).uid("a").print()
    counted(numbers(env), "second").set_uid_hash("0" * 32).print()
    assert names(env) == ["Source: Collection Source"] * 2


def test_sources_count_when_there_are_several_or_when_asked_for(env):
    numbers(env).name("numbers").uid("n").print()
    assert names(env, sources=True) == []
    env.from_sequence(1, 2).name("others").print()
    assert names(env) == ["others"]
    other = fresh()
    numbers(other).name("numbers").print()
    assert names(other) == []
    assert names(other, sources=True) == ["numbers"]


def test_all_of_them_are_in_one_warning(env, caplog):
    stream = numbers(env)
    counted(stream, "first").print()
    counted(stream, "second").print()
    warn_of_missing_uids(env.build_graph())
    warn_of_missing_uids(env.build_graph())
    (record,) = caplog.records
    assert "'first', 'second'" in record.getMessage()
    assert '.uid("...")' in record.getMessage()


def test_nothing_is_said_about_a_program_with_uids(env, caplog):
    counted(numbers(env)).uid("count").print()
    check_uids(env.build_graph(), auto_generate=True)
    warn_of_missing_uids(env.build_graph())
    assert caplog.records == []


def test_without_generated_ids_such_a_program_is_refused_by_names(env):
    counted(numbers(env).name("numbers")).print()
    with pytest.raises(UsageError, match="'numbers', 'count'") as caught:
        check_uids(env.build_graph(), auto_generate=False)
    assert "pipeline.auto-generate-uids" in str(caught.value)


def test_a_program_of_uids_needs_no_generated_ones(env):
    counted(numbers(env).uid("numbers")).uid("count").print()
    check_uids(env.build_graph(), auto_generate=False)
