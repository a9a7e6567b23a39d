"""Configuration, execution config, restart strategies, watermark strategies, futures, schemas."""

from __future__ import annotations

import copy
import datetime
import pickle
from concurrent.futures import CancelledError
from typing import Any

import pytest

import weir.common
from weir.common import (
    ByteArraySchema,
    CompletableFuture,
    ConfigOptions,
    Configuration,
    Duration,
    Encoder,
    ExecutionConfig,
    JobExecutionResult,
    JobID,
    JobStatus,
    RestartStrategies,
    SimpleStringSchema,
    Types,
    WatermarkStrategy,
)
from weir.common.watermark_strategy import TimestampAssigner
from weir.config import KNOWN_KEYS
from weir.errors import UsageError


def test_the_package_exports_pyflinks_names() -> None:
    for name in weir.common.__all__:
        assert hasattr(weir.common, name)


def test_a_configuration_keeps_values_and_reads_them_typed() -> None:
    configuration = Configuration()
    configuration.set_string("s", "text").set_integer("i", 5).set_boolean("b", True)
    configuration.set_float("f", 1).set_bytearray("y", bytearray(b"x"))
    assert configuration.get_string("s", "") == "text"
    assert configuration.get_integer("i", 0) == 5
    assert configuration.get_boolean("b", False) is True
    assert configuration.get_float("f", 0.0) == 1.0
    assert configuration.get_bytearray("y", bytearray()) == bytearray(b"x")
    assert configuration.get_string("none", "default") == "default"
    assert configuration.key_set() == {"s", "i", "b", "f", "y"}
    assert configuration.contains_key("s")
    assert configuration.remove_config("s")
    assert not configuration.remove_config("s")


def test_text_is_read_as_numbers_and_booleans() -> None:
    configuration = Configuration.from_dict({"i": "5", "b": "TRUE", "f": "1.5", "x": "no"})
    assert configuration.get_integer("i", 0) == 5
    assert configuration.get_boolean("b", False) is True
    assert configuration.get_float("f", 0.0) == 1.5
    with pytest.raises(UsageError, match=r"'x'.*'no'"):
        configuration.get_integer("x", 0)
    with pytest.raises(UsageError, match=r"'x'.*'no'"):
        configuration.get_boolean("x", False)


def test_a_configuration_shows_its_values_as_text() -> None:
    values = {"b": True, "d": Duration.of_seconds(1), "s": JobStatus.RUNNING, "l": ["a", "b"]}
    assert Configuration.from_dict(values).to_dict() == {
        "b": "true",
        "d": "1000 ms",
        "s": "RUNNING",
        "l": "a;b",
    }


def test_a_configuration_gives_its_values_as_they_were_set() -> None:
    target: dict[str, Any] = {}
    Configuration.from_dict({"a": 1, "b": True}).add_all_to_dict(target)
    assert target == {"a": 1, "b": True}


def test_equal_configurations_hash_alike_and_show_themselves_as_in_flink() -> None:
    one = Configuration().set_string("k1", "v1").set_integer("k2", 1)
    other = Configuration().set_string("k1", "v1")
    assert len({one, other}) == 2
    assert len({one, other.set_integer("k2", 1)}) == 1
    assert str(one) == "{k1=v1, k2=1}"


@pytest.mark.parametrize("text", ["a;b c", "[a, b c]", "- a\n- b c", "['a', \"b c\"]"])
def test_lists_have_the_spellings_of_flink(text: str) -> None:
    assert Configuration.parse_list_value(text) == ["a", "b c"]
    assert Configuration.parse_list_value(None) == []


def test_configurations_are_merged_copied_and_compared() -> None:
    one = Configuration().set_string("a", "1")
    two = Configuration(one).set_string("b", "2")
    assert one.key_set() == {"a"}
    assert Configuration().add_all(two, "p.").key_set() == {"p.a", "p.b"}
    assert Configuration().add_configuration(two) == two == copy.deepcopy(two)
    assert pickle.loads(pickle.dumps(two)) == two
    assert Configuration.parse_list_value("a;b") == ["a", "b"]
    assert Configuration.parse_list_value("[a, b]") == ["a", "b"]


def test_an_option_declared_by_the_program_brings_its_default() -> None:
    option = ConfigOptions.key("my.key").int_type().default_value(3)
    configuration = Configuration()
    assert configuration.get(option) == 3
    assert configuration.set(option, 4).get_integer("my.key", 0) == 4
    assert configuration.get(ConfigOptions.key("other").string_type().no_default_value()) is None


def test_the_execution_config_writes_the_configuration() -> None:
    configuration = Configuration()
    config = ExecutionConfig(configuration)
    assert config.get_parallelism() == -1
    assert config.get_auto_watermark_interval() == 200
    config.set_parallelism(4).set_max_parallelism(128).set_auto_watermark_interval(100)
    config.enable_object_reuse().disable_auto_generated_uids().disable_generic_types()
    config.set_use_snapshot_compression(True).set_global_job_parameters({"a": 1})
    config.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10_000))
    assert config.get_parallelism() == configuration.get_integer("parallelism.default", 0) == 4
    assert config.get_max_parallelism() == 128
    assert config.is_object_reuse_enabled()
    assert not config.has_auto_generated_uids_enabled()
    assert config.has_generic_types_disabled()
    assert config.is_use_snapshot_compression()
    assert config.get_global_job_parameters() == {"a": "1"}
    assert configuration.get_string("restart-strategy.type", "") == "fixed-delay"
    assert configuration.key_set() <= KNOWN_KEYS
    assert config.set_parallelism(-1).get_parallelism() == -1
    configuration.set_string("pipeline.auto-watermark-interval", "1 s")
    assert config.get_auto_watermark_interval() == 1000


