"""What a program of the crash campaign is: how it is built, and what it must have left behind.

The checker of a program knows its input and what readers see of its sinks, nothing of the engine.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weir.connector.decoder import Partition
from weir.graph.transformation import StreamGraph
from weir.testing.campaign_scenario import Scenario

TEXT_FOLDER: Final = "/sinks/text"
TRANSACTIONS_FOLDER: Final = "/sinks/transactions"


@dataclass(frozen=True)
class Seen:
    """The lines of both sinks, and the collected records as text.

    With `partly` a driver died with records that it had collected, so that some may be missing.
    """

    text: list[str]
    transactions: list[str]
    collected: list[str]
    partly: bool


@dataclass(frozen=True)
class Program:
    """A program: its graph in a world, what is wrong with what it wrote.

    `lost` is the check where records may come twice. `ends_empty` are the uids of operators that
    have no state and no timers when time has come to its end. `partition_of` tells partitions of
    the sources apart.
    """

    build: Callable[[str, Scenario], StreamGraph]
    problems: Callable[[Scenario, Seen], list[str]]
    lost: Callable[[Scenario, Seen], list[str]]
    ends_empty: tuple[str, ...] = ()
    partition_of: Callable[[Any], Partition] | None = None


def difference(where: str, wanted: Iterable[str], found: Iterable[str]) -> list[str]:
    """Return what is missing, and what is there too often or never should be."""
    wanted, found = Counter(wanted), Counter(found)
    problems = [f"{where}: lost {line} x{n}" for line, n in (wanted - found).items()]
    surplus = found - wanted
    return problems + [f"{where}: duplicated or wrong {line} x{n}" for line, n in surplus.items()]


def exactly(text: Sequence[Any], transactions: Sequence[Any], seen: Seen) -> list[str]:
    """Compare both sinks with the right records; the second one's are collected, too."""
    second = [repr(record) for record in transactions]
    problems = difference("text sink", map(str, text), seen.text)
    problems += difference("two-phase sink", second, seen.transactions)
    collected = difference("collect", second, seen.collected)
    if seen.partly:
        # What a driver had released when it died is gone with it; nothing may come twice.
        collected = [p for p in collected if "lost" not in p]
    return problems + collected


def records(lines: Iterable[str]) -> list[Any]:
    """Return the records that lines show."""
    return [ast.literal_eval(line) for line in lines]
