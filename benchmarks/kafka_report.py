"""What runs of workload k say together: steady parts, medians of rounds, aims, `KAFKA.md`.

Nothing here knows a broker or a process.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from benchmarks.kafka_contenders import AT_LEAST_ONCE, CONTENDERS, EXACTLY_ONCE, MODES
from benchmarks.report import number, significant, spread, table

SPEED, LATENCY = "speed", "latency"
RATE = 1_000
WARM, END = 0.25, 0.95
IN_WORDS = {EXACTLY_ONCE: "exactly once", AT_LEAST_ONCE: "at least once"}


class Mark(NamedTuple):
    """How many rows could be seen when, and what the contender had used by then."""

    seconds: float
    rows: int
    cpu_seconds: float


def steady_part(marks: Sequence[Mark], count: int) -> tuple[Mark, Mark] | None:
    """Return where the steady part begins and ends; None if there are too few marks.

    Marks are changes of what can be seen. Exactly once, rows appear in steps, one for each
    checkpoint, so only times between steps say how fast rows are. The first quarter warms up. The
    last rows are left out: one partition is read to its end before the other, and the last step
    waits for its checkpoint with less to do.
    """
    warm = [mark for mark in marks if mark.rows >= WARM * count]
    ending = [mark for mark in warm if mark.rows <= END * count]
    end = ending[-1] if len(ending) > 1 else warm[-1] if warm else None
    return (warm[0], end) if end is not None and end.seconds > warm[0].seconds else None


@dataclass
class Figures:
    """What one run found; `error` instead of figures where it failed or its result was wrong.

    Attributes:
        measure: speed or latency.
        seconds: of the steady part.
        cores: how many the contender's processes kept busy.
    """

    contender: str
    mode: str
    measure: str
    round: int = 1
    rows: int = 0
    seconds: float | None = None
    rows_per_second: float | None = None
    rows_per_cpu_second: float | None = None
    cores: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    error: str | None = None

    def set_speed(self, begin: Mark, end: Mark) -> None:
        """Take the figures of a steady part."""
        rows, used = end.rows - begin.rows, max(0.01, end.cpu_seconds - begin.cpu_seconds)
        self.seconds = end.seconds - begin.seconds
        self.rows_per_second = rows / self.seconds
        self.rows_per_cpu_second = rows / used
        self.cores = used / self.seconds

    def set_latency(self, taken_ms: list[float], cores: float) -> None:
        """Take the times that rows took."""
        cuts = statistics.quantiles(taken_ms, n=100)
        self.rows, self.cores = len(taken_ms), cores
        self.p50_ms, self.p95_ms, self.p99_ms = cuts[49], cuts[94], cuts[98]


Runs = Sequence[Figures]


def of_rounds(runs: Runs, contender: str, mode: str, name: str) -> dict[int, float]:
    """Return one figure of a contender by round, where there is one."""
    found = (r for r in runs if (r.contender, r.mode) == (contender, mode) and r.error is None)
    values = ((run.round, getattr(run, name)) for run in found if run.measure == _measure(name))
    return {number: value for number, value in values if value is not None}


def _measure(name: str) -> str:
    return LATENCY if name.endswith("_ms") else SPEED


def median(values: Iterable[float]) -> float | None:
    """Return the median, None of nothing."""
    found = list(values)
    return statistics.median(found) if found else None


def ratios(runs: Runs, above: str, below: str, mode: str, *, name: str) -> list[float]:
    """Return the quotients of rounds that stood beside each other in time."""
    upper, lower = (of_rounds(runs, contender, mode, name) for contender in (above, below))
    return [upper[n] / lower[n] for n in sorted(upper.keys() & lower.keys()) if lower[n]]


@dataclass(frozen=True)
class Aim:
    """A ratio of Weir to another contender; without a bound, one for comparison."""

    text: str
    below: str
    mode: str
    name: str
    bound: float | None = None

    def rounds(self, runs: Runs) -> list[float]:
        """Return the ratio in each round."""
        return ratios(runs, "weir", self.below, self.mode, name=self.name)

    def verdict(self, runs: Runs) -> tuple[float | None, str]:
        """Return the median over the rounds, and what it says of the aim."""
        found = median(self.rounds(runs))
        if found is None:
            return None, "not measured"
        if self.bound is None:
            return found, "for comparison"
        return found, "met" if found >= self.bound else "not met"


def _aims() -> Iterable[Aim]:
    bounds = {
        ("pyflink", "rows_per_second"): 20.0,
        ("flink-java", "rows_per_cpu_second"): 0.5,
    }
    named = {"rows_per_second": "rows a second", "rows_per_cpu_second": "rows a CPU second"}
    for mode in MODES:
        for contender in list(CONTENDERS.values())[1:]:
            if mode not in contender.modes:
                continue
            for name, words in named.items():
                bound = bounds.get((contender.name, name)) if mode == EXACTLY_ONCE else None
                text = f"{words} to those of {contender.title}, {IN_WORDS[mode]}"
                yield Aim(text, contender.name, mode, name, bound)


AIMS = sorted(_aims(), key=lambda aim: aim.bound is None)


@dataclass(frozen=True)
class Setting:
    """Under which circumstances the figures came about."""

    command: str
    date: str
    rounds: int
    seconds: int
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    complete: bool = False


def to_json(runs: Runs, setting: Setting) -> dict[str, Any]:
    """Return everything, as it is stored."""
    return {"setting": asdict(setting), "runs": [asdict(run) for run in runs]}


def of_json(form: dict[str, Any]) -> tuple[list[Figures], Setting]:
    """Read what was stored."""
    return [Figures(**run) for run in form["runs"]], Setting(**form["setting"])


def render(runs: Runs, setting: Setting) -> str:
    """Return the whole page."""
    parts = [
        "# From Kafka to Kafka, measured\n",
        f"Made on {setting.date} by `{setting.command}`; do not edit. "
        "The [method](../docs/internals/benchmarks.md) says what the figures mean.\n",
    ]
    if not setting.complete:
        parts.append("**The run was not complete when this was written: figures are missing.**\n")
    parts.append(
        "Records of 100 bytes from a topic of two partitions, the least value so far of each of "
        "100,000 keys, and to another topic; a checkpoint every second, on two cores with the "
        "broker beside it. Medians of rounds in turns, with the least and the greatest.\n"
    )
    parts.append(table(("", ""), (setting.machine | {"rounds": str(setting.rounds)}).items()))
    parts += ["## Aims\n", aims(runs)]
    for mode in MODES:
        parts += [f"## Rows a second, {IN_WORDS[mode]}\n", speeds(runs, mode)]
    parts += [f"## Milliseconds from end to end at {RATE:,} rows a second\n", latencies(runs)]
    parts += ["## Contenders\n", contenders(setting)]
    missing = [(_title(r), IN_WORDS[r.mode], r.measure, r.error) for r in runs if r.error]
    if missing:
        head = ("", "guarantee", "measure", "reason")
        parts += ["## What is not there\n", table(head, missing)]
    return "\n".join(parts)


def _title(run: Figures) -> str:
    return f"{CONTENDERS[run.contender].title}, round {run.round}"


def aims(runs: Runs) -> str:
    """Return the table of Weir's ratios to the others, aims first."""
    rows = []
    for aim in AIMS:
        found, verdict = aim.verdict(runs)
        limit = f"at least {aim.bound:g}" if aim.bound is not None else ""
        rows.append((aim.text, limit, significant(found), spread(aim.rounds(runs)), verdict))
    return table(("Weir's, of rounds side by side", "aim", "median", "from … to", ""), rows)