@pytest.mark.parametrize("value", [0, -3, "2", 1.5])
def test_a_parallelism_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="parallelism"):
        ExecutionConfig().set_parallelism(value)
    with pytest.raises(UsageError, match="parallelism"):
        ExecutionConfig().set_max_parallelism(value)


def test_restart_strategies_are_values_with_configuration_keys() -> None:
    fixed = RestartStrategies.fixed_delay_restart(3, datetime.timedelta(seconds=10))
    assert (fixed.restart_attempts, fixed.delay_ms) == (3, 10_000)
    assert fixed == RestartStrategies.fixed_delay_restart(3, 10_000)
    assert fixed.get_delay_between_attempts_interval() == datetime.timedelta(seconds=10)
    rate = RestartStrategies.failure_rate_restart(3, Duration.of_minutes(5), 10_000)
    assert (rate.get_max_failure_rate(), rate.failure_interval_ms, rate.delay_ms) == (
        3,
        300_000,
        10_000,
    )
    growing = RestartStrategies.exponential_delay_restart(1000, 60_000, 1.5, 3_600_000, 0.1)
    for strategy in (fixed, rate, growing, RestartStrategies.no_restart()):
        assert strategy.to_config().keys() <= KNOWN_KEYS
        assert "estart" in strategy.get_description()
    assert RestartStrategies.fall_back_restart().to_config() == {}
    assert ExecutionConfig().get_restart_strategy() == RestartStrategies.fall_back_restart()
    with pytest.raises(UsageError, match="restart_attempts"):
        RestartStrategies.fixed_delay_restart(-1, 0)


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[0])


def test_a_watermark_strategy_tells_the_runtime_what_it_needs() -> None:
    assert WatermarkStrategy.no_watermarks().out_of_orderness_ms is None
    assert WatermarkStrategy.for_monotonous_timestamps().out_of_orderness_ms == 0
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(20))
    assert strategy.out_of_orderness_ms == 20_000
    assert strategy.with_timestamp_assigner(Stamp()) is strategy
    full = strategy.with_idleness(Duration.of_minutes(1)).with_watermark_alignment(
        "group", Duration.of_seconds(5)
    )
    assert full.timestamp_assigner.extract_timestamp((7,), 0) == 7
    assert full.idleness_ms == 60_000
    assert (full.alignment.group, full.alignment.max_drift_ms) == ("group", 5000)


def test_a_function_can_assign_timestamps_and_anything_else_cannot() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy.with_timestamp_assigner(lambda value, ts: value * 2)
    assert strategy.timestamp_assigner.extract_timestamp(4, 0) == 8
    with pytest.raises(UsageError, match="extract_timestamp"):
        strategy.with_timestamp_assigner(5.5)
    with pytest.raises(UsageError, match="negative"):
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(-1))
    with pytest.raises(UsageError, match="greater than zero"):
        strategy.with_idleness(Duration.of_millis(0))


def test_a_future_gives_its_result_failure_or_cancellation() -> None:
    future = CompletableFuture()
    doubled = future.then_apply(lambda v: v * 2).then_apply(str)
    assert not future.done()
    assert future.exception() is None
    future.complete(2)
    assert (future.result(), future.get(), doubled.result(), doubled.done()) == (2, 2, "4", True)
    failed = CompletableFuture()
    failed.complete_exceptionally(ValueError("x"))
    assert isinstance(failed.exception(), ValueError)
    with pytest.raises(ValueError, match="x"):
        failed.result()
    cancelled = CompletableFuture()
    assert cancelled.cancel()
    assert cancelled.cancelled()
    assert isinstance(cancelled.exception(), CancelledError)
    assert CompletableFuture.completed(1).result() == 1


def test_job_identity_status_and_result() -> None:
    job_id = JobID()
    assert job_id != JobID()
    assert JobID.from_hex_string(str(job_id)) == job_id
    with pytest.raises(UsageError, match="32 hexadecimal"):
        JobID("short")
    assert JobStatus.SUSPENDED.is_terminal_state()
    assert not JobStatus.SUSPENDED.is_globally_terminal_state()
    assert JobStatus.FINISHED.is_globally_terminal_state()
    assert not JobStatus.RESTARTING.is_terminal_state()
    result = JobExecutionResult(job_id, 12, {"count": 3})
    assert (result.get_job_id(), result.get_net_runtime()) == (job_id, 12)
    assert result.get_accumulator_result("count") == 3
    assert result.get_all_accumulator_results() == {"count": 3}


def test_schemas_turn_records_into_bytes_and_back() -> None:
    schema = SimpleStringSchema()
    assert schema.deserialize(schema.serialize("ä")) == "ä"
    assert schema.get_produced_type() == Types.STRING()
    assert SimpleStringSchema("ISO-8859-1").serialize("ä") == b"\xe4"
    assert ByteArraySchema().deserialize(ByteArraySchema().serialize(b"x")) == b"x"
    assert Encoder.simple_string_encoder().encode((1, "a")) == b"(1, 'a')\n"
    with pytest.raises(UsageError, match="'utf-99'"):
        SimpleStringSchema("utf-99")


def test_who_wants_to_know_of_an_end_is_told_once_how_it_ended() -> None:
    told: list[tuple[Any, type]] = []

    def note(value: Any, error: BaseException | None) -> None:
        told.append((value, type(error)))

    good, bad, never = CompletableFuture(), CompletableFuture(), CompletableFuture()
    for future in (good, bad, never):
        assert future.when_complete(note) is future
    assert told == []
    good.complete(3)
    bad.complete_exceptionally(ValueError("no"))
    never.cancel()
    CompletableFuture.completed(4).then_apply(str).when_complete(note)
    assert told == [(3, type(None)), (None, ValueError), (None, CancelledError), ("4", type(None))]
