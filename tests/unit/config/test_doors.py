"""Every setting of checkpoints means the same through every door."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from weir.checkpoint.settings import CheckpointingMode as Mode
from weir.checkpoint.settings import Retention
from weir.cli.configuration import parse_definitions
from weir.common import Configuration, Duration
from weir.config import ambient
from weir.config import checkpointing as c
from weir.config.environment import variable_of
from weir.config.option import ConfigOption
from weir.datastream import (
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    FsStateBackend,
    JobManagerCheckpointStorage,
    StreamExecutionEnvironment,
)
from weir.errors import UsageError
from weir.jobmanager.claims import ClaimMode
from weir.jobmanager.settings import JobSettings


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEIR_CONF_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    yield tmp_path
    ambient.set_overrides({})


@dataclass(frozen=True)
class Setting:
    """An option, a value as text, what becomes of it, and how a program says it."""

    option: ConfigOption
    text: str
    read: Callable[[JobSettings], Any]
    expected: Any
    code: tuple[Callable[[StreamExecutionEnvironment], Any], ...] = ()
    besides: tuple[tuple[str, str], ...] = ()


def checkpoints(call: Callable[[Any], Any]) -> Callable[[StreamExecutionEnvironment], Any]:
    return lambda env: call(env.get_checkpoint_config())


def legacy_backend(env: StreamExecutionEnvironment) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        env.set_state_backend(FsStateBackend("/chk"))


INTERVAL = (("execution.checkpointing.interval", "1 s"),)
UNLIMITED = 2**31 - 1
SETTINGS = [
    Setting(
        c.INTERVAL,
        "10 s",
        lambda s: s.checkpoint.interval_ms,
        10_000,
        (
            lambda env: env.enable_checkpointing(10_000),
            lambda env: env.enable_checkpointing(10_000, CheckpointingMode.EXACTLY_ONCE),
            checkpoints(lambda config: config.set_checkpoint_interval(10_000)),
        ),
    ),
    Setting(
        c.MODE,
        "AT_LEAST_ONCE",
        lambda s: s.checkpoint.mode,
        Mode.AT_LEAST_ONCE,
        (
            lambda env: env.enable_checkpointing(10_000, CheckpointingMode.AT_LEAST_ONCE),
            checkpoints(lambda cc: cc.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)),
            checkpoints(
                lambda cc: cc.set_checkpointing_consistency_mode(CheckpointingMode.AT_LEAST_ONCE)
            ),
        ),
    ),
    Setting(
        c.TIMEOUT,
        "1 min",
        lambda s: s.checkpoint.timeout_ms,
        60_000,
        (checkpoints(lambda config: config.set_checkpoint_timeout(60_000)),),
    ),
    Setting(
        c.MIN_PAUSE,
        "500 ms",
        lambda s: s.checkpoint.min_pause_ms,
        500,
        (checkpoints(lambda config: config.set_min_pause_between_checkpoints(500)),),
    ),
    Setting(
        c.MAX_CONCURRENT,
        "5",
        lambda s: s.checkpoint.max_concurrent,
        5,
        (checkpoints(lambda config: config.set_max_concurrent_checkpoints(5)),),
    ),
    Setting(
        c.TOLERABLE_FAILURES,
        "2",
        lambda s: s.checkpoint.tolerable_failures,
        2,
        (checkpoints(lambda config: config.set_tolerable_checkpoint_failure_number(2)),),
    ),
    Setting(
        c.TOLERABLE_FAILURES,
        str(UNLIMITED),
        lambda s: s.checkpoint.tolerable_failures,
        UNLIMITED,
        (checkpoints(lambda config: config.set_fail_on_checkpointing_errors(False)),),
    ),
    Setting(
        c.TOLERABLE_FAILURES,
        "0",
        lambda s: s.checkpoint.tolerable_failures,
        0,
        (checkpoints(lambda config: config.set_fail_on_checkpointing_errors(True)),),
    ),
    Setting(
        c.RETENTION,
        "RETAIN_ON_CANCELLATION",
        lambda s: s.checkpoint.retention,
        Retention.RETAIN_ON_CANCELLATION,
        (
            checkpoints(
                lambda config: config.enable_externalized_checkpoints(
                    ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION
                )
            ),
            checkpoints(
                lambda config: config.set_externalized_checkpoint_cleanup(
                    ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION
                )
            ),
            checkpoints(
                lambda config: config.set_externalized_checkpoint_retention(
                    ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
                )
            ),
        ),
    ),
    Setting(
        c.RETENTION,
        "delete-on-cancellation",
        lambda s: s.checkpoint.retention,
        Retention.DELETE_ON_CANCELLATION,
        (
            checkpoints(
                lambda config: config.set_externalized_checkpoint_retention(
                    ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
                )
            ),
        ),
    ),
    Setting(c.NUM_RETAINED, "3", lambda s: s.checkpoint.num_retained, 3),
    Setting(
        c.UNALIGNED,
        "true",
        lambda s: s.checkpoint.unaligned,
        True,
        (
            checkpoints(lambda config: config.enable_unaligned_checkpoints()),
            checkpoints(lambda config: config.enable_unaligned_checkpoints(True)),
        ),
    ),
    Setting(
        c.UNALIGNED,
        "false",
        lambda s: s.checkpoint.unaligned,
        False,
        (
            checkpoints(lambda config: config.disable_unaligned_checkpoints()),
            checkpoints(lambda config: config.enable_unaligned_checkpoints(False)),
        ),
    ),
    Setting(
        c.ALIGNED_TIMEOUT,
        "5 s",
        lambda s: s.checkpoint.aligned_timeout_ms,
        5000,
        (
            checkpoints(lambda cc: cc.set_alignment_timeout(Duration.of_seconds(5))),
            checkpoints(lambda cc: cc.set_aligned_checkpoint_timeout(Duration.of_seconds(5))),
        ),
        besides=(("execution.checkpointing.unaligned.enabled", "true"),),
    ),
    Setting(
        c.INCREMENTAL,
        "true",
        lambda s: s.backend.incremental,
        True,
        (lambda env: env.set_state_backend(EmbeddedRocksDBStateBackend(True)),),
    ),
    Setting(
        c.SNAPSHOT_COMPRESSION,
        "true",
        lambda s: s.state_files.compress,
        True,
        (lambda env: env.get_config().set_use_snapshot_compression(True),),
    ),
    Setting(
        c.CHECKPOINT_DIR,
        "/chk",
        lambda s: s.checkpoint_dir,
        "/chk",
        (
            checkpoints(lambda config: config.set_checkpoint_storage("/chk")),
            checkpoints(lambda config: config.set_checkpoint_storage_dir("/chk")),
            checkpoints(lambda cc: cc.set_checkpoint_storage(FileSystemCheckpointStorage("/chk"))),
            legacy_backend,
        ),
    ),
    Setting(
        c.SAVEPOINT_DIR,
        "/save",
        lambda s: s.savepoint_dir,
        "/save",
        (lambda env: env.set_default_savepoint_directory("/save"),),
    ),
    Setting(
        c.STORAGE,
        "jobmanager",
        lambda s: s.state_files.in_memory,
        True,
        (checkpoints(lambda cc: cc.set_checkpoint_storage(JobManagerCheckpointStorage())),),
        besides=(*INTERVAL, ("execution.checkpointing.dir", "/chk")),
    ),
    Setting(
        c.DATA_INLINE_THRESHOLD,
        "1 kb",
        lambda s: s.state_files.inline_bytes,
        1024,
        (
            checkpoints(
                lambda cc: cc.set_checkpoint_storage(FileSystemCheckpointStorage("/chk", 1024))
            ),
        ),
        besides=(("execution.checkpointing.dir", "/chk"),),
    ),
    Setting(c.RECOVERY_PATH, "/save/x", lambda s: s.recovery_path, "/save/x"),
    Setting(c.IGNORE_UNCLAIMED_STATE, "true", lambda s: s.allow_non_restored, True),
    Setting(c.CLAIM_MODE, "CLAIM", lambda s: s.claim_mode, ClaimMode.CLAIM),
]


def by_code(say: Callable[[StreamExecutionEnvironment], Any]) -> dict[str, str]:
    env = StreamExecutionEnvironment(Configuration())
    say(env)
    return env.effective_configuration().to_dict()


def by_configuration(key: str, text: str) -> dict[str, str]:
    return by_code(lambda env: env.configure(Configuration().set_string(key, text)))


def resolved(code: dict[str, str] | None = None, conf: dict[str, str] | None = None) -> JobSettings:
    return JobSettings.of([*ambient.layers(conf), ambient.program_layer(code or {})])


def nested(key: str, text: str) -> str:
    value: Any = text
    for part in reversed(key.split(".")):
        value = {part: value}
    return json.dumps(value)  # which is YAML, too


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: f"{s.option.key}={s.text}")
def test_a_setting_means_the_same_through_every_door(here, monkeypatch, setting):
    key, text = setting.option.key, setting.text
    base = "".join(f"{k}: {v}\n" for k, v in setting.besides)
    path = here / "weir-conf.yaml"
    path.write_text(base)

    def check(settings: JobSettings, door: str) -> None:
        assert setting.read(settings) == setting.expected, door

    for number, say in enumerate(setting.code):
        check(resolved(by_code(say)), f"code {number}")
    check(resolved(conf={f"spark.weir.{key}": text}), "Spark")
    for spelling in (key, *setting.option.deprecated_keys):
        check(resolved(by_configuration(spelling, text)), f"program: {spelling}")
        ambient.set_overrides(parse_definitions([f"{spelling}={text}"]))
        check(resolved(), f"command line: {spelling}")
        ambient.set_overrides({})
        monkeypatch.setenv(variable_of(spelling), text)
        check(resolved(), f"variable: {spelling}")
        monkeypatch.delenv(variable_of(spelling))
        monkeypatch.setenv("WEIR_PROPERTIES", f"{spelling}: {text}")
        check(resolved(), f"lines: {spelling}")
        monkeypatch.delenv("WEIR_PROPERTIES")
        path.write_text(f"{base}{spelling}: {text}\n")
        check(resolved(), f"file: {spelling}")
        if not setting.besides:
            path.write_text(nested(spelling, text))
            check(resolved(), f"nested file: {spelling}")
        path.write_text(base)


def test_without_settings_the_defaults_are_flinks(here):
    checkpoint = resolved().checkpoint
    assert checkpoint.interval_ms is None
    assert checkpoint.mode is Mode.EXACTLY_ONCE
    assert checkpoint.timeout_ms == 600_000
    assert checkpoint.min_pause_ms == checkpoint.tolerable_failures == 0
    assert checkpoint.max_concurrent == checkpoint.num_retained == 1
    assert checkpoint.retention is Retention.NO_EXTERNALIZED_CHECKPOINTS
    assert (checkpoint.unaligned, checkpoint.aligned_timeout_ms) == (False, 0)
    assert (resolved().checkpoint_dir, resolved().savepoint_dir) == (None, None)


def test_the_getters_of_a_program_show_what_is_in_effect(here):
    ambient.set_overrides({c.INTERVAL.key: "10 s", "parallelism.default": "7"})
    env = StreamExecutionEnvironment(Configuration())
    assert env.get_checkpoint_interval() == 10_000
    assert env.get_parallelism() == 7
    env.enable_checkpointing(500).set_parallelism(2)
    assert env.get_checkpoint_interval() == 500
    assert env.get_parallelism() == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"unaligned.enabled": "true", "max-concurrent-checkpoints": "2"}, "one checkpoint at a"),
        ({"interval": "10 s", "interval-during-backlog": "5 s"}, "expected 0 or at least"),
        ({"interval": "5 ms"}, "at least 10 ms"),
        ({"storage": "filesystem"}, "no directory is set"),
    ],
)
def test_settings_that_contradict_are_refused(here, values, message):
    with pytest.raises(UsageError, match=message):
        resolved({"execution.checkpointing." + key: text for key, text in values.items()})


def test_checkpoints_during_a_backlog_may_be_off_or_rarer(here, caplog):
    for text in ("0", "10 s", "1 min"):
        values = {"interval": "10 s", "interval-during-backlog": text}
        resolved({"execution.checkpointing." + key: value for key, value in values.items()})
    assert "without effect here: execution.checkpointing.interval-during-backlog" in caplog.text


def test_what_has_no_effect_is_said_once_for_all(here, caplog):
    resolved(
        {
            "execution.state-recovery.approximate-local-recovery": "true",
            "execution.checkpointing.checkpoints-after-tasks-finish": "false",
            "execution.checkpointing.create-subdir": "true",
        }
    )
    (record,) = caplog.records
    assert "approximate-local-recovery (state is always restored" in record.getMessage()
    assert "checkpoints-after-tasks-finish" in record.getMessage()
    assert "create-subdir" not in record.getMessage()
