"""`weir top`: a job at a glance in a terminal, again and again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from weir.cli.errors import HELP_OPTIONS
from weir.cli.lookup import JobInfo, Where, jobmanager_options
from weir.cli.options import job_argument

_SPARKS = " ▁▂▃▄▅▆▇█"
_SPARK_POINTS = 60
_NEVER = 2**62
_ENDED = ("FINISHED", "CANCELED", "FAILED")


@dataclass(frozen=True)
class Facts:
    """What REST says about a job at one moment."""

    job: Mapping[str, Any]
    times: Mapping[str, Any]
    slots: Sequence[Mapping[str, Any]]
    checkpoints: Mapping[str, Any]

    @classmethod
    def asked(cls, found: JobInfo) -> Facts:
        """Ask the JobManager of a job."""
        client, path = found.client, f"/jobs/{found.job_id}"
        slots = client.get("/taskmanagers")["taskmanagers"]
        return cls(
            client.get(path),
            client.get(f"{path}/timeline"),
            [slot for slot in slots if slot["jobId"] == found.job_id],
            client.get(f"{path}/checkpoints"),
        )


@click.command(context_settings=HELP_OPTIONS)
@job_argument
@click.option("--once", is_flag=True, help="Show it once and end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@jobmanager_options
def top(job: str, once: bool, interval: float, where: Where) -> None:
    """Show how JOB does: operators, slots, checkpoints, records per second; Ctrl-C ends it."""
    found = where.find(job)
    facts = Facts.asked(found)
    console = Console(highlight=False)
    if once or not sys.stdout.isatty():
        console.print(screen(facts))
        return
    waiter = threading.Event()
    with Live(screen(facts), console=console, auto_refresh=False) as live:
        try:
            while facts.job["state"] not in _ENDED:
                waiter.wait(interval)
                facts = Facts.asked(found)
                live.update(screen(facts), refresh=True)
        except KeyboardInterrupt:
            return


def screen(facts: Facts) -> Group:
    """Return the whole picture; names are shown as they are, and command no terminal."""
    job, recent = facts.job, facts.times["recent"]
    counts, latest = facts.checkpoints["counts"], facts.checkpoints["latest"]["completed"]
    last = "none" if latest is None else f"{latest['end_to_end_duration']} ms, {_size(latest)}"
    head = Text.assemble(
        (plain(job["name"]), "bold"),
        f"  {job['state']}  attempt {job['attempt']}  epoch {job['epoch']}  "
        f"parallelism {job['parallelism']}  up {job['duration'] // 1000} s",
    )
    rates = recent["records-in-rate"]
    line = Text(f"records/s {_number(rates[-1] if rates else None)}  {sparks(rates)}")
    kept = Text(
        f"checkpoints {counts['completed']} complete, {counts['failed']} failed, last {last}"
    )
    parts: list[Text | Table] = [head, line, Text(_epoch(recent)), kept, _operators(job)]
    return Group(*parts, _slots(facts), *_events(facts))


def _epoch(recent: Mapping[str, Any]) -> str:
    """Return where the time of the last epoch that was seen went, and the last latency."""
    shares = " + ".join(
        f"{text} {_number(_last(recent, name))}"
        for text, name in (
            ("Spark", "spark-duration"),
            ("level 0", "level-0-duration"),
            ("shuffles", "shuffle-duration"),
            ("slots", "slot-duration"),
        )
    )
    whole, commit = _last(recent, "epoch-duration"), _last(recent, "commit-duration")
    latency = _last(recent, "latency")
    return f"epoch {_ms(whole)} = {shares}  commit {_ms(commit)}  latency {_ms(latency)}"


def _last(series: Mapping[str, Any], name: str) -> int | None:
    """Return the last value that is there."""
    known = (value for value in reversed(series.get(name, [])) if value is not None)
    return next(known, None)


def _operators(job: Mapping[str, Any]) -> Table:
    table = _table(
        ["operator", "level", "subtasks", "records in", "records out", "skew", "state", "behind"]
    )
    for vertex in job["vertices"]:
        taken = [each["read-records"] for each in vertex["subtasks"]]
        cells: list[str | Text] = [
            Text(plain(vertex["name"])),
            "Spark" if vertex["level"] == 0 else str(vertex["level"]),
            str(vertex["parallelism"]),
            _number(vertex["metrics"]["read-records"] if vertex["level"] else None),
            _number(vertex["metrics"]["write-records"] if vertex["level"] else None),
            skew(taken),
            Text(plain(", ".join(vertex["states"]))),
            behind(vertex["watermark"], job["now"]),
        ]
        table.add_row(*cells)
    return table


def _slots(facts: Facts) -> Table:
    series = {each["subtask"]: each for each in facts.times["recent"]["slots"]}
    table = _table(["slot", "process", "ready", "busy", "CPU", "memory", "entries", "behind"])
    for slot in facts.slots:
        shares = series.get(slot["subtask"], {"busy": [None], "cpu": [None]})
        cells: list[str | Text] = [
            str(slot["subtask"]),
            Text(plain(slot["path"])),
            "yes" if slot["ready"] else "no",
            _share(shares["busy"][-1]),
            _share(shares["cpu"][-1]),
            _megabytes(slot["memoryBytes"]),
            _number(slot["stateEntries"]),
            behind(slot["watermark"], facts.job["now"]),
        ]
        table.add_row(*cells)
    return table


def _events(facts: Facts) -> list[Text]:
    return [Text(plain(f"{e['kind']}: {e['text']}")) for e in facts.times["events"][-3:]]


def _table(names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(names):
        table.add_column(name, justify="left" if number in (0, 6) else "right")
    return table


def plain(text: object) -> str:
    """Return a text without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def sparks(values: Sequence[float]) -> str:
    """Return numbers as a line of bars, the greatest one full."""
    shown = values[-_SPARK_POINTS:]
    most = max(shown, default=0.0)
    if most <= 0:
        return ""
    return "".join(_SPARKS[round(value / most * (len(_SPARKS) - 1))] for value in shown)


def skew(values: Sequence[int]) -> str:
    """Return the greatest over the mean; a dash where there is nothing to compare."""
    if len(values) < 2 or not sum(values):
        return "-"
    return f"{max(values) * len(values) / sum(values):.1f}"


def behind(watermark: int | None, now_ms: int) -> str:
    """Return how far a watermark is behind the clock; a dash for what is no date."""
    if watermark is None or abs(watermark) >= _NEVER or abs(watermark) < 10**11:
        return "-"
    return f"{(now_ms - watermark) / 1000:,.1f} s"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _ms(value: int | None) -> str:
    return "-" if value is None else f"{value:,} ms"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.0f} MB"


def _size(entry: Mapping[str, Any]) -> str:
    return f"{entry['checkpointed_size'] / 1e6:,.1f} MB"
