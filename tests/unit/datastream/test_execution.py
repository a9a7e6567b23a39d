"""From declarations to a submitted graph: what is in it, what is refused, what is forgotten."""

from __future__ import annotations

import json

import pytest
from tests.unit.datastream.recording import JOB_ID, RecordingEngine

from weir import notices
from weir.common import Configuration, JobStatus, Types
from weir.datastream import EmbeddedRocksDBStateBackend, StreamExecutionEnvironment
from weir.errors import JobCancellationError, JobExecutionError, UsageError


@pytest.fixture
def engine():
    return RecordingEngine()


@pytest.fixture
def env(engine):
    return StreamExecutionEnvironment(engine=engine)


def test_execute_hands_over_the_graph_and_returns_the_result(env, engine):
    env.from_collection([1]).map(lambda x: x).print()
    result = env.execute("my job")
    ((graph, _),) = engine.submitted
    assert graph.job_name == "my job"
    assert [t.kind for t in graph.transformations] == ["source", "map", "print"]
    assert result.get_job_id() == JOB_ID


def test_a_cancelled_job_has_no_result(engine, env):
    engine.status = JobStatus.CANCELED
    env.from_collection([1]).print()
    with pytest.raises(JobCancellationError, match="was cancelled") as caught:
        env.execute()
    assert isinstance(caught.value, JobExecutionError)
    env.from_collection([1]).print()
    job = env.execute_async()
    with pytest.raises(JobCancellationError):
        job.get_job_execution_result().result()


def test_the_records_of_a_cancelled_job_end_with_the_error(engine, env):
    engine.status = JobStatus.CANCELED
    engine.records = [1, 2]
    records = env.from_collection([1, 2]).execute_and_collect()
    assert [next(records), next(records)] == [1, 2]
    with pytest.raises(JobCancellationError):
        next(records)


def test_closing_the_records_early_cancels_the_job_without_an_error(engine, env):
    engine.status = JobStatus.RUNNING
    engine.records = [1, 2, 3]
    with env.from_collection([1, 2, 3]).execute_and_collect() as records:
        assert next(records) == 1
    assert engine.status is JobStatus.CANCELED
    assert list(records) == []


def test_the_job_name_comes_from_the_call_or_the_configuration(engine):
    configuration = Configuration().set_string("pipeline.name", "configured")
    for given, expected in ((None, "configured"), ("given", "given")):
        env = StreamExecutionEnvironment(configuration, engine)
        env.from_collection([1]).print()
        env.execute(given)
        assert engine.submitted[-1][0].job_name == expected
    env = StreamExecutionEnvironment(engine=engine)
    env.from_collection([1]).print()
    assert env.execute_async() is engine
    assert engine.submitted[-1][0].job_name == "Flink Streaming Job"


def test_a_program_without_operators_cannot_be_executed(env):
    with pytest.raises(UsageError, match="No operators defined in streaming topology"):
        env.execute()
    env.from_collection([1])
    with pytest.raises(UsageError, match="No operators defined in streaming topology"):
        env.execute()


def test_a_program_needs_no_sink(env, engine):
    env.from_collection([1]).map(print)
    env.execute()
    assert len(engine.submitted[0][0].transformations) == 2


def test_a_source_that_nobody_reads_is_left_out(env, engine):
    env.from_collection([1])
    env.from_collection([2]).print()
    env.execute()
    source, _ = engine.submitted[0][0].transformations
    assert source.function.elements == [2]


def test_after_execution_the_next_program_starts_empty(env):
    env.from_collection([1]).print()
    env.execute()
    with pytest.raises(UsageError, match="No operators"):
        env.execute()


def test_a_refused_program_is_not_forgotten(env, engine):
    stream = env.from_collection([1]).map(print).uid("a")
    sink = stream.print().uid("a")
    with pytest.raises(UsageError):
        env.execute()
    sink.uid("b")
    env.execute()
    assert len(engine.submitted) == 1


def test_a_stream_can_be_continued_in_the_next_program(env, engine):
    mapped = env.from_collection([1]).map(lambda x: x)
    mapped.print()
    env.execute()
    mapped.print_to_err()
    env.execute()
    kinds = [[t.kind for t in graph.transformations] for graph, _ in engine.submitted]
    assert kinds == [["source", "map", "print"]] * 2


def test_closing_forgets_what_was_declared(env):
    env.from_collection([1]).print()
    env.close()
    with pytest.raises(UsageError, match="No operators"):
        env.build_graph()


def test_a_uid_given_twice_names_both_operators(env):
    env.from_collection([1]).map(print).name("first").uid("same").map(print).name("second").uid(
        "same"
    )
    with pytest.raises(UsageError, match=r"'same'.*'first'.*'second'"):
        env.build_graph()


