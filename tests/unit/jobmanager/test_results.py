"""Collected records are released once, with the checkpoint that covers them."""

from __future__ import annotations

import pytest

from weir.errors import JobExecutionError
from weir.jobmanager.results import Results


def test_without_checkpoints_records_are_released_at_once():
    results = Results(wait_for_checkpoints=False)
    results.take(1, 0, "collect", [1, 2], False)
    results.end(None)
    assert list(results.iterator(0)) == [1, 2]


def test_with_checkpoints_records_wait_and_replayed_epochs_count_once():
    results = Results(wait_for_checkpoints=True)
    results.take(1, 0, "collect", ["a"], False)
    results.take(2, 0, "collect", ["b"], False)
    results.release_up_to(1)
    results.drop_unreleased()
    results.take(2, 0, "collect", ["b"], False)
    results.release_up_to(2)
    results.end(None)
    assert list(results.iterator(0)) == ["a", "b"]


def test_an_iterator_raises_the_error_of_the_job_after_its_records():
    results = Results(wait_for_checkpoints=False)
    results.take(1, 0, "collect", [1], False)
    results.end(JobExecutionError("broken"))
    records = results.iterator(0)
    assert next(records) == 1
    with pytest.raises(JobExecutionError, match="broken"):
        next(records)


def test_printed_lines_appear_with_their_epoch(capsys):
    results = Results(wait_for_checkpoints=True)
    results.take(1, 0, "print", ["x"], False)
    results.take(1, 0, "print", ["y"], True)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("x\n", "y\n")