def _cells(runs: Runs, contender: str, mode: str, name: str) -> tuple[str, str]:
    values = list(of_rounds(runs, contender, mode, name).values())
    between = f"{min(values):,.0f} to {max(values):,.0f}" if len(values) > 1 else ""
    return number(median(values)), between


def speeds(runs: Runs, mode: str) -> str:
    """Return the table of one guarantee, fastest first."""
    found = []
    for contender in CONTENDERS.values():
        given = [r for r in runs if (r.contender, r.mode) == (contender.name, mode)]
        given = [run for run in given if run.rows_per_second is not None]
        if not given:
            continue
        fast = _cells(runs, contender.name, mode, "rows_per_second")
        cheap = _cells(runs, contender.name, mode, "rows_per_cpu_second")
        seconds = median(run.seconds for run in given if run.seconds)
        cores = median(run.cores for run in given if run.cores)
        row = (contender.title, *fast, *cheap, number(cores, ".1f"))
        row = (*row, f"{given[0].rows:,}", number(seconds, ".0f"))
        found.append((median(run.rows_per_second or 0.0 for run in given) or 0.0, row))
    head = ("", "rows/s", "from … to", "rows per CPU second", "from … to", "cores")
    head = (*head, "rows", "seconds of the steady part")
    return table(head, [row for _, row in sorted(found, key=lambda pair: -pair[0])])


