"""Settings of an environment: every spelling ends in Flink's configuration keys."""

from __future__ import annotations

import pytest

from weir import notices
from weir.common import (
    Configuration,
    Duration,
    ExecutionMode,
    InputDependencyConstraint,
    RestartStrategies,
)
from weir.config.effective import Settings
from weir.datastream import (
    CheckpointingMode,
    CustomCheckpointStorage,
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    FsStateBackend,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    MemorySize,
    MemoryStateBackend,
    PredefinedOptions,
    RocksDBStateBackend,
    RuntimeExecutionMode,
    SlotSharingGroup,
    StreamExecutionEnvironment,
    TimeCharacteristic,
)
from weir.errors import UsageError

PREFIX = "execution.checkpointing."


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


@pytest.fixture
def checkpoints(env):
    return env.get_checkpoint_config()


def keys(env):
    found = env.effective_configuration().to_dict()
    return {key.removeprefix(PREFIX): value for key, value in found.items()}


def test_defaults_are_flinks(env, checkpoints):
    assert not checkpoints.is_checkpointing_enabled()
    assert checkpoints.get_checkpoint_interval() == env.get_checkpoint_interval() == -1
    assert checkpoints.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    assert checkpoints.get_checkpoint_timeout() == 600_000
    assert checkpoints.get_min_pause_between_checkpoints() == 0
    assert checkpoints.get_max_concurrent_checkpoints() == 1
    assert checkpoints.get_tolerable_checkpoint_failure_number() == 0
    assert checkpoints.is_fail_on_checkpointing_errors()
    assert not checkpoints.is_externalized_checkpoints_enabled()
    assert not checkpoints.is_unaligned_checkpoints_enabled()
    assert not checkpoints.is_force_unaligned_checkpoints()
    assert checkpoints.get_aligned_checkpoint_timeout() == Duration.of_millis(0)
    assert checkpoints.get_checkpoint_storage() is None
    assert env.get_state_backend() is None
    assert env.is_changelog_state_backend_enabled() is None
    assert env.get_default_savepoint_directory() is None
    assert keys(env) == {}


def test_each_setter_writes_its_key_and_reads_back(env, checkpoints):
    env.enable_checkpointing(1000, CheckpointingMode.AT_LEAST_ONCE)
    checkpoints.set_checkpoint_timeout(60_000)
    checkpoints.set_min_pause_between_checkpoints(500)
    checkpoints.set_max_concurrent_checkpoints(2)
    checkpoints.set_tolerable_checkpoint_failure_number(3)
    checkpoints.set_force_unaligned_checkpoints()
    assert keys(env) == {
        "interval": "1000 ms",
        "mode": "AT_LEAST_ONCE",
        "timeout": "60000 ms",
        "min-pause": "500 ms",
        "max-concurrent-checkpoints": "2",
        "tolerable-failed-checkpoints": "3",
        "unaligned.forced": "true",
    }
    assert env.get_checkpoint_interval() == 1000
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert checkpoints.get_checkpoint_timeout() == 60_000
    assert checkpoints.get_min_pause_between_checkpoints() == 500
    assert checkpoints.get_max_concurrent_checkpoints() == 2
    assert checkpoints.get_tolerable_checkpoint_failure_number() == 3
    assert env.is_force_unaligned_checkpoints()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            lambda c: c.enable_externalized_checkpoints(
                ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION
            ),
            lambda c: c.set_externalized_checkpoint_retention(
                ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
            ),
        ),
        (
            lambda c: c.set_externalized_checkpoint_cleanup(
                ExternalizedCheckpointCleanup.DELETE_ON_CANCELLATION
            ),
            lambda c: c.set_externalized_checkpoint_retention(
                ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
            ),
        ),
        (
            lambda c: c.set_alignment_timeout(Duration.of_seconds(5)),
            lambda c: c.set_aligned_checkpoint_timeout(Duration.of_seconds(5)),
        ),
        (
            lambda c: c.set_fail_on_checkpointing_errors(True),
            lambda c: c.set_tolerable_checkpoint_failure_number(0),
        ),
        (
            lambda c: c.set_checkpoint_storage_dir("file:///chk"),
            lambda c: c.set_checkpoint_storage(FileSystemCheckpointStorage("file:///chk")),
        ),
        (
            lambda c: c.set_checkpoint_storage("file:///chk"),
            lambda c: c.set_checkpoint_storage(FileSystemCheckpointStorage("file:///chk")),
        ),
    ],
)
def test_old_and_new_spellings_write_the_same(old, new):
    first = StreamExecutionEnvironment.get_execution_environment()
    second = StreamExecutionEnvironment.get_execution_environment()
    old(first.get_checkpoint_config())
    new(second.get_checkpoint_config())
    assert keys(first) == keys(second) != {}


