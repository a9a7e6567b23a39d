"""Reports to the driver come back as they were, users' records included."""

from __future__ import annotations

from weir.runtime.frame import pack_report, payload_kind, unpack_report
from weir.runtime.report import SourceReport, SubtaskReport


def made(rows, subtask=1, metrics=None):
    return SubtaskReport(
        level=2,
        subtask=subtask,
        epoch=9,
        rows=rows,
        bytes_sent=100,
        records_in={3: 5},
        records_out={3: 4},
        entries=6,
        watermark=-1,
        next_timer_ms=None,
        metrics=metrics or {},
    )


def test_a_report_of_a_subtask_comes_back_with_every_fact():
    report = made([(3, "collect", [("a", 1), None]), (4, "print", ["text"])])
    payload = pack_report(report)
    assert payload_kind(payload) == b"R"
    assert unpack_report(payload) == report
    assert report.place == (2, 1)


def test_records_of_classes_that_no_module_has_are_reported():
    class Click:
        def __init__(self, user):
            self.user = user

    report = unpack_report(pack_report(made([(3, "collect", [Click("ann")])])))
    assert isinstance(report, SubtaskReport)
    ((index, kind, (click,)),) = report.rows
    assert (index, kind, click.user) == (3, "collect", "ann")


def test_a_report_of_a_partition_comes_back_with_every_fact():
    report = SourceReport(partition=3, rows_read=10, bytes_read=80, bytes_sent=96)
    assert unpack_report(pack_report(report)) == report