def test_a_uid_hash_given_twice_is_refused(env):
    digits = "0123456789ABCDEF" * 2
    env.from_collection([1]).map(print).set_uid_hash(digits).map(print).set_uid_hash(digits.lower())
    with pytest.raises(UsageError, match="uid hash"):
        env.build_graph()


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, "2", True, None])
def test_a_parallelism_below_one_is_refused(env, parallelism):
    stream = env.from_collection([1]).map(print)
    with pytest.raises(UsageError, match="at least 1"):
        stream.set_parallelism(parallelism)
    with pytest.raises(UsageError, match="at least 1"):
        env.set_parallelism(parallelism)


@pytest.mark.parametrize("maximum", [0, 32769, "8"])
def test_a_max_parallelism_out_of_range_is_refused(env, maximum):
    stream = env.from_collection([1]).map(print)
    with pytest.raises(UsageError, match="from 1 to 32768"):
        stream.set_max_parallelism(maximum)
    with pytest.raises(UsageError, match="from 1 to 32768"):
        env.set_max_parallelism(maximum)


def test_a_parallelism_above_its_maximum_is_refused(env):
    env.from_sequence(1, 2).map(print).name("wide").set_parallelism(5).set_max_parallelism(4)
    with pytest.raises(UsageError, match="'wide': parallelism 5 is above its max parallelism 4"):
        env.build_graph()


def test_the_environments_bounds_count_too(env):
    env.from_sequence(1, 2).map(print)
    env.set_parallelism(3).set_max_parallelism(2)
    with pytest.raises(UsageError, match="above its max parallelism 2"):
        env.build_graph()


def test_parallelism_is_the_engines_unless_somebody_sets_it(env, engine):
    env.from_sequence(1, 2).print()
    assert env.build_graph().parallelism == 0
    assert env.get_parallelism() >= 1
    env.configure(Configuration().set_integer("parallelism.default", 3))
    assert env.build_graph().parallelism == env.get_parallelism() == 3
    env.get_config().set_parallelism(4)
    assert env.build_graph().parallelism == env.get_parallelism() == 4
    assert env.get_max_parallelism() == -1
    env.set_max_parallelism(64)
    assert env.build_graph().max_parallelism == env.get_max_parallelism() == 64


def test_an_operator_can_be_tuned(env):
    stream = env.from_sequence(1, 2).map(print)
    stream.name("n").uid("u").set_parallelism(2).set_max_parallelism(8).slot_sharing_group("g")
    stream.set_description("long").set_buffer_timeout(5).start_new_chain().disable_chaining()
    operator = stream.edges[0].source
    assert stream.get_name() == operator.name == "n"
    assert (operator.uid, operator.parallelism, operator.max_parallelism) == ("u", 2, 8)
    assert operator.options["description"] == "long"
    assert stream.get_parallelism() == 2


@pytest.mark.parametrize(
    ("method", "argument", "reason"),
    [
        ("start_new_chain", (), "operators between two exchanges always run in one call"),
        ("disable_chaining", (), "operators between two exchanges always run in one call"),
        ("slot_sharing_group", ("g",), "every slot runs one subtask of each operator"),
        ("set_buffer_timeout", (5,), "records do not wait in buffers"),
    ],
)
def test_a_wish_without_effect_is_said_once_with_the_reason(
    env, caplog, monkeypatch, method, argument, reason
):
    monkeypatch.setattr(notices, "_said", set())
    stream = env.from_sequence(1, 2).map(print)
    for each in (stream, stream, stream.map(print), stream.print()):
        assert getattr(each, method)(*argument) is each
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"{method}() has no effect, because {reason}" in record.getMessage()


@pytest.mark.parametrize("uid", ["", None, 1])
def test_a_uid_is_a_text(env, uid):
    with pytest.raises(UsageError, match="non-empty string"):
        env.from_sequence(1, 2).uid(uid)


@pytest.mark.parametrize("digits", ["abc", "g" * 32, None])
def test_a_uid_hash_has_32_digits(env, digits):
    with pytest.raises(UsageError, match="32 hexadecimal digits"):
        env.from_sequence(1, 2).set_uid_hash(digits)


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("name", ("n",)),
        ("uid", ("u",)),
        ("get_name", ()),
        ("set_parallelism", (1,)),
        ("set_max_parallelism", (1,)),
        ("force_non_parallel", ()),
        ("set_buffer_timeout", (1,)),
        ("start_new_chain", ()),
        ("disable_chaining", ()),
        ("slot_sharing_group", ("g",)),
        ("set_uid_hash", ("0" * 32,)),
    ],
)
def test_a_keyed_stream_is_no_operator(env, method, argument):
    keyed = env.from_sequence(1, 2).key_by(lambda x: x)
    with pytest.raises(UsageError, match=f"{method}.. is not supported on this KeyedStream"):
        getattr(keyed, method)(*argument)