def test_unaligned_checkpoints_can_be_switched(env, checkpoints):
    checkpoints.enable_unaligned_checkpoints()
    assert env.is_unaligned_checkpoints_enabled()
    checkpoints.set_alignment_timeout(Duration.of_seconds(5))
    assert checkpoints.get_alignment_timeout() == Duration.of_seconds(5)
    assert keys(env) == {"unaligned.enabled": "true", "aligned-checkpoint-timeout": "5000 ms"}
    checkpoints.disable_unaligned_checkpoints()
    assert not checkpoints.is_unaligned_checkpoints_enabled()


def test_never_failing_on_checkpoints_tolerates_any_number(checkpoints):
    checkpoints.set_fail_on_checkpointing_errors(False)
    assert not checkpoints.is_fail_on_checkpointing_errors()
    assert checkpoints.get_tolerable_checkpoint_failure_number() == 2**31 - 1


def test_retention_reads_back_under_both_names(env, checkpoints):
    checkpoints.enable_externalized_checkpoints(
        ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION
    )
    expected = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    assert checkpoints.get_externalized_checkpoint_retention() is expected
    assert checkpoints.get_externalized_checkpoint_cleanup() is expected
    assert checkpoints.is_externalized_checkpoints_enabled()
    assert keys(env) == {"externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("set_checkpoint_interval", 9),
        ("set_checkpoint_interval", 0),
        ("set_checkpoint_interval", "1 s"),
        ("set_checkpoint_timeout", 9),
        ("set_min_pause_between_checkpoints", -1),
        ("set_max_concurrent_checkpoints", 0),
        ("set_tolerable_checkpoint_failure_number", -1),
    ],
)
def test_values_out_of_range_are_refused_where_they_are_set(env, checkpoints, method, value):
    with pytest.raises(UsageError, match="at least"):
        getattr(checkpoints, method)(value)
    assert keys(env) == {}


def test_values_of_the_wrong_type_are_refused(env, checkpoints):
    for call in (
        lambda: checkpoints.set_checkpointing_mode("EXACTLY_ONCE"),
        lambda: checkpoints.set_externalized_checkpoint_retention(1),
        lambda: checkpoints.set_alignment_timeout(5),
        lambda: checkpoints.set_checkpoint_storage(5),
        lambda: env.set_state_backend("rocksdb"),
    ):
        with pytest.raises(TypeError, match="expected"):
            call()


def test_values_from_a_configuration_are_read_in_any_unit(env, checkpoints):
    configuration = Configuration()
    configuration.set_string(PREFIX + "interval", "10 s")
    configuration.set_string(PREFIX + "timeout", "2 min")
    configuration.set_string(PREFIX + "mode", "at_least_once")
    configuration.set_string(PREFIX + "unaligned.enabled", "true")
    env.configure(configuration)
    assert checkpoints.get_checkpoint_interval() == 10_000
    assert checkpoints.get_checkpoint_timeout() == 120_000
    assert checkpoints.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert checkpoints.is_unaligned_checkpoints_enabled()


def test_old_spellings_in_a_configuration_replace_what_was_set_before(env, checkpoints):
    checkpoints.set_checkpoint_storage_dir("file:///first")
    env.configure(Configuration().set_string("state.checkpoints.dir", "file:///second"))
    assert keys(env)["dir"] == "file:///second"
    both = Configuration().set_string("state.checkpoints.dir", "old")
    env.configure(both.set_string(PREFIX + "dir", "new"))
    assert keys(env)["dir"] == "new"


def test_a_configuration_given_at_the_start_is_copied():
    configuration = Configuration().set_integer("parallelism.default", 2)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    configuration.set_integer("parallelism.default", 9)
    assert env.get_parallelism() == 2


def test_checkpoint_storage_becomes_configuration(env, checkpoints):
    storage = FileSystemCheckpointStorage("file:///chk", 1024, 8192)
    checkpoints.set_checkpoint_storage(storage)
    assert checkpoints.get_checkpoint_storage() is storage
    assert storage.get_checkpoint_path() == "file:///chk"
    assert storage.get_min_file_size_threshold() == 1024
    assert storage.get_write_buffer_size() == 8192
    found = keys(env)
    assert (found["storage"], found["dir"]) == ("filesystem", "file:///chk")
    checkpoints.set_checkpoint_storage(JobManagerCheckpointStorage(max_state_size=7))
    assert keys(env)["storage"] == "jobmanager"
    checkpoints.set_checkpoint_storage(CustomCheckpointStorage("other"))
    assert keys(env)["storage"] == "other"


