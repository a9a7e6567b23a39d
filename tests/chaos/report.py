"""What became of runs: in a few lines each, and as tables for a page."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.faults import ENDING, PLANNED, Fault, Kind
from tests.chaos.places import FILE_KINDS, HOW
from tests.chaos.plan import Plan
from tests.chaos.recount import Verdict

_KILLED = {Kind.SLOT, Kind.ALL_SLOTS}
_PARTS = {Kind.WORKER, Kind.EXECUTOR}
# The first that holds is a fault's group.
GROUPS: Mapping[str, Callable[[Fault], bool]] = {
    "driver anew": lambda fault: fault.kind in ENDING,
    "asked for": lambda fault: fault.kind in PLANNED,
    "two faults": lambda fault: fault.second is not None or fault.kind is Kind.STARTING_SLOT,
    "slot killed": lambda fault: fault.kind in _KILLED,
    "worker or executor killed": lambda fault: fault.kind in _PARTS,
    "lasting, after its end": lambda fault: fault.lasts > 0,
}
# On an idle machine: killed slots in the median, and every fault that leaves the driver alive.
SLOT_P50_S = 5.0
LONGEST_S = 30.0
SHOWN = ("slot killed", "worker or executor killed", "two faults", "lasting, after its end",
         "driver anew", "asked for")  # fmt: skip


def group_of(fault: Fault) -> str:
    """Return the group in which the time of a fault counts."""
    return next(name for name, holds in GROUPS.items() if holds(fault))


def by_group(recoveries: Mapping[Fault, float]) -> dict[str, list[float]]:
    """Return times by group, in seconds; what a fault lasts by itself is not recovery."""
    times: dict[str, list[float]] = {name: [] for name in SHOWN}
    for fault, seconds in recoveries.items():
        times[group_of(fault)].append(max(0.0, seconds - fault.lasts))
    return {name: found for name, found in times.items() if found}


@dataclass
class Outcome:
    """What became of a run; times are in seconds, from a fault to new output that follows it."""

    verdict: Verdict
    rows: int
    recoveries: dict[Fault, float]
    skipped: dict[Kind, str]
    left_over: list[str]
    drivers: int
    faulty: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    zombies: int = 0
    missed: list[Fault] = field(default_factory=list)
    planned: list[Fault] = field(default_factory=list)
    damaged: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        """Tell that nothing is lost, twice, wrong, left over, needless or refused."""
        well = self.verdict.exact and not self.left_over and not self.faulty
        return well and not self.refused

    @property
    def refused(self) -> list[Fault]:
        """What the job was asked for and refused, however often it was asked."""
        return [fault for fault in self.missed if fault.kind in PLANNED]

    def kinds(self) -> Counter[str]:
        """Return how often each kind of fault struck, also as the second of two."""
        struck = [kind for fault in self.recoveries for kind in (fault.kind, fault.second) if kind]
        return Counter(kind.name for kind in struck)

    def summary(self, plan: Plan) -> list[str]:
        """Say it in a few lines."""
        v = self.verdict
        lines = [
            f"{plan}: {len(self.recoveries)} faults, {self.drivers} drivers, {self.rows} rows",
            f"right {v.right}, lost {v.lost}, duplicated {v.duplicated}, wrong {v.wrong}, "
            f"complaints of the transactions {v.complaints}",
            *v.places,
            f"faults: {', '.join(f'{name} {n}' for name, n in sorted(self.kinds().items()))}",
        ]
        if self.widths:
            lines.append(f"rescaled from 2: {', '.join(f'to {width}' for width in self.widths)}")
        if self.zombies:
            lines.append(f"slots that woke beside those of another driver: {self.zombies}")
        if nobody := [fault for fault in self.missed if fault not in self.refused]:
            lines.append(f"missed, because nobody was there: {', '.join(map(str, nobody))}")
        if self.refused:
            lines.append(f"refused, whenever asked: {', '.join(map(str, self.refused))}")
        lines += _damage_table(self.damaged) if self.damaged else []
        for name, times in by_group(self.recoveries).items():
            lines.append(f"recovery, {name}: {_times(times)}")
        lines.append(f"left over: {', '.join(self.left_over) or 'nothing'}")
        lines.append(f"jobs that died or restarted without need: {len(self.faulty)}")
        lines += [f"not done here: {kind.name} ({why})" for kind, why in self.skipped.items()]
        lines += [*v.examples, *self.faulty, *self.notes]
        return [*lines, f"repeat: {plan.command}"]


def never_struck(outcomes: Iterable[Outcome]) -> list[Kind]:
    """Return the kinds of faults that runs were to have, and that struck in none of them."""
    found = list(outcomes)
    planned = {fault.kind for outcome in found for fault in outcome.planned}
    struck = {fault.kind for outcome in found for fault in outcome.recoveries}
    return [kind for kind in Kind if kind in planned - struck]


def judge_limits(outcomes: Iterable[Outcome], patience: float = 1.0) -> tuple[bool, list[str]]:
    """Tell whether recovery kept its limits in all runs together, and say it.

    What a fault lasts by itself does not count. Limits are so many times as long as `patience`.
    """
    found = [item for outcome in outcomes for item in outcome.recoveries.items()]
    times = [(max(0.0, time - fault.lasts), fault) for fault, time in found]
    slots = [time for time, fault in times if group_of(fault) == "slot killed"]
    alive = [(time, fault) for time, fault in times if fault.kind not in ENDING]
    most, longest = SLOT_P50_S * patience, LONGEST_S * patience
    late = [f"BROKEN: {fault} took {time:.1f} s" for time, fault in alive if time > longest]
    slow = bool(slots) and statistics.median(slots) > most
    lines = [
        f"limit of a killed slot, p50 {most:g} s: {'BROKEN: ' if slow else ''}{_times(slots)}",
        f"limit where the driver lives, {longest:g} s: {_times([time for time, _ in alive])}",
    ]
    return not slow and not late, [*lines, *late]


def _damage_table(damaged: Counter[tuple[str, str]]) -> list[str]:
    """Return how often files of each kind were damaged in each way."""
    rows = [[kind, *(damaged[kind, how] for how in HOW)] for kind in FILE_KINDS]
    return _table(["damaged file", *HOW], rows)


def _times(times: Sequence[float]) -> str:
    if not times:
        return "there was none"
    return f"p50 {statistics.median(times):.1f} s, max {max(times):.1f} s of {len(times)}"


def markdown(outcomes: Iterable[tuple[Plan, Outcome]]) -> str:
    """Return tables of runs, of groups and of kinds."""
    pairs = list(outcomes)
    runs = [
        [str(plan), len(o.recoveries), o.rows, o.verdict.right, o.verdict.lost,
         o.verdict.duplicated, o.verdict.wrong + o.verdict.complaints, len(o.faulty),
         len(o.left_over), len(o.missed)]
        for plan, o in pairs
    ]  # fmt: skip
    recoveries = [(fault, time) for _, o in pairs for fault, time in o.recoveries.items()]
    groups: dict[str, list[float]] = {name: [] for name in SHOWN}
    kinds: dict[Kind, list[float]] = {kind: [] for kind in Kind}
    for fault, time in recoveries:
        beyond = max(0.0, time - fault.lasts)
        groups[group_of(fault)].append(beyond)
        kinds[fault.kind].append(beyond)
    head = ["run", "faults", "rows", "right", "lost", "duplicated", "wrong", "dead or restarted",
            "left over", "missed"]  # fmt: skip
    damaged = sum((o.damaged for _, o in pairs), Counter[tuple[str, str]]())
    measured = ["times", "p50, s", "max, s"]
    return "\n".join(
        [
            *_table(head, runs),
            "",
            *_table(["recovery", *measured], [[n, *_row(t)] for n, t in groups.items() if t]),
            "",
            *_table(["kind", *measured], [[k.name, *_row(t)] for k, t in kinds.items() if t]),
            "",
            *_damage_table(damaged),
            "",
        ]
    )


def _row(times: Sequence[float]) -> list[object]:
    return [len(times), f"{statistics.median(times):.1f}", f"{max(times):.1f}"]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines]


def write(path: Path, outcomes: Iterable[tuple[Plan, Outcome]]) -> None:
    """Write the tables to a file."""
    path.write_text(markdown(outcomes), "utf-8")
