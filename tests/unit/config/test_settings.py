"""Configuration: forms of values, layers, old spellings, misspelt keys."""

from __future__ import annotations

import datetime
import enum
from typing import Any

import pytest

from weir.common import Configuration, Duration, Time
from weir.config import ALL_OPTIONS, KNOWN_KEYS, Settings, flatten
from weir.config import backend as b
from weir.config import checkpointing as c
from weir.config import execution as e
from weir.config.option import (
    BOOLEAN,
    DURATION,
    FLOAT,
    INT,
    LIST,
    MAP,
    MEMORY,
    ConfigOption,
    one_of,
)
from weir.errors import UsageError


def option(kind: Any) -> ConfigOption:
    return ConfigOption("some.key", kind, None, "For tests.")


class Mode(enum.Enum):
    EXACTLY_ONCE = 0


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (DURATION, "10 s", 10_000),
        (DURATION, "500 ms", 500),
        (DURATION, "10min", 600_000),
        (DURATION, "10 m", 600_000),
        (DURATION, "2 h", 7_200_000),
        (DURATION, "1 d", 86_400_000),
        (DURATION, "1 Day", 86_400_000),
        (DURATION, "1500000 ns", 1),
        (DURATION, "200", 200),
        (DURATION, 200, 200),
        (DURATION, Duration.of_seconds(3), 3000),
        (DURATION, Time.seconds(3), 3000),
        (DURATION, datetime.timedelta(seconds=3), 3000),
        (MEMORY, "20 kb", 20 << 10),
        (MEMORY, "20kb", 20 << 10),
        (MEMORY, "64 MB", 64 << 20),
        (MEMORY, "1g", 1 << 30),
        (MEMORY, "1 tb", 1 << 40),
        (MEMORY, "12 bytes", 12),
        (MEMORY, 4096, 4096),
        (BOOLEAN, "TRUE", True),
        (BOOLEAN, False, False),
        (INT, " 5 ", 5),
        (INT, 5, 5),
        (FLOAT, "1.5", 1.5),
        (LIST, "a;b", ("a", "b")),
        (LIST, "[a, b]", ("a", "b")),
        (LIST, ["a"], ("a",)),
        (MAP, "a:1, b:x:y", {"a": "1", "b": "x:y"}),
        (MAP, {"a": 1}, {"a": "1"}),
        (one_of("EXACTLY_ONCE", "AT_LEAST_ONCE"), "exactly-once", "EXACTLY_ONCE"),
        (one_of("EXACTLY_ONCE", "AT_LEAST_ONCE"), Mode.EXACTLY_ONCE, "EXACTLY_ONCE"),
    ],
)
def test_values_are_read_in_every_form_that_flink_accepts(
    kind: Any, given: Any, expected: Any
) -> None:
    assert option(kind).parse(given) == expected


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (DURATION, "ten seconds"),
        (DURATION, "10 parsecs"),
        (DURATION, "-1 s"),
        (DURATION, True),
        (MEMORY, "20 xb"),
        (MEMORY, "much"),
        (BOOLEAN, "yes"),
        (INT, "1.5"),
        (INT, True),
        (FLOAT, "x"),
        (one_of("A", "B"), "C"),
    ],
)
def test_a_value_of_another_form_is_refused_by_key_value_and_form(kind: Any, given: Any) -> None:
    with pytest.raises(UsageError) as caught:
        option(kind).parse(given)
    assert "'some.key'" in str(caught.value)
    assert repr(given) in str(caught.value)
    assert kind.form in str(caught.value)


def test_without_a_setting_the_default_applies() -> None:
    settings = Settings([])
    assert settings.get(c.INTERVAL) is None
    assert settings.get(c.TIMEOUT) == 600_000
    assert settings.get(c.MODE) == "EXACTLY_ONCE"
    assert settings.get(b.STATE_BACKEND) == "hashmap"
    assert settings.get(e.EXPONENTIAL_MULTIPLIER) == 1.5
    assert settings.get(e.SLOT_LEASE) == 10_000
    assert not settings.is_set(c.TIMEOUT)


def test_the_last_layer_is_the_strongest_whatever_the_spelling() -> None:
    weak = {"execution.checkpointing.dir": "weak", "parallelism.default": "1"}
    strong = {"state.checkpoints.dir": "strong"}
    settings = Settings([weak, strong])
    assert settings.get(c.CHECKPOINT_DIR) == "strong"
    assert settings.get(e.PARALLELISM) == 1
    assert settings.is_set(c.CHECKPOINT_DIR)


def test_within_a_layer_the_new_spelling_wins() -> None:
    layer = {"state.savepoints.dir": "old", "execution.checkpointing.savepoint-dir": "new"}
    assert Settings([layer]).get(c.SAVEPOINT_DIR) == "new"


def test_a_bad_value_is_reported_under_the_key_that_was_used() -> None:
    with pytest.raises(UsageError, match=r"state\.checkpoints\.num-retained.*'many'"):
        Settings([{"state.checkpoints.num-retained": "many"}]).validate()


def test_nested_mappings_of_a_yaml_file_are_flattened() -> None:
    nested = {
        "execution": {"checkpointing": {"interval": "5 s"}},
        "pipeline": {"global-job-parameters": {"a": 1}},
        "parallelism.default": 2,
    }
    assert flatten(nested) == {
        "execution.checkpointing.interval": "5 s",
        "pipeline.global-job-parameters": {"a": 1},
        "parallelism.default": 2,
    }
    assert Settings([nested]).get(c.INTERVAL) == 5000