def test_checkpoint_storage_checks_its_values():
    assert JobManagerCheckpointStorage().get_max_state_size() == 5 * 1024 * 1024
    for call in (
        lambda: FileSystemCheckpointStorage(),
        lambda: FileSystemCheckpointStorage("x", file_state_size_threshold=2 * 1024 * 1024),
        lambda: FileSystemCheckpointStorage("x", write_buffer_size=-2),
        lambda: JobManagerCheckpointStorage(max_state_size=0),
    ):
        with pytest.raises(UsageError):
            call()


def test_state_backends_become_configuration(env):
    env.set_state_backend(HashMapStateBackend())
    assert keys(env) == {"state.backend.type": "hashmap"}
    backend = EmbeddedRocksDBStateBackend(True)
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    backend.set_number_of_transfer_threads(2)
    backend.set_options("factory")
    env.set_state_backend(backend)
    assert env.get_state_backend() is backend
    assert keys(env) == {
        "state.backend.type": "rocksdb",
        "incremental": "true",
        "state.backend.rocksdb.predefined-options": "FLASH_SSD_OPTIMIZED",
        "state.backend.rocksdb.checkpoint.transfer.thread.num": "2",
        "state.backend.rocksdb.options-factory": "factory",
    }
    assert CustomStateBackend("x").to_configuration() == {"state.backend.type": "x"}


def test_a_configured_backend_replaces_the_one_that_was_set(env):
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    env.configure(Configuration().set_string("state.backend.type", "hashmap"))
    assert keys(env)["state.backend.type"] == "hashmap"
    assert env.get_state_backend() is None


def test_old_backends_choose_a_storage_too_and_say_what_replaced_them(env):
    with pytest.warns(DeprecationWarning, match="HashMapStateBackend and FileSystem"):
        env.set_state_backend(FsStateBackend("file:///chk", "file:///save"))
    assert keys(env) == {
        "state.backend.type": "hashmap",
        "storage": "filesystem",
        "dir": "file:///chk",
        "savepoint-dir": "file:///save",
    }
    with pytest.warns(DeprecationWarning, match="JobManagerCheckpointStorage"):
        memory = MemoryStateBackend(max_state_size=9)
    assert memory.get_max_state_size() == 9
    assert memory.to_configuration()["execution.checkpointing.storage"] == "jobmanager"
    with pytest.warns(DeprecationWarning, match="EmbeddedRocksDBStateBackend"):
        rocks = RocksDBStateBackend("file:///chk", True)
    assert rocks.to_configuration() == {
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": "file:///chk",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": True,
    }


def test_restart_strategies_become_configuration(env):
    strategy = RestartStrategies.fixed_delay_restart(3, 1000)
    env.set_restart_strategy(strategy)
    assert env.get_restart_strategy() == strategy
    assert keys(env)["restart-strategy.type"] == "fixed-delay"
    assert keys(env)["restart-strategy.fixed-delay.attempts"] == "3"


def test_the_rest_of_the_environments_settings_are_kept(env):
    env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
    env.enable_changelog_state_backend(True)
    env.set_default_savepoint_directory("file:///save")
    env.set_buffer_timeout(7)
    env.set_default_local_parallelism(3)
    env.set_stream_time_characteristic(TimeCharacteristic.EventTime)
    env.register_slot_sharing_group(SlotSharingGroup.builder("g").build())
    assert env.is_changelog_state_backend_enabled() is True
    assert env.get_default_savepoint_directory() == "file:///save"
    assert env.get_buffer_timeout() == 7
    assert env.get_default_local_parallelism() == env.get_parallelism() == 3
    assert env.is_chaining_enabled()
    assert not env.disable_operator_chaining().is_chaining_enabled()
    assert keys(env)["execution.runtime-mode"] == "STREAMING"
    assert keys(env)["savepoint-dir"] == "file:///save"


def test_a_registered_slot_sharing_group_is_said_to_have_no_effect(env, caplog, monkeypatch):
    monkeypatch.setattr(notices, "_said", set())
    group = SlotSharingGroup.builder("g").build()
    assert env.register_slot_sharing_group(group).register_slot_sharing_group(group) is env
    (record,) = caplog.records
    assert "register_slot_sharing_group() has no effect, because" in record.getMessage()
    with pytest.raises(TypeError, match="expected a SlotSharingGroup, found str"):
        env.register_slot_sharing_group("g")


