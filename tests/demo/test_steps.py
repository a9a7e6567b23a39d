"""When the demo acts on the running job, and what it remembers of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from weir.cli.demo import _as_dict, _missing
from weir.common.completable_future import CompletableFuture
from weir.demo.kafka_steps import KillBroker
from weir.demo.payments import InputShape
from weir.demo.recount import Comparison
from weir.demo.run import DemoOptions, DemoResult
from weir.demo.steps import Kill, Killed, Moved, Resumed, StopStep
from weir.demo.tracking import Figures
from weir.errors import JobExecutionError, StorageError
from weir.testing.clock import ManualClock

FIGURES = Figures(1.0, 0, 1_000, 10, 0, 1, 2, 5, 2, 10, 3)
PROGRESS = {"attempt": 0, "epoch": 4, "restored_epoch": 0, "slots": [{"subtask": 0, "pid": 1}]}


class Heard:
    def __init__(self):
        self.texts = []

    def say(self, text):
        self.texts.append(text)

    def show(self, figures):
        raise AssertionError(figures)


class Stoppable:
    """A job of two subtasks that can be asked to stop."""

    control = SimpleNamespace(view=lambda: SimpleNamespace(parallelism=2))

    def __init__(self):
        self.asked = []

    def stop_with_savepoint(self, drain, directory):
        self.asked.append((drain, directory))
        self.answer = CompletableFuture()
        return self.answer


def at(rows):
    return replace(FIGURES, rows=rows)


def test_the_savepoint_waits_for_enough_rows_and_is_asked_for_once(tmp_path):
    job, stop = Stoppable(), StopStep(tmp_path, None, Heard(), ManualClock())
    stop.look(job, PROGRESS, at(599))
    assert (job.asked, stop.outcome()) == ([], None)
    stop.look(job, PROGRESS, at(600))
    stop.look(job, PROGRESS, at(700))
    assert job.asked == [(False, tmp_path.as_uri())]


def test_the_savepoint_waits_for_the_recovery(tmp_path):
    clock, heard = ManualClock(), Heard()
    kill = Kill(heard, clock)
    job, stop = Stoppable(), StopStep(tmp_path, kill, heard, clock)
    stop.look(job, PROGRESS, at(900))
    assert job.asked == []
    assert kill.outcome() is None


def test_a_stopped_job_leaves_path_size_and_time(tmp_path):
    clock, heard, job = ManualClock(), Heard(), Stoppable()
    stop = StopStep(tmp_path, None, heard, clock)
    stop.look(job, PROGRESS, at(600))
    (tmp_path / "savepoint-1").mkdir()
    (tmp_path / "savepoint-1" / "_metadata").write_bytes(b"x" * 300_000)
    clock.advance(1_500)
    job.answer.complete("file:///s/savepoint-1")
    assert stop.outcome() == Moved("file:///s/savepoint-1", 300_000, 1_500, 2, 3, None)
    assert heard.texts[-1] == (
        "Stopped after 1.5 s with a savepoint of 0.3 MB: file:///s/savepoint-1"
    )


def test_a_job_that_ended_first_has_no_savepoint_and_that_is_said(tmp_path):
    heard, job = Heard(), Stoppable()
    stop = StopStep(tmp_path, None, heard, ManualClock())
    stop.look(job, PROGRESS, at(1_000))
    job.answer.complete_exceptionally(JobExecutionError("the job ended before that"))
    assert stop.outcome() is None
    assert heard.texts[-1] == "There is no savepoint: the job ended before that"


def test_a_savepoint_that_cannot_be_written_ends_the_demo(tmp_path):
    job = Stoppable()
    stop = StopStep(tmp_path, None, Heard(), ManualClock())
    stop.look(job, PROGRESS, at(600))
    job.answer.complete_exceptionally(StorageError("disk full"))
    with pytest.raises(StorageError, match="disk full"):
        stop.outcome()


def test_the_new_job_goes_on_when_it_has_handled_an_epoch():
    clock, heard = ManualClock(), Heard()
    resumed = Resumed(heard, clock)
    job = SimpleNamespace(get_job_id=lambda: "ab12")
    clock.advance(2_000)
    resumed.look(job, {**PROGRESS, "epoch": None}, FIGURES)
    assert resumed.resume_ms is None
    clock.advance(1_000)
    resumed.look(job, {**PROGRESS, "restored_epoch": 3}, replace(FIGURES, slots=3))
    clock.advance(1_000)
    resumed.look(job, PROGRESS, FIGURES)
    assert resumed.resume_ms == 3_000
    assert heard.texts == ["Job ab12 goes on with 3 slots behind epoch 3, 3.0 s after its start"]


class Broker:
    pid = 7
    done = ()

    def kill(self):
        self.done += ("kill",)

    def start(self):
        self.done += ("start",)
        self.pid = 8


def handled(attempt, records):
    return {**PROGRESS, "attempt": attempt, "records_in": {"output": records}}


@pytest.mark.parametrize(("attempt", "before", "after"), [(0, 650, 700), (1, 0, 20)])
def test_the_broker_dies_once_comes_back_and_is_left_alone(attempt, before, after):
    clock, heard, broker = ManualClock(), Heard(), Broker()
    step = KillBroker(broker, None, heard, clock)
    step.look(None, handled(0, 599), at(599))
    assert (broker.done, step.outcome()) == ((), None)
    step.look(None, handled(0, 650), at(650))
    clock.advance(1_999)
    step.look(None, handled(0, 650), at(650))
    assert broker.done == ("kill",)
    clock.advance(1)
    step.look(None, handled(0, 650), at(650))
    assert broker.done == ("kill", "start")
    step.look(None, handled(attempt, before), at(650))
    assert step.outcome() == Killed(7, None)
    clock.advance(500)
    step.look(None, handled(attempt, after), at(700))
    step.look(None, handled(attempt, after + 100), at(900))
    assert step.outcome() == Killed(7, 2_500)
    assert heard.texts == [
        "Killed the broker (process 7) with SIGKILL",
        "The broker is back (process 8)",
        "Records arrive again 2.5 s after the broker's death",
    ]


def test_the_broker_lives_until_the_job_has_recovered_from_the_kill():
    clock, heard, broker = ManualClock(), Heard(), Broker()
    step = KillBroker(broker, Kill(heard, clock), heard, clock)
    step.look(None, handled(0, 900), at(900))
    assert broker.done == ()


MOVED = Moved("file:///s", 10, 20, 2, 3, 40)


@pytest.mark.parametrize(
    ("kill", "move", "missing"),
    [
        (Killed(7, 30), MOVED, []),
        (None, MOVED, ["recovery"]),
        (Killed(7, None), None, ["recovery", "start from a savepoint"]),
        (Killed(7, 30), replace(MOVED, resume_ms=None), ["start from a savepoint"]),
    ],
)
def test_what_was_wanted_and_did_not_happen_is_missing(tmp_path, kill, move, missing):
    result = DemoResult(Comparison(1, 1, 0, 0, 0), kill, move, 1.0, FIGURES)
    wanted = DemoOptions(InputShape(1_000, 20, 1), tmp_path)
    assert _missing(wanted, result) == missing
    assert _missing(replace(wanted, kill=False, rescale=False), result) == []
    between = replace(wanted, kafka=True, rescale=False)
    dead = "recovery from a dead broker"
    assert _missing(between, replace(result, kill=Killed(7, 30))) == [dead]
    assert _missing(between, replace(result, kill=Killed(7, 30), broker=Killed(9, 40))) == []
    assert _missing(replace(between, kill=False), result) == []


def test_the_json_has_the_figures_of_the_move_and_no_path_that_is_gone(tmp_path):
    result = DemoResult(Comparison(1, 1, 0, 0, 0), None, MOVED, 1.0, FIGURES)
    shown = _as_dict(result, True, tmp_path)
    names = ("savepoint", "savepoint_bytes", "stop_ms", "parallelism_before", "parallelism")
    assert [shown[n] for n in names] == ["file:///s", 10, 20, 2, 3]
    assert shown["resume_ms"] == 40
    assert _as_dict(result, True, None)["savepoint"] is None
