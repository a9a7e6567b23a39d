"""What the demo shows while the job runs."""

from __future__ import annotations

from weir.demo.tracking import Tracker


def report(attempt, epoch, records, *, restored=0, completed=0):
    return {
        "status": "RUNNING",
        "attempt": attempt,
        "epoch": epoch,
        "restored_epoch": restored,
        "records_in": {} if records is None else {"output": records, "check-payments": 2 * records},
        "state_entries": 5,
        "slots": [{"subtask": 0, "pid": 1}],
        "checkpoints": {
            "completed": completed,
            "failed": 0,
            "last_bytes": 10,
            "last_duration_ms": 3,
        },
    }


def test_rows_are_counted_where_payments_arrive():
    figures = Tracker(1_000, 0).update(report(0, 2, 400, completed=1), 2_000)
    assert (figures.rows, figures.rows_per_second, figures.seconds) == (400, 200, 2.0)
    assert (figures.checkpoints, figures.slots, figures.attempt) == (1, 1, 0)


def test_a_new_attempt_counts_on_from_the_epoch_it_was_restored_at():
    tracker = Tracker(1_000, 0)
    for epoch in (1, 2, 3, 4):
        tracker.update(report(0, epoch, 100 * epoch), epoch * 100)
    assert tracker.update(report(1, None, None), 500).rows == 400
    assert tracker.update(report(1, 3, 100, restored=2), 600).rows == 300
    assert tracker.update(report(1, 4, 200, restored=2), 700).rows == 400


def test_starting_over_without_a_checkpoint_counts_from_zero():
    tracker = Tracker(1_000, 0)
    tracker.update(report(0, 3, 300), 100)
    assert tracker.update(report(1, 1, 100), 200).rows == 100


def test_a_job_that_goes_on_from_a_savepoint_counts_rows_and_checkpoints_on():
    tracker = Tracker(1_000, 0)
    tracker.update(report(0, 3, 300, completed=2), 100)
    tracker.update(report(1, 5, 200, restored=3, completed=4), 200)
    tracker.next_job()
    waiting = tracker.update(report(0, None, None), 300)
    assert (waiting.rows, waiting.checkpoints) == (500, 4)
    going_on = tracker.update(report(0, 6, 100, restored=5, completed=1), 400)
    assert (going_on.rows, going_on.checkpoints) == (600, 5)


def test_the_rate_forgets_what_is_long_ago():
    tracker = Tracker(100_000, 0)
    for second in range(20):
        figures = tracker.update(report(0, second + 1, 100 * second), second * 1_000)
    assert figures.rows_per_second == 100
    for second in range(20, 40):
        figures = tracker.update(report(0, 20, 1_900), second * 1_000)
    assert figures.rows_per_second == 0
