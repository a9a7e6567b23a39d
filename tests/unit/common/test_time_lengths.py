"""Lengths of time and points in time."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from weir.common import Duration, Instant, Time
from weir.common.time import parse_duration_ms, to_ms
from weir.errors import UsageError
from weir.keygroup import key_group


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (Time.milliseconds(5), 5),
        (Time.seconds(5), 5000),
        (Time.minutes(5), 300_000),
        (Time.hours(1), 3_600_000),
        (Time.days(1), 86_400_000),
        (Time.of(datetime.timedelta(seconds=1)), 1000),
        (Duration.of_millis(5), 5),
        (Duration.of_seconds(5), 5000),
        (Duration.of_minutes(5), 300_000),
        (Duration.of_hours(1), 3_600_000),
        (Duration.of_days(1), 86_400_000),
        (Duration.of_nanos(1_999_999), 1),
        (Duration.of(Time.seconds(1)), 1000),
        (Duration.of(datetime.timedelta(milliseconds=1.5)), 1),
        (datetime.timedelta(seconds=2), 2000),
        (7, 7),
    ],
    ids=repr,
)
def test_every_length_of_time_has_milliseconds(length: Any, expected: int) -> None:
    assert to_ms(length) == expected


def test_lengths_are_values_in_order() -> None:
    assert Time.seconds(60) == Time.minutes(1)
    assert hash(Duration.of_hours(24)) == hash(Duration.of_days(1))
    assert Time.seconds(1) < Time.seconds(2)
    assert Duration.of_seconds(2) >= Duration.of_millis(2000)
    assert str(Time.seconds(1)) == "1000 ms"
    assert repr(Duration.of_nanos(5)) == "Duration.of_nanos(5)"


@pytest.mark.parametrize("value", [1.5, "1", True, None])
def test_a_length_of_another_kind_is_refused(value: Any) -> None:
    with pytest.raises(UsageError):
        Time.seconds(value)
    with pytest.raises(UsageError):
        to_ms(value)


def test_an_instant_before_the_epoch_rounds_down() -> None:
    for millis in (0, 1, 999, 1000, -1, -1000, -1001, 1_700_000_000_123):
        assert Instant.of_epoch_milli(millis).to_epoch_milli() == millis
    assert Instant(-1, 999_999_999).to_epoch_milli() == -1
    assert Instant(0, 1) < Instant(0, 2)


def test_an_instant_can_be_a_key() -> None:
    assert key_group(Instant(1, 2), 128) == key_group(Instant(1, 2), 128)


def test_a_time_of_another_form_is_refused() -> None:
    assert parse_duration_ms(" 10 Min ") == 600_000
    with pytest.raises(UsageError, match="'soon'"):
        parse_duration_ms("soon")
