"""What a job makes of its configuration."""

from __future__ import annotations

import pytest

from weir.checkpoint.restart import ExponentialDelayRestart, FixedDelayRestart, NoRestart
from weir.errors import UsageError
from weir.jobmanager.settings import JobSettings


def test_defaults_are_flinks():
    settings = JobSettings.of([{}])
    assert settings.checkpoint.interval_ms is None
    assert isinstance(settings.restart, NoRestart)
    assert settings.trigger_interval_ms is None
    assert not settings.available_now


def test_checkpoints_bring_the_exponential_restart_strategy():
    settings = JobSettings.of([{"execution.checkpointing.interval": "1 s"}])
    assert settings.checkpoint.interval_ms == 1000
    assert isinstance(settings.restart, ExponentialDelayRestart)


def test_later_layers_are_stronger():
    layers = [{"restart-strategy": "fixed-delay"}, {"restart-strategy.type": "none"}]
    assert isinstance(JobSettings.of(layers[:1]).restart, FixedDelayRestart)
    assert isinstance(JobSettings.of(layers).restart, NoRestart)


@pytest.mark.parametrize(
    ("trigger", "interval", "now"),
    [("default", None, False), ("available-now", None, True), ("5 s", 5000, False)],
)
def test_triggers(trigger, interval, now):
    settings = JobSettings.of([{"weir.trigger": trigger}])
    assert (settings.trigger_interval_ms, settings.available_now) == (interval, now)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("weir.trigger", "soon", "'soon'"),
        ("state.backend.type", "rocksdb", "rocksdb"),
        ("weir.tigger", "default", "weir.trigger"),
        ("execution.checkpointing.interval", "often", "often"),
    ],
)
def test_what_cannot_be_is_refused_by_name(key, value, message):
    with pytest.raises(UsageError, match=message):
        JobSettings.of([{key: value}])


def test_settings_without_effect_are_said(caplog):
    JobSettings.of([{"execution.checkpointing.incremental": "true"}])
    assert "execution.checkpointing.incremental has no effect" in caplog.text
