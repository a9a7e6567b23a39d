"""The engine without coverage: seeded mutations of a corpus, for a time or a number of calls.

Inputs that are taken join the corpus, so that mutations build on each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.mutate import Mutator
from tests.fuzz.target import SLOW_S, FindingError, Target

KEPT = 500


@dataclass
class Run:
    """What a run did; with a finding, the input and what happened."""

    executions: int = 0
    taken: int = 0
    input: bytes = b""
    problem: BaseException | None = None


def run(
    target: Target, seed: int, seconds: float, note: Callable[[bytes], None] = lambda data: None
) -> Run:
    """Feed a target until the time is over or there is a finding; `note` hears of every input."""
    done, mutator = Run(), Mutator(f"{target.name} {seed}", target.form)
    corpus = target.corpus()
    call, kept, first = target.function(), list(corpus), list(corpus)
    end = time.monotonic() + seconds
    while first or time.monotonic() < end:
        data = first.pop() if first else mutator.mutate(mutator.pick(kept), corpus)
        note(data)
        begun = time.process_time()
        try:
            taken = call(data)
            if time.process_time() - begun > SLOW_S:
                msg = f"it took more than {SLOW_S} s of the processor"
                raise FindingError(msg)
        except Exception as error:
            done.input, done.problem = data, error
            break
        done.executions += 1
        done.taken += taken
        if taken and len(kept) < KEPT + len(corpus):
            kept.append(data)
    return done