def test_parameters_can_be_given_one_by_one() -> None:
    settings = Settings([{"pipeline.global-job-parameters.name": "x"}])
    assert settings.validate() == []
    assert settings.get(e.GLOBAL_JOB_PARAMETERS) == {"name": "x"}


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("execution.checkpointing.intervall", "execution.checkpointing.interval"),
        ("state.backend.typ", "state.backend.type"),
        ("restart-strategy.fixed-delay.attempt", "restart-strategy.fixed-delay.attempts"),
        ("weir.slot.leese", "weir.slot.lease"),
        ("weir.no.such.thing.at.all", None),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest_key(key: str, suggestion: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        Settings([{key: "1"}]).validate()
    assert repr(key) in str(caught.value)
    if suggestion is not None:
        assert repr(suggestion) in str(caught.value)


def test_unknown_keys_of_flink_are_warnings_and_foreign_keys_are_nothing() -> None:
    layer = {"state.backend.novel.cache-size": "1 gb", "taskmanager.memory.size": "1g"}
    warnings = Settings([layer]).validate()
    assert len(warnings) == 1
    assert "state.backend.novel.cache-size" in warnings[0]


@pytest.mark.parametrize(
    ("layer", "backend", "storage"),
    [
        ({}, "hashmap", "jobmanager"),
        ({"state.backend": "filesystem", "state.checkpoints.dir": "d"}, "hashmap", "filesystem"),
        ({"state.backend": "jobmanager", "state.checkpoints.dir": "d"}, "hashmap", "jobmanager"),
        ({"state.backend": "rocksdb", "state.checkpoints.dir": "d"}, "rocksdb", "filesystem"),
        ({"state.backend.type": "RocksDB"}, "rocksdb", "jobmanager"),
        ({"execution.checkpointing.dir": "d"}, "hashmap", "filesystem"),
        (
            {"execution.checkpointing.dir": "d", "execution.checkpointing.storage": "jobmanager"},
            "hashmap",
            "jobmanager",
        ),
    ],
)
def test_old_and_new_spellings_choose_backend_and_storage(
    layer: dict[str, str], backend: str, storage: str
) -> None:
    settings = Settings([layer])
    assert settings.state_backend() == backend
    assert settings.checkpoint_storage() == storage


def test_a_filesystem_without_a_directory_is_refused() -> None:
    with pytest.raises(UsageError, match=r"execution\.checkpointing\.dir"):
        Settings([{"state.backend": "filesystem"}]).checkpoint_storage()


@pytest.mark.parametrize("name", ["none", "off", "disable"])
def test_restarts_are_switched_off_by_all_of_flinks_names(name: str) -> None:
    assert Settings([{"restart-strategy": name}]).get(e.RESTART_STRATEGY) == "none"


def test_a_program_configuration_is_a_layer() -> None:
    configuration = Configuration().set_string("execution.checkpointing.interval", "3 s")
    configuration.set_boolean("execution.checkpointing.unaligned.enabled", True)
    settings = Settings([{}, configuration.to_dict()])
    assert settings.get(c.INTERVAL) == 3000
    assert settings.get(c.UNALIGNED) is True


def test_every_option_has_one_key_a_description_and_a_default_that_fits() -> None:
    keys = [o.key for o in ALL_OPTIONS]
    assert len(set(keys)) == len(keys)
    for o in ALL_OPTIONS:
        assert o.description.endswith(".")
        assert set(o.deprecated_keys) <= KNOWN_KEYS - {o.key}
        if o.default is not None:
            assert o.parse(o.default) == o.default


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ({"execution.checkpointing.interval": "9 ms"}, "found '9 ms', expected at least 10 ms, or"),
        ({"execution.checkpointing.timeout": "9"}, "found '9', expected at least 10 ms"),
        ({"execution.checkpointing.max-concurrent-checkpoints": "0"}, "expected at least 1"),
        ({"weir.source.batch-files": "-1"}, "found '-1', expected at least 0"),
        ({"execution.checkpointing.tolerable-failed-checkpoints": "-1"}, "expected at least 0"),
        ({"state.checkpoints.num-retained": "0"}, "'state.checkpoints.num-retained': found '0'"),
    ],
)
def test_a_value_below_the_least_is_refused_by_its_key(
    layer: dict[str, str], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        Settings([layer]).validate()


def test_an_interval_of_zero_switches_checkpoints_off() -> None:
    assert Settings([{"execution.checkpointing.interval": "0"}]).get(c.INTERVAL) == 0


def test_settings_for_people_have_current_keys_and_no_secrets() -> None:
    settings = Settings(
        [
            {"state.savepoints.dir": "/weak", "s3.secret-key": "hunter2", "my.password": "hunter2"},
            {"state.savepoints.dir": "/strong", "s3.access-key": "hunter2", "weir.rest.token": "h"},
            {"pipeline.global-job-parameters": {"a": 1, "db.password": "hunter2"}},
        ]
    )
    assert settings.shown() == {
        "execution.checkpointing.savepoint-dir": "/strong",
        "my.password": "******",
        "pipeline.global-job-parameters": "a:1,db.password:******",
        "s3.access-key": "******",
        "s3.secret-key": "******",
        "weir.rest.token": "******",
    }
