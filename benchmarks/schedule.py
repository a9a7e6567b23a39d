"""Which runs belong together, and in which order.

In a full run a part is one workload in one environment: starting Spark or Flink for every run would
take longer than measuring. Floors and Weir are in one part and have a process each: rounds of the
one stand beside rounds of the other in time, and neither runs on code that a JVM compiled for the
other. First every contender of the part is verified, which also warms its JVM; then the rounds
follow, each beginning with another contender.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks import plan

Pair = tuple[plan.Contender, str]


@dataclass(frozen=True)
class Run:
    """One contender in one workload, once."""

    contender: plan.Contender
    workload: str
    verify: bool


def parts(mode: str, pairs: Iterable[Pair], rounds: int | None = None) -> list[list[Run]]:
    """Return the runs of every part, in order; `rounds` replaces the planned number."""
    groups: dict[tuple[str, ...], list[Pair]] = {}
    for contender, workload in pairs:
        # Only a full run has the time to start an engine for every workload.
        shared = (workload,) if mode == "full" else ()
        groups.setdefault((*shared, contender.environment), []).append((contender, workload))
    return [_runs(mode, group, rounds) for group in groups.values()]


def _runs(mode: str, group: list[Pair], rounds: int | None) -> list[Run]:
    runs = [Run(c, w, True) for c, w in group if plan.is_checked(mode, c.name, w)]
    wanted = [plan.rounds_for(mode, c, w, rounds) for c, w in group]
    for number in range(max(wanted)):
        first = number % len(group)
        order = (*range(first, len(group)), *range(first))
        runs += [Run(*group[index], False) for index in order if number < wanted[index]]
    return runs
