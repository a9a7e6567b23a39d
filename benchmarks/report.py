"""`RESULTS.md` from the figures: ratios first, rows/s beside them, and what is missing and why."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from benchmarks import plan
from benchmarks.aims import AIMS, Cells, epoch_seconds, rate, ratio, relative
from benchmarks.contenders.protocol import WORKLOAD_EPOCH
from benchmarks.workloads.catalogue import BY_NAME

REFERENCE = "weir-hashmap"
FLOOR = "identity"
LIKE = "a-100k"


@dataclass(frozen=True)
class Setting:
    """Under which circumstances the figures came about.

    Attributes:
        rounds: the number that was asked for, None for the planned ones.
        complete: whether everything that was to run has run.
    """

    command: str
    mode: str
    rounds: int | None
    date: str
    machine: dict[str, str] = field(default_factory=dict)
    complete: bool = False

    @property
    def rounds_in_words(self) -> str:
        """How many times a fast contender was measured."""
        if self.rounds is not None or self.mode != "full":
            return str(self.rounds or 1)
        return (
            f"{plan.ROUNDS_FOR_AIMS} of what an aim compares in Weir and on the floors, "
            f"{plan.ROUNDS} of everything else"
        )


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def number(value: float | None, form: str = ",.0f") -> str:
    """Return a figure, or a dash."""
    return "-" if value is None else format(value, form)


def significant(value: float | None) -> str:
    """Return a ratio with two or three digits that mean something."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}" if value >= 5 else f"{value:.2f}"


def quickly_checked() -> str:
    """Return which results a quick run checks."""
    pairs = ", ".join(f"{workload} of {name}" for name, workload in plan.QUICK_CHECKED)
    return f"checked: {pairs}; the other results of a quick run were not checked"


def render(cells: Cells, setting: Setting, startups: Mapping[str, float]) -> str:
    """Return the whole page."""
    parts = [
        "# Benchmark results\n",
        f"Made on {setting.date} by `{setting.command}`; do not edit. "
        "The [method](../docs/internals/benchmarks.md) says what the figures mean.\n",
    ]
    if not setting.complete:
        parts.append("**The run was not complete when this was written: figures are missing.**\n")
    if setting.mode != "full":
        parts.append(f"**A {setting.mode} run: the figures are an indication only.**\n")
    if setting.mode == "quick":
        parts.append(f"Results {quickly_checked()}.\n")
    facts = setting.machine | {"rounds": setting.rounds_in_words, "mode": setting.mode}
    parts.append(table(("", ""), facts.items()))
    parts += ["## Aims\n", aims(cells)]
    for workload in plan.WORKLOADS:
        if workload != WORKLOAD_EPOCH and any(key[1] == workload for key in cells):
            parts += [f"## {workload}: {plan.title_of(workload)}\n", steady(cells, workload)]
    parts += ["## Epochs of one row\n", epochs(cells)]
    if startups:
        parts += ["## Start-up\n", STARTUP, startup(startups)]
    parts += ["## Versions\n", versions(cells)]
    parts += ["## What is not there\n", missing(cells)]
    return "\n".join(parts)


def aims(cells: Cells) -> str:
    """Return the table of aims."""
    rows = []
    for aim in AIMS:
        found, verdict = aim.verdict(cells)
        rows.append((aim.text, aim.limit, significant(found), spread(aim.figure(cells)), verdict))
    return table(("ratio, of rounds side by side", "aim", "median", "from … to", ""), rows)


def spread(values: list[float]) -> str:
    """Return the least and the greatest of several figures."""
    if len(values) < 2:
        return ""
    return f"{significant(min(values))} to {significant(max(values))}"


def steady(cells: Cells, workload: str) -> str:
    """Return the table of one workload, fastest first."""
    found = []
    for contender in plan.CONTENDERS:
        cell = cells.get((contender.name, workload))
        if cell is None:
            continue
        speed = rate(cells, contender.name, workload)
        runs = cell.runs
        spread = [run.rows / run.seconds for run in runs if run.seconds]
        found.append(
            (
                speed or 0.0,
                (
                    contender.title,
                    significant(of_floor(cells, contender.name, workload)),
                    significant(relative(cells, REFERENCE, contender.name, workload)),
                    number(speed) if cell.counts else f"no time: {cell.why or 'not checked'}",
                    f"{min(spread):,.0f} to {max(spread):,.0f}" if len(spread) > 1 else "",
                    f"{runs[0].rows:,}" if runs else "",
                    f"{runs[0].keys:,}" if runs else "",
                    checkpoints(runs),
                ),
            )
        )
    head = (
        "",
        "of the identity floor",
        "Weir hashmap is … times as fast",
        "rows/s",
        "from … to",
        "rows measured",
        "keys",
        "checkpoints",
    )
    return table(head, [row for _, row in sorted(found, key=lambda pair: -pair[0])])


def of_floor(cells: Cells, contender: str, workload: str) -> float | None:
    """Return the ratio to the floor of the workload, else to that of (a) if rows look the same.

    Only (b) and (g) have other rows than two integers.
    """
    own = relative(cells, contender, FLOOR, workload)
    alike = len(BY_NAME[workload].columns) == len(BY_NAME[LIKE].columns)
    if own is not None or not alike:
        return own
    return ratio(rate(cells, contender, workload), rate(cells, FLOOR, LIKE))


def checkpoints(runs: list) -> str:
    """Return the median number of completed checkpoints, where an engine tells."""
    counts = [run.checkpoints for run in runs if run.checkpoints is not None]
    return number(statistics.median(counts)) if counts else ""


def epochs(cells: Cells) -> str:
    """Return the table of one-row epochs."""
    floor = epoch_seconds(cells, "empty-same")
    rows = []
    for contender in plan.CONTENDERS:
        seconds = epoch_seconds(cells, contender.name)
        if seconds is not None:
            rows.append(
                (contender.title, number(seconds * 1000, ".0f"), significant(ratio(seconds, floor)))
            )
    return table(("", "milliseconds, median", "times the floor"), rows)


STARTUP = (
    "Seconds from the start of the process until the first "
    f"{plan.SMOKE[1]:,} rows were through: workload (a), 1,000 keys, one process for each.\n"
)


def startup(startups: Mapping[str, float]) -> str:
    """Return the table of start-up times."""
    rows = [(plan.CONTENDER[name].title, number(s, ".1f")) for name, s in startups.items()]
    return table(("", "seconds"), rows)


def versions(cells: Cells) -> str:
    """Return the table of what was installed in each environment."""
    rows: dict[str, str] = {}
    for (name, _), cell in cells.items():
        for run in cell.runs:
            text = ", ".join(f"{package} {version}" for package, version in run.versions.items())
            rows[plan.CONTENDER[name].environment] = text
    return table(("environment", "packages"), sorted(rows.items()))


def missing(cells: Cells) -> str:
    """Return the table of pairs without a figure, with the reasons."""
    rows = []
    for workload in plan.WORKLOADS:
        for contender in plan.CONTENDERS:
            if contender.only is not None and workload not in contender.only[0]:
                continue  # One line for all of these, below.
            reason = contender.refusal(workload)
            cell = cells.get((contender.name, workload))
            if cell is not None and cell.why:
                reason = cell.why
            elif cell is None and reason is None:
                reason = "not part of this run"
            if reason is not None:
                rows.append((workload, contender.title, reason))
    for contender in plan.CONTENDERS:
        if contender.only is not None:
            workloads, reason = contender.only
            rows.append((f"all but {', '.join(workloads)}", contender.title, reason))
    return table(("workload", "contender", "reason"), rows)
