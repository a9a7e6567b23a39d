"""The builder of `StateTtlConfig`: defaults, checks, PyFlink's names, and the clean-up settings."""

from __future__ import annotations

import datetime
import pickle

import pytest

from weir.common import Duration, Time
from weir.common.typeinfo import Types
from weir.datastream.state import StateTtlConfig, ValueStateDescriptor
from weir.errors import UsageError
from weir.state.ttl.cleanup import SweepSettings
from weir.state.ttl.strategies import RocksdbCompactFilterCleanupStrategy

Cleanup = StateTtlConfig.CleanupStrategies


def builder(ttl=100):
    return StateTtlConfig.new_builder(ttl)


def test_the_defaults_are_flinks():
    config = StateTtlConfig.new_builder(Time.seconds(1)).build()
    assert config.get_ttl() == Time.seconds(1)
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnCreateAndWrite
    assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
    processing = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    assert config.get_ttl_time_characteristic() is processing
    assert config.is_enabled()
    assert not StateTtlConfig.DISABLED.is_enabled()


@pytest.mark.parametrize(
    "ttl",
    [Time.seconds(2), Duration.of_seconds(2), datetime.timedelta(seconds=2), 2000],
)
def test_a_time_to_live_has_any_form_of_a_length_of_time(ttl):
    assert builder(ttl).build().get_ttl() == Time.milliseconds(2000)
    assert builder().set_ttl(ttl).build().get_ttl() == Time.milliseconds(2000)


@pytest.mark.parametrize("ttl", [0, -1, Time.milliseconds(0), Duration.of_nanos(999)])
def test_a_time_to_live_is_positive(ttl):
    with pytest.raises(UsageError, match="TTL is expected to be positive"):
        builder(ttl).build()


def test_what_is_no_length_of_time_is_refused():
    with pytest.raises(UsageError, match="10 s"):
        builder("10 s").build()


def test_every_setting_has_a_name_and_a_shorthand():
    config = builder().update_ttl_on_read_and_write().return_expired_if_not_cleaned_up().build()
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
    relaxed = StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
    assert config.get_state_visibility() is relaxed
    config = builder().use_event_time().build()
    event = StateTtlConfig.TtlTimeCharacteristic.EventTime
    assert config.get_ttl_time_characteristic() is event
    again = builder().set_ttl_time_characteristic(event).update_ttl_on_create_and_write()
    assert again.never_return_expired().build() == config
    assert builder().use_event_time().use_processing_time().build() == builder().build()


def test_a_choice_of_another_kind_is_refused():
    with pytest.raises(UsageError, match=r"StateTtlConfig\.UpdateType\.OnReadAndWrite"):
        builder().set_update_type(StateTtlConfig.StateVisibility.NeverReturnExpired)


def test_background_clean_up_is_on_by_default():
    cleanup = builder().build().get_cleanup_strategies()
    assert cleanup.is_cleanup_in_background()
    incremental = cleanup.get_incremental_cleanup_strategy()
    assert incremental.get_cleanup_size() == 5
    assert not incremental.run_cleanup_for_every_record()
    assert cleanup.get_rocksdb_compact_filter_cleanup_strategy() is None
    assert cleanup.in_rocksdb_compact_filter()
    assert not cleanup.in_full_snapshot()
    assert not cleanup.by_timer()


def test_background_clean_up_can_be_switched_off():
    cleanup = builder().disable_cleanup_in_background().build().get_cleanup_strategies()
    assert not cleanup.is_cleanup_in_background()
    assert cleanup.get_incremental_cleanup_strategy() is None
    assert not cleanup.in_rocksdb_compact_filter()


def test_what_was_asked_for_stays_when_the_default_is_off():
    made = builder().disable_cleanup_in_background().cleanup_incrementally(7, True)
    made = made.cleanup_in_rocksdb_compact_filter(10, Duration.of_hours(1)).cleanup_full_snapshot()
    cleanup = made.cleanup_by_timer().build().get_cleanup_strategies()
    assert cleanup.get_incremental_cleanup_strategy() == Cleanup.IncrementalCleanupStrategy(7, True)
    compaction = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction.get_query_time_after_num_entries() == 10
    assert compaction.get_periodic_compaction_time() == Duration.of_hours(1)
    assert cleanup.in_rocksdb_compact_filter()
    assert cleanup.in_full_snapshot()
    assert cleanup.by_timer()


def test_the_time_between_compactions_is_a_month_unless_told():
    made = builder().cleanup_in_rocksdb_compact_filter(1000).build()
    strategy = made.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy()
    assert strategy.get_periodic_compaction_time() == Duration.of_days(30)


@pytest.mark.parametrize("size", [0, -2, 1.5, True])
def test_sizes_are_positive(size):
    with pytest.raises(UsageError, match="cleanup_incrementally"):
        builder().cleanup_incrementally(size, False)
    with pytest.raises(UsageError, match="cleanup_in_rocksdb_compact_filter"):
        builder().cleanup_in_rocksdb_compact_filter(size)


def test_the_time_between_compactions_is_not_negative():
    with pytest.raises(UsageError, match="periodic"):
        builder().cleanup_in_rocksdb_compact_filter(1, -1)


def test_a_builder_goes_on_after_it_has_built():
    made = builder()
    first = made.build()
    made.cleanup_full_snapshot()
    assert not first.get_cleanup_strategies().in_full_snapshot()
    assert made.build().get_cleanup_strategies().in_full_snapshot()


def test_a_configuration_travels_with_the_program():
    config = builder().cleanup_incrementally(3, True).use_event_time().build()
    assert pickle.loads(pickle.dumps(config)) == config


def test_backends_on_disk_have_a_default_of_their_own():
    on_disk = RocksdbCompactFilterCleanupStrategy(1000)
    default = builder().build().get_cleanup_strategies()
    assert SweepSettings.of(default, None) == SweepSettings(per_access=5)
    month = Duration.of_days(30).to_millis()
    assert SweepSettings.of(default, on_disk) == SweepSettings(step=1000, round_ms=month)
    off = builder().disable_cleanup_in_background().build().get_cleanup_strategies()
    assert SweepSettings.of(off, on_disk) == SweepSettings.of(off, None) == SweepSettings()
    asked = builder().cleanup_incrementally(2, True).build().get_cleanup_strategies()
    assert SweepSettings.of(asked, on_disk) == SweepSettings(per_access=2, per_record=True)


def test_the_configuration_of_the_tutorials_works():
    ttl_config = StateTtlConfig \
        .new_builder(Time.seconds(10)) \
        .set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite) \
        .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired) \
        .build()  # fmt: skip

    state_descriptor = ValueStateDescriptor("text state", Types.STRING())
    state_descriptor.enable_time_to_live(ttl_config)
    assert state_descriptor.ttl_config.get_ttl().to_milliseconds() == 10_000
