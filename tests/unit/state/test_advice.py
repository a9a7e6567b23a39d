"""State that is used against its grain gets advice, once."""

from __future__ import annotations

from typing import Any

import pytest

from weir import notices
from weir.backend.factory import BackendSettings
from weir.backend.rocksdb.advice import advise_on_large
from weir.common import Time, Types
from weir.datastream import (
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.state import ListStateDescriptor, StateTtlConfig, ValueStateDescriptor
from weir.testing.harness import HarnessOptions, JobHarness, collect


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_said", set())


LARGE = {number: f"{number:0100}" for number in range(20_000)}


@pytest.mark.parametrize("value", [LARGE, (LARGE, 1), [("k", LARGE)]], ids=["dict", "pair", "list"])
def test_a_large_dict_in_one_value_belongs_into_map_state(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        advise_on_large("Process", "profile", value, 2_200_000)
    assert len(caplog.records) == 1
    assert "operator 'Process': a value of state 'profile'" in caplog.text
    assert "MapState" in caplog.text


@pytest.mark.parametrize("value", ["x" * 2_000_000, [1] * 500_000, ({"a": 1}, b"x" * 2_000_000)])
def test_other_large_values_get_no_advice(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    advise_on_large("Process", "blob", value, 2_000_000)
    assert caplog.records == []


class Profile(KeyedProcessFunction):
    """Keeps all of a key in one value."""

    def open(self, runtime_context):
        self.profile = runtime_context.get_state(ValueStateDescriptor("profile"))

    def process_element(self, value, ctx):
        self.profile.update(LARGE)
        yield value


def test_rocksdb_looks_at_what_it_writes(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("rocksdict")
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([], Types.LONG()).key_by(lambda v: v)
    for name in ("first", "second"):
        collect(stream.process(Profile()).name(name))
    options = HarnessOptions(backend=BackendSettings("rocksdb"))
    job = JobHarness(env.build_graph(), 1, options).start()
    job.run_epoch([1, 2], checkpoint=True)
    job.run_epoch([3], checkpoint=True)
    said = [r.getMessage() for r in caplog.records if "MapState" in r.getMessage()]
    assert sorted(said) == [
        f"operator {name!r}: a value of state 'profile' has more than 1 MB and is mostly one dict, "
        "which RocksDB reads and writes as a whole: keep its entries in a MapState"
        for name in ("first", "second")
    ]


class Listed(MapFunction, CheckpointedFunction):
    """Keeps operator state."""

    def initialize_state(self, context):
        self.seen = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen"))

    def snapshot_state(self, context):
        pass

    def map(self, value):
        return value


@pytest.mark.parametrize("keyed", [True, False])
def test_operator_state_beside_keys_gets_advice(
    keyed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream: Any = env.from_collection([], Types.LONG())
    stream = stream.key_by(lambda v: v) if keyed else stream
    collect(stream.map(Listed()).name("listed"))
    JobHarness(env.build_graph(), parallelism=2).start().run_epoch([1])
    said = [r.getMessage() for r in caplog.records if "operator state" in r.getMessage()]
    assert len(said) == int(keyed)


COUNT = ValueStateDescriptor("count", Types.LONG())
COUNT.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(500)).build())


class Count(KeyedProcessFunction):
    """Counts for half a second."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield self.count.value()


@pytest.mark.parametrize(("apart_ms", "advice"), [(400, 0), (600, 1)])
def test_a_life_shorter_than_an_epoch_gets_advice(
    apart_ms: int, advice: int, caplog: pytest.LogCaptureFixture
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([], Types.LONG()).key_by(lambda v: 0)
    for name in ("first", "second"):
        collect(stream.process(Count()).name(name))
    job = JobHarness(env.build_graph(), parallelism=1).start()
    for _ in range(4):
        job.run_epoch([1])
        job.clock.advance(apart_ms)
    said = [r.getMessage() for r in caplog.records if "lives 500 ms" in r.getMessage()]
    assert len(said) == 2 * advice
    assert len(set(said)) == len(said)
