"""What a notebook shows: tables of environments, streams, jobs and checkpoints, one live line."""

from __future__ import annotations

import threading

from tests.harness.programs import environment, started
from tests.unit.datastream.recording import JOB_ID, RecordingEngine

from weir.common import Types
from weir.common._html import facts, table
from weir.datastream import StreamExecutionEnvironment
from weir.datastream._notebook import LiveLine, kernel_line, live_line, summary
from weir.errors import UsageError, UserFunctionError
from weir.jobmanager import panel
from weir.jobmanager.client import LocalJob
from weir.jobmanager.epoch_times import EpochParts, EpochTimesView, Spread
from weir.jobmanager.history import CheckpointEntry, HistoryView
from weir.jobmanager.timeline import Point
from weir.notices import under_way
from weir.testing.harness import collect


def test_tables_are_escaped_and_leave_out_what_is_not_there():
    assert facts("<a>", [("x", "<b>"), ("y", None)]) == (
        "<b>&lt;a&gt;</b><table><tr><th>x</th><td>&lt;b&gt;</td></tr></table>"
    )
    assert table(("<h>",), [("&",), (None,)]) == (
        "<table><tr><th>&lt;h&gt;</th></tr><tr><td>&amp;</td></tr><tr><td></td></tr></table>"
    )


def test_an_environment_shows_its_operators_and_settings():
    env = StreamExecutionEnvironment()
    assert "<td>off</td>" in env._repr_html_()
    env.enable_checkpointing(500)
    env.from_collection([1], Types.LONG()).map(lambda v: v).name("<script>").uid("m").print()
    shown = env._repr_html_()
    assert "every 500 ms" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "<td>m</td>" in shown


def test_a_stream_shows_what_its_records_are():
    env = StreamExecutionEnvironment()
    stream = env.from_collection([1], Types.LONG())
    assert "<b>DataStream</b>" in stream._repr_html_()
    assert "<td>Long</td>" in stream._repr_html_()
    keyed = stream.map(lambda v: v).name("Same").key_by(lambda v: v)
    assert "<b>KeyedStream</b>" in keyed._repr_html_()
    assert "Same" in keyed._repr_html_()
    assert "any Python object" in keyed._repr_html_()
    assert "by key" in keyed._repr_html_()


def test_a_job_shows_its_status_and_its_checkpoints():
    env = environment()
    collect(env.from_sequence(1, 9).uid("numbers").key_by(lambda n: n).map(lambda n: n))
    harness = started(env)
    harness.run_epoch(take=1)
    job = LocalJob(harness.supervisor)
    assert "RUNNING" in job._repr_html_()
    assert job.job_id in job._repr_html_()
    assert summary(job).startswith(f"job {job.job_id}: RUNNING, epoch 1")


def test_checkpoints_show_their_newest():
    assert HistoryView()._repr_html_() == "no checkpoint yet"
    entries = tuple(CheckpointEntry(n, 0, 1, path=f"/c/<{n}>") for n in range(20, 0, -1))
    shown = HistoryView(entries=entries)._repr_html_()
    assert "/c/&lt;20&gt;" in shown
    assert shown.count("<tr>") == 11


def test_without_a_kernel_nothing_is_shown():
    assert kernel_line() is None
    with live_line(None) as line:
        assert line is None


def test_the_live_line_tells_of_spark_and_then_of_the_job():
    shown: list[str] = []
    seen = threading.Event()

    def show(text: str) -> None:
        shown.append(text)
        if "job" in text:
            seen.set()

    with live_line(show) as line, under_way("Spark is starting"):
        assert isinstance(line, LiveLine)
    with LiveLine(show, every_s=0.001).following(RecordingEngine()):
        assert seen.wait(30)
    assert shown == ["Spark is starting …", f"job {JOB_ID}: FINISHED"]


def program_that_fails():
    StreamExecutionEnvironment().execute()


def test_failures_in_a_notebook_show_the_line_of_the_program_and_none_of_the_engine():
    try:
        program_that_fails()
    except UsageError as error:
        lines = error._render_traceback_()
    assert "in program_that_fails" in lines[0]
    assert "StreamExecutionEnvironment().execute()" in lines[1]
    assert lines[2].startswith("UsageError: No operators defined")
    assert len(lines) == 3


def test_failures_of_functions_keep_the_trace_of_the_user():
    error = UserFunctionError("Map", "1", "Traceback ...\nValueError: no\n")
    assert error._render_traceback_() == [f"UserFunctionError: {error}"]


class Kernel:
    """What a notebook's kernel offers: one display, which is replaced again and again."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.changed = threading.Semaphore(0)

    def display(self, data, raw, display_id):
        self.update(data, raw)
        return self

    def update(self, data, raw):
        self.shown.append(data["text/html"])
        self.changed.release()


def test_a_panel_changes_until_the_job_is_over():
    kernel, over, count = Kernel(), threading.Event(), iter(range(100))
    panel.display_panel(kernel, lambda: f"<b>{next(count)}</b>", over)
    over.set()
    for _ in range(2):
        assert kernel.changed.acquire(timeout=30)
    assert kernel.shown == ["<b>0</b>", "<b>1</b>"]


def test_a_panel_follows_while_the_job_runs():
    over, shown = threading.Event(), []

    def show(text):
        shown.append(text)
        if len(shown) == 3:
            over.set()

    panel.follow(show, lambda: "now", over, 0.001)
    assert shown == ["now"] * 4


def test_a_sparkline_has_a_point_for_each_second_and_a_link_is_a_web_address():
    points = [Point(1_000 * n, 1_000, records_in=n) for n in range(1, 4)]
    assert "3 now, 3 at most" in panel.sparkline(points)
    assert panel.sparkline(points).count(",") >= 3
    assert panel.sparkline(points[:1]) == ""
    assert panel.page_line("javascript:alert(1)") == ""
    assert "&quot;" in panel.page_line('http://x/#"')


def test_a_panel_tells_where_the_time_of_an_epoch_went_and_the_latency():
    assert panel.time_rows(EpochTimesView()) == []
    times = EpochTimesView(Spread(2), 90, EpochParts(20, 30, 15, 25))
    split = "90 ms: Spark 20, level 0 30, shuffles 15, slots 25"
    assert panel.time_rows(times) == [("last epoch", split), ("latency", None)]
    times = EpochTimesView(Spread(2), 90, EpochParts(20, 30, 15, 25), latency_ms=1_400)
    assert panel.time_rows(times)[1] == ("latency", "1400 ms to commit")