def latencies(runs: Runs) -> str:
    """Return the table of latencies, by guarantee."""
    rows = []
    for mode in MODES:
        for contender in CONTENDERS.values():
            names = ("p50_ms", "p95_ms", "p99_ms")
            cells = [_cells(runs, contender.name, mode, name) for name in names]
            if all(cell[0] == "-" for cell in cells):
                continue
            used = [r for r in runs if (r.contender, r.mode) == (contender.name, mode)]
            cores = median(r.cores for r in used if r.measure == LATENCY and r.cores is not None)
            row = (contender.title, IN_WORDS[mode], *(text for cell in cells for text in cell))
            rows.append((*row, number(cores, ".2f")))
    head = ("", "guarantee", "p50", "from … to", "p95", "from … to", "p99", "from … to", "cores")
    return table(head, rows)


def contenders(setting: Setting) -> str:
    """Return the table of who took part, and with what."""
    rows = [
        (contender.title, contender.about, setting.versions[contender.name])
        for contender in CONTENDERS.values()
        if contender.name in setting.versions
    ]
    return table(("", "what it is", "versions"), rows)


def line(run: Figures, *, timed: bool = True) -> str:
    """Return one run as a line; without times only whether its result was right."""
    head = f"{run.round} {run.contender:10} {run.mode:13} {run.measure:7}"
    if run.error:
        return f"{head} FAILED: {run.error}"
    if run.p50_ms is not None:
        times = zip((50, 95, 99), (run.p50_ms, run.p95_ms, run.p99_ms), strict=True)
        shown = "  ".join(f"p{n} {ms or 0.0:7,.0f} ms" for n, ms in times)
        return f"{head} {shown}  {run.cores or 0.0:.2f} cores"
    if run.rows_per_second is None or not timed:
        return f"{head} right result" + (", too few rows to be timed" if timed else "")
    return (
        f"{head} {run.rows_per_second:9,.0f} rows/s  {run.rows_per_cpu_second or 0.0:9,.0f} rows "
        f"per CPU second  {run.seconds or 0.0:.1f} s"
    )


def summary(runs: Runs, say: Callable[[str], None]) -> None:
    """Say the medians and the verdicts."""
    keys = list(dict.fromkeys((r.contender, r.mode) for r in runs))
    for contender, mode in keys:
        for name in ("rows_per_second", "rows_per_cpu_second", "p50_ms", "p95_ms", "p99_ms"):
            middle, between = _cells(runs, contender, mode, name)
            if middle != "-":
                say(f"{contender:10} {mode:13} {name:19} {middle:>10}  ({between or 'one round'})")
    for aim in AIMS:
        found, verdict = aim.verdict(runs)
        if aim.bound is not None:
            say(f"{aim.text}: {significant(found)}, aim at least {aim.bound:g}: {verdict}")
