"""Which runs belong together, and in which order.

In a full run a part is one workload in one environment (two where an aim compares two workloads):
starting Spark or Flink for every run would take longer than measuring. Floors and Weir are in one
part and have a process each: rounds of the one stand beside rounds of the other in time, and
neither runs on code that a JVM compiled for the other. First every contender of the part is
verified. Then rounds follow that count for nothing: a JVM goes on compiling for tens of millions of
rows, the more of it the more of the work is its own, so that a cold floor is easily two thirds of a
warm one. Then come the rounds that count. Each round begins with another contender.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks import plan

Pair = tuple[plan.Contender, str]


@dataclass(frozen=True)
class Run:
    """One contender in one workload, once; one that only warms up does not count."""

    contender: plan.Contender
    workload: str
    verify: bool
    warms_up: bool = False


def parts(mode: str, pairs: Iterable[Pair], rounds: int | None = None) -> list[list[Run]]:
    """Return the runs of every part, in order; `rounds` replaces the planned number."""
    groups: dict[tuple[str, ...], list[Pair]] = {}
    for contender, workload in pairs:
        # Only a full run has the time to start an engine for every workload.
        shared = (plan.COMPARED_WITH.get(workload, workload),) if mode == "full" else ()
        groups.setdefault((*shared, contender.environment), []).append((contender, workload))
    return [_runs(mode, group, rounds) for group in groups.values()]


def _runs(mode: str, group: list[Pair], rounds: int | None) -> list[Run]:
    runs = [Run(c, w, True) for c, w in group if plan.is_checked(mode, c.name, w)]
    warm = [plan.warm_rounds(mode, c, w) for c, w in group]
    wanted = [plan.rounds_for(mode, c, w, rounds) for c, w in group]
    return [*runs, *_rounds(group, warm, warms_up=True), *_rounds(group, wanted)]


def _rounds(group: list[Pair], wanted: list[int], *, warms_up: bool = False) -> list[Run]:
    runs: list[Run] = []
    for number in range(max(wanted)):
        first = number % len(group)
        order = (*range(first, len(group)), *range(first))
        chosen = [index for index in order if number < wanted[index]]
        runs += [Run(*group[index], False, warms_up) for index in chosen]
    return runs
