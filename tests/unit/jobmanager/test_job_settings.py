"""What a job makes of its configuration."""

from __future__ import annotations

import pytest

from weir.errors import UsageError
from weir.graph.runtime_mode import RuntimeMode
from weir.jobmanager.claims import ClaimMode
from weir.jobmanager.restart import ExponentialDelayRestart, FixedDelayRestart, NoRestart
from weir.jobmanager.settings import JobSettings, LocalRecovery, for_batch


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
        ("state.backend.type", "flatfile", "flatfile"),
        ("execution.checkpointing.data-inline-threshold", "2 mb", "2097152"),
        ("execution.checkpointing.storage", "filesystem", "execution.checkpointing.dir"),
        ("weir.tigger", "default", "weir.trigger"),
        ("execution.checkpointing.interval", "often", "often"),
    ],
)
def test_what_cannot_be_is_refused_by_name(key, value, message):
    with pytest.raises(UsageError, match=message):
        JobSettings.of([{key: value}])


def test_settings_without_effect_are_said(caplog):
    JobSettings.of([{"execution.checkpointing.write-buffer-size": 1}])
    assert "without effect here: execution.checkpointing.write-buffer-size" in caplog.text


def test_one_older_key_turns_both_halves_of_local_recovery_on(caplog):
    assert JobSettings().local == JobSettings.of([{}]).local == LocalRecovery()
    found = JobSettings.of([{"state.backend.local-recovery": "true"}])
    assert found.local == LocalRecovery(backup=True, restore=True)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("layer", "dirs"),
    [
        ({}, ()),
        ({"io.tmp.dirs": "/fast"}, ("/fast",)),
        ({"execution.checkpointing.local-backup.dirs": "/a, /b"}, ("/a", "/b")),
        (
            {"taskmanager.state.local.root-dirs": "/a:/b|/c", "io.tmp.dirs": "/t"},
            ("/a", "/b", "/c"),
        ),
    ],
)
def test_copies_are_where_somebody_chose_or_temporary_files_are(layer, dirs):
    found = JobSettings.of([{"state.backend.local-recovery": "true", **layer}])
    assert found.local.dirs == dirs


def test_a_relative_directory_of_copies_is_refused():
    layer = {"state.backend.local-recovery": "true", "taskmanager.state.local.root-dirs": "here"}
    with pytest.raises(UsageError, match="names 'here', expected absolute paths"):
        JobSettings.of([layer])


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("execution.checkpointing.local-backup.enabled", "execution.state-recovery.from-local"),
        ("execution.state-recovery.from-local", "execution.checkpointing.local-backup.enabled"),
    ],
)
def test_half_of_local_recovery_is_warned_of(caplog, key, other):
    JobSettings.of([{key: "true"}])
    assert f"{key} is set, but {other} is not" in caplog.text


def test_backends_get_their_options_by_key_with_defaults():
    layers = [
        {
            "state.backend.type": "rocksdb",
            "execution.checkpointing.incremental": "true",
            "state.changelog.enabled": "true",
            "state.backend.rocksdb.writebuffer.size": "1 mb",
            "execution.checkpointing.file-merging.enabled": "true",
        }
    ]
    backend = JobSettings.of(layers).backend
    assert (backend.kind, backend.incremental, backend.changelog) == ("rocksdb", True, True)
    assert backend.options["state.backend.rocksdb.writebuffer.size"] == 1 << 20
    assert backend.options["execution.checkpointing.file-merging.enabled"] is True
    assert backend.options["state.backend.rocksdb.timer-service.cache-size"] == 128


def test_small_state_is_kept_in_the_metadata_and_nothing_is_compressed_unless_told():
    layers = [{"execution.checkpointing.dir": "/chk"}]
    files = JobSettings.of(layers).state_files
    assert (files.inline_bytes, files.compress, files.in_memory) == (20 << 10, False, False)
    layers.append(
        {
            "execution.checkpointing.data-inline-threshold": "1 kb",
            "execution.checkpointing.snapshot-compression": "true",
        }
    )
    files = JobSettings.of(layers).state_files
    assert (files.inline_bytes, files.compress) == (1024, True)


def test_without_a_directory_checkpoints_are_in_the_drivers_memory(caplog):
    every = {"execution.checkpointing.interval": "1 s"}
    files = JobSettings.of([every]).state_files
    assert (files.in_memory, files.inline_bytes) == (True, 5 << 20)
    keep = "execution.checkpointing.externalized-checkpoint-retention"
    JobSettings.of([every, {keep: "RETAIN_ON_CANCELLATION"}])
    assert "in the driver's memory and go with the job" in caplog.text


def test_a_job_without_periodic_checkpoints_has_no_limit_on_its_last_one():
    assert not JobSettings.of([{}]).state_files.in_memory


def test_nothing_is_claimed_unless_told_and_legacy_is_deprecated(caplog):
    assert JobSettings.of([{}]).claim_mode is ClaimMode.NO_CLAIM
    key = "execution.state-recovery.claim-mode"
    assert JobSettings.of([{key: "CLAIM"}]).claim_mode is ClaimMode.CLAIM
    assert "deprecated" not in caplog.text
    assert JobSettings.of([{key: "LEGACY"}]).claim_mode is ClaimMode.LEGACY
    assert "deprecated" in caplog.text


def test_batch_mode_takes_no_checkpoints_and_says_so(caplog):
    settings = JobSettings.of(
        [{"execution.runtime-mode": "batch", "execution.checkpointing.interval": "1 s"}]
    )
    assert settings.runtime_mode is RuntimeMode.BATCH
    assert for_batch(settings).checkpoint.interval_ms is None
    assert "Disabled Checkpointing" in caplog.text
    quiet = JobSettings.of([{}])
    assert for_batch(quiet) is quiet


def test_batch_mode_does_not_start_from_stored_state():
    settings = JobSettings.of([{"execution.state-recovery.path": "/savepoints/1"}])
    with pytest.raises(UsageError, match=r"'/savepoints/1'.*begins at the beginning"):
        for_batch(settings)
