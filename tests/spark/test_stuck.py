"""Slots that die, hang or fail before they take epochs: the job learns of it and says why."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
from tests.spark.scenario import command

from weir.slot.closing import CLOSE_S

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]
LEASE_S = 4


@pytest.fixture
def strict(env):
    """An environment without restarts and with a short lease."""
    return configured(env, {"restart-strategy.type": "none"})


def configured(env, settings):
    from weir.common import Configuration

    configuration = Configuration()
    lease = {"weir.slot.lease": f"{LEASE_S} s", "weir.slot.heartbeat": "500 ms"}
    for key, value in {**lease, **settings}.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    return env


def opening(act):
    """Return a function that does something when it is opened, and passes records on."""
    from weir.datastream import KeyedProcessFunction

    class Opening(KeyedProcessFunction):
        def open(self, context):
            act(context)

        def process_element(self, value, context):
            yield value

    return Opening()


def numbers(env, function):
    from weir.common import Types

    stream = env.from_collection(list(range(10)), Types.LONG())
    return stream.key_by(lambda n: n % 3).process(function, Types.LONG()).name("opening")


def failure_of(env, function, name="stuck"):
    """Return how the job fails, which has to be soon."""
    from weir.errors import WeirError

    numbers(env, function).print()
    started = time.monotonic()
    with pytest.raises(WeirError) as caught:
        env.execute(name)
    return str(caught.value), time.monotonic() - started


def test_a_function_that_ends_its_process_in_open_is_named(strict):
    text, _ = failure_of(strict, opening(lambda context: sys.exit(3)))
    assert "operator 'opening' failed" in text
    assert "SystemExit: 3" in text


def test_a_slot_that_leaves_in_open_without_a_word_is_told_with_its_exit_code(strict):
    def act(context):
        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os._exit(7)

    text, took = failure_of(strict, opening(act))
    assert "it ended before it was ready; its process" in text
    assert "ended with exit code 7; its log ends with:" in text
    assert "last words" in text
    assert took < 100


def test_a_slot_that_is_killed_in_open_is_told_with_the_signal(strict):
    text, _ = failure_of(strict, opening(lambda context: os.kill(os.getpid(), signal.SIGKILL)))
    assert "was killed by SIGKILL" in text
    assert "memory" not in text
    assert "slot-" in text


def test_a_slot_that_is_frozen_before_it_is_ready_is_lost_with_its_lease_and_ended(strict):
    pids = []

    def act(context):
        os.kill(os.getpid(), signal.SIGSTOP)

    text, took = failure_of(strict, opening(act))
    assert "has not been heard of since it began to restore its state" in text
    assert "is stopped (SIGSTOP, or a debugger)" in text
    assert took < 100
    pids = [int(p) for p in text.replace(";", " ").split() if p.isdigit()]
    assert not any("weir.slot.main" in command(pid) for pid in pids)


def test_an_assignment_that_a_slot_cannot_read_fails_the_job(strict, monkeypatch):
    from weir.jobmanager.restoration import Restoration

    made = Restoration.assignment

    def broken(self, *arguments):
        import msgspec

        return msgspec.structs.replace(made(self, *arguments), lease_ms="soon")

    monkeypatch.setattr(Restoration, "assignment", broken)
    text, _ = failure_of(strict, opening(lambda context: None))
    assert "slot 0 failed" in text or "slot 1 failed" in text
    assert "ValidationError" in text
    assert "lease_ms" in text


def test_a_storage_that_a_slot_cannot_open_fails_the_job(strict, monkeypatch):
    from weir.jobmanager.restoration import Restoration

    made = Restoration.assignment

    def broken(self, *arguments):
        import msgspec

        return msgspec.structs.replace(made(self, *arguments), storage_uri="nowhere://at-all")

    monkeypatch.setattr(Restoration, "assignment", broken)
    text, _ = failure_of(strict, opening(lambda context: None))
    assert "nowhere" in text


def once(marker, act):
    """Act in the first process that comes here."""

    def guarded(context):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        act()

    return guarded


@pytest.mark.parametrize("how", ["killed", "exit"])
def test_a_job_with_restarts_starts_again_when_a_slot_dies_in_open(env, tmp_path, how):
    settings = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    kill = {"killed": lambda: os.kill(os.getpid(), signal.SIGKILL), "exit": lambda: sys.exit(3)}
    function = opening(once(str(tmp_path / "mark"), kill[how]))
    with numbers(configured(env, settings), function).execute_and_collect() as records:
        assert sorted(records) == list(range(10))
    assert (tmp_path / "mark").exists()


def failing_once(crash, kill):
    """Count records; after a checkpoint one record fails, and then a slot dies as it restores."""
    from weir.common import Types
    from weir.datastream import CheckpointedFunction, KeyedProcessFunction
    from weir.datastream.state import ValueStateDescriptor

    class Failing(KeyedProcessFunction, CheckpointedFunction):
        completed = False

        def initialize_state(self, context):
            if context.is_restored():
                once(kill, lambda: os.kill(os.getpid(), signal.SIGKILL))(context)

        def snapshot_state(self, context):
            pass

        def open(self, context):
            self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

        def notify_checkpoint_complete(self, checkpoint_id):
            self.completed = True

        def process_element(self, value, context):
            self.count.update((self.count.value() or 0) + 1)
            if self.completed:

                def fail():
                    msg = "once"
                    raise ValueError(msg)

                once(crash, fail)(context)
            yield value % 3, self.count.value()

    return Failing()


def test_a_slot_that_is_killed_while_it_restores_is_replaced(env, tmp_path):
    from weir.common import Types

    configured(
        env,
        {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "5",
            "restart-strategy.fixed-delay.delay": "10 ms",
            "weir.source.batch-rows": "10",
        },
    )
    env.enable_checkpointing(100)
    crash, kill = str(tmp_path / "crash"), str(tmp_path / "kill")
    stream = env.from_collection(list(range(300)), Types.LONG())
    counted = stream.key_by(lambda n: n % 3).process(failing_once(crash, kill))
    with counted.execute_and_collect() as records:
        assert sorted(records) == [(key, n) for key in range(3) for n in range(1, 101)]
    assert (tmp_path / "crash").exists()
    assert (tmp_path / "kill").exists()


def test_a_function_that_never_stops_yielding_fails_with_its_name_and_record(strict):
    configured(
        strict,
        {"restart-strategy.type": "none", "taskmanager.memory.process.size": "400 mb"},
    )
    from weir.datastream import KeyedProcessFunction
    from weir.errors import JobExecutionError

    class Endless(KeyedProcessFunction):
        def process_element(self, value, context):
            while True:
                yield value

    numbers(strict, Endless()).print()
    with pytest.raises(JobExecutionError, match="ran out of memory") as caught:
        strict.execute("endless")
    text = str(caught.value)
    assert "taskmanager.memory.process.size is 400 MB" in text
    assert "operator 'opening' at record" in text
    assert "in process_element (test_stuck.py:" in text


def test_a_working_directory_that_cannot_be_used_is_named_and_tried_again(env, tmp_path):
    from weir.common import Types
    from weir.datastream import KeyedProcessFunction

    checkpoints = tmp_path / "chk"
    configured(
        env,
        {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "5",
            "restart-strategy.fixed-delay.delay": "10 ms",
            "execution.checkpointing.dir": str(checkpoints),
        },
    )
    marker = str(tmp_path / "mark")

    def fail():
        for directory in checkpoints.iterdir():
            (directory / "query-1").write_text("in the way")
        msg = "once"
        raise ValueError(msg)

    class Failing(KeyedProcessFunction):
        def process_element(self, value, context):
            once(marker, fail)(context)
            yield value

    stream = env.from_collection(list(range(10)), Types.LONG())
    stream.key_by(lambda n: n % 3).process(Failing(), Types.LONG()).print()
    job = env.execute_async("blocked")
    job.get_job_execution_result().result()
    told = [view.message for view in job.supervisor.exceptions]
    assert "once" in told[0]
    assert "query-1' cannot be used: File exists" in told[1]
    assert len(told) == 2


def test_functions_of_a_job_that_has_finished_have_time_to_close(strict, tmp_path):
    from weir.common import Types
    from weir.datastream import KeyedProcessFunction

    class Closing(KeyedProcessFunction):
        def open(self, context):
            self.marker = tmp_path / f"closed-{context.get_index_of_this_subtask()}"

        def process_element(self, value, context):
            yield value

        def close(self):
            # Longer than a failover waits, and than a slot goes on without a heartbeat.
            threading.Event().wait(CLOSE_S + LEASE_S)
            self.marker.touch()

    stream = strict.from_collection(list(range(10)), Types.LONG())
    stream.key_by(lambda n: n % 3).process(Closing(), Types.LONG()).print()
    strict.execute("closing")
    assert sorted(path.name for path in tmp_path.glob("closed-*")) == ["closed-0", "closed-1"]