@pytest.mark.parametrize(
    "call",
    [
        lambda env: env.set_stream_time_characteristic(TimeCharacteristic.ProcessingTime),
        lambda env: env.get_config().set_execution_mode(ExecutionMode.BATCH),
        lambda env: env.get_config().set_default_input_dependency_constraint(
            InputDependencyConstraint.ALL
        ),
        lambda env: env.get_checkpoint_config().set_prefer_checkpoint_for_recovery(False),
    ],
    ids=["time characteristic", "execution mode", "input constraint", "prefer checkpoint"],
)
def test_older_settings_without_effect_are_said_once(env, call, caplog, monkeypatch):
    monkeypatch.setattr(notices, "_said", set())
    call(env)
    call(env)
    (record,) = caplog.records
    assert "has no effect, because" in record.getMessage()


def test_ingestion_time_is_refused_with_what_to_do(env):
    with pytest.raises(UsageError, match="return the current time"):
        env.set_stream_time_characteristic(TimeCharacteristic.IngestionTime)


def test_equal_settings_are_equal(env):
    config = env.get_config().set_parallelism(2)
    other = StreamExecutionEnvironment.get_execution_environment().get_config()
    assert config != other
    assert config == other.set_parallelism(2)
    assert config.__hash__() == other.__hash__()
    assert config != other.enable_object_reuse()


def test_dependencies_add_up(env):
    env.add_python_file("a.py")
    env.add_python_file("b.py")
    env.set_python_requirements("req.txt", "cache")
    env.add_python_archive("venv.zip", "venv")
    env.set_python_executable("python3")
    env.add_jars("file:///a.jar", "file:///b.jar")
    env.add_classpaths("file:///c.jar")
    assert keys(env) == {
        "python.files": "a.py,b.py",
        "python.requirements": "req.txt#cache",
        "python.archives": "venv.zip#venv",
        "python.executable": "python3",
        "pipeline.jars": "file:///a.jar;file:///b.jar",
        "pipeline.classpaths": "file:///c.jar",
    }


def test_every_key_that_the_door_writes_is_one_that_the_engine_knows(env, checkpoints):
    env.enable_checkpointing(1000, CheckpointingMode.EXACTLY_ONCE)
    checkpoints.set_checkpoint_timeout(1000).set_min_pause_between_checkpoints(1)
    checkpoints.set_max_concurrent_checkpoints(1).set_tolerable_checkpoint_failure_number(1)
    checkpoints.enable_unaligned_checkpoints().set_force_unaligned_checkpoints()
    checkpoints.set_aligned_checkpoint_timeout(Duration.of_seconds(1))
    checkpoints.set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    checkpoints.set_checkpoint_storage(FileSystemCheckpointStorage("file:///chk", 1024, 8192))
    backend = EmbeddedRocksDBStateBackend(True)
    backend.set_db_storage_paths("/a")
    backend.set_predefined_options(PredefinedOptions.DEFAULT)
    backend.set_number_of_transfer_threads(2)
    backend.set_options("factory")
    env.set_state_backend(backend).enable_changelog_state_backend(True)
    env.set_default_savepoint_directory("file:///save").set_buffer_timeout(7)
    env.disable_operator_chaining().set_runtime_mode(RuntimeExecutionMode.STREAMING)
    env.set_parallelism(2).set_max_parallelism(8)
    env.set_restart_strategy(RestartStrategies.failure_rate_restart(1, 1000, 10))
    env.add_jars("a.jar")
    env.add_classpaths("b.jar")
    env.register_cached_file("f", "n")
    assert Settings([env.effective_configuration().to_dict()]).validate() == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda b: b.set_cpu_cores(1.0).set_task_off_heap_memory_mb(10),
        lambda b: b.set_task_heap_memory_mb(10),
        lambda b: b.set_cpu_cores(1.0).set_task_heap_memory_mb(0),
        lambda b: b.set_external_resource("gpu", 1.0),
    ],
)
def test_slot_sharing_groups_need_cores_and_heap_when_they_ask_for_anything(ask):
    with pytest.raises(UsageError, match="cpu cores and task heap memory are required"):
        ask(SlotSharingGroup.builder("g")).build()


def test_slot_sharing_groups_hold_their_wishes():
    group = (
        SlotSharingGroup.builder("g")
        .set_cpu_cores(0.5)
        .set_task_heap_memory_mb(1)
        .set_task_off_heap_memory_mb(2)
        .set_managed_memory_mb(3)
        .set_external_resource("gpu", 1.0)
        .build()
    )
    assert group.get_name() == "g"
    assert group.get_cpu_cores() == 0.5
    assert group.get_task_heap_memory() == MemorySize.of_mebi_bytes(1)
    assert group.get_task_off_heap_memory().get_mebi_bytes() == 2
    assert group.get_managed_memory() > group.get_task_heap_memory()
    assert group.get_external_resources() == {"gpu": 1.0}