@pytest.mark.parametrize(
    "method", ["shuffle", "rebalance", "rescale", "forward", "broadcast", "global_"]
)
def test_a_keyed_stream_keeps_its_partitioning(env, method):
    keyed = env.from_sequence(1, 2).key_by(lambda x: x)
    with pytest.raises(UsageError, match="Cannot override partitioning for KeyedStream"):
        getattr(keyed, method)()
    with pytest.raises(UsageError, match="Cannot override partitioning for KeyedStream"):
        keyed.partition_custom(lambda k, n: 0, lambda x: x)


def test_collecting_runs_the_program_and_yields_the_records(engine, env):
    engine.records = [1, 2, 3]
    mapped = env.from_collection([1, 2, 3]).map(lambda x: x, Types.INT())
    with mapped.execute_and_collect("collecting") as records:
        assert list(records) == [1, 2, 3]
    graph, _ = engine.submitted[0]
    assert (graph.job_name, graph.transformations[-1].kind) == ("collecting", "collect")
    assert engine.collected == [graph.transformations[-1].id]
    assert engine.status is JobStatus.FINISHED


def test_collecting_some_records_cancels_the_job(engine, env):
    engine.records, engine.status = [1, 2, 3], JobStatus.RUNNING
    assert env.from_collection([1, 2, 3]).execute_and_collect(limit=2) == [1, 2]
    assert engine.status is JobStatus.CANCELED


def test_a_closed_iterator_has_ended(engine, env):
    engine.records = [1, 2, 3]
    records = env.from_collection([1, 2, 3]).execute_and_collect()
    assert records.next() == 1
    records.close()
    records.close()
    assert list(records) == []


def test_a_limit_below_one_is_refused(env):
    with pytest.raises(UsageError, match="limit"):
        env.from_collection([1]).execute_and_collect(limit=0)


def test_the_submitted_configuration_is_a_copy_with_the_backends_last_word(env, engine):
    backend = EmbeddedRocksDBStateBackend()
    env.set_state_backend(backend)
    backend.set_db_storage_paths("/a", "/b")
    env.from_collection([1]).print()
    env.execute()
    _, configuration = engine.submitted[0]
    assert configuration.get_string("state.backend.rocksdb.localdir", "") == "/a,/b"
    env.enable_checkpointing(1000)
    assert not configuration.contains_key("execution.checkpointing.interval")


def test_the_plan_shows_nodes_and_how_records_get_there(env):
    mapped = env.from_sequence(1, 2).name("numbers").key_by(lambda x: x).map(print)
    mapped.set_parallelism(3).print()
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert [(n["id"], n["type"], n["pact"]) for n in nodes] == [
        (1, "numbers", "Data Source"),
        (2, "Map", "Operator"),
        (3, "Sink: Print to Std. Out", "Data Sink"),
    ]
    assert nodes[1]["parallelism"] == 3
    assert nodes[1]["predecessors"] == [{"id": 1, "ship_strategy": "HASH", "side": "first"}]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (5, "a job's name is text, found int: 5"),
        (0, "a job's name is text, found int: 0"),
        (b"job", "a job's name is text, found bytes"),
        ("half \ud83d", r"a job's name cannot be encoded, found 'half \\ud83d': .* character 5"),
    ],
)
def test_a_job_name_that_is_no_text_is_refused_before_anything_starts(engine, name, says):
    env = StreamExecutionEnvironment(engine=engine)
    for start in (env.execute, env.execute_async):
        env.from_collection([1]).print()
        with pytest.raises(UsageError, match=says):
            start(name)
    assert engine.submitted == []


@pytest.mark.parametrize(("name", "says"), [(5, "found int"), ("\ud83d", r"found '\\ud83d'")])
def test_an_operators_name_that_is_no_text_is_refused(engine, name, says):
    env = StreamExecutionEnvironment(engine=engine)
    env.from_collection([1]).print().name(name)
    with pytest.raises(UsageError, match=f"an operator's name .*{says}"):
        env.execute()


def test_a_uid_that_cannot_be_encoded_is_refused(engine):
    env = StreamExecutionEnvironment(engine=engine)
    env.from_collection([1]).print().uid("\ud83d")
    with pytest.raises(UsageError, match="a uid cannot be encoded"):
        env.execute()
