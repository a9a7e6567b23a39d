"""How the crash campaign runs a job when nothing goes wrong: all of it follows from a seed."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, replace
from typing import Final

from weir.jobmanager.claims import ClaimMode
from weir.testing.campaign_backends import BACKENDS, SHARES


class Mode(enum.Enum):
    """How barriers and records meet."""

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    AT_LEAST_ONCE = "at-least-once"


class Dice:
    """Numbers that look random and follow from a seed alone."""

    def __init__(self, seed: int) -> None:
        """Start a sequence."""
        self._seed = seed
        self._count = 0

    def below(self, limit: int) -> int:
        """Return the next number from 0 to `limit - 1`."""
        self._count += 1
        # A checksum would do no good: its bits follow those of the seed.
        digest = hashlib.sha256(f"{self._seed}/{self._count}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % limit


class OpKind(enum.Enum):
    """What somebody asks of a running job."""

    SAVEPOINT = "savepoint"
    STOP = "stop"
    RESCALE = "rescale"
    BAD_RESCALE = "bad-rescale"


@dataclass(frozen=True)
class Op:
    """A request behind an epoch; `parallelism` is what the job goes on with."""

    epoch: int
    kind: OpKind
    parallelism: int = 2


@dataclass(frozen=True)
class Scenario:
    """How a job is run when nothing goes wrong.

    With `drain` the job ends by a stop that takes time to its end, when all input was read. With
    `local` slots keep copies of state files, and whenever an attempt begins, all files of the
    newest checkpoint are damaged.
    """

    seed: int
    events: int
    rules: int
    parallelism: int
    partitions: int
    deferred: bool
    tolerable: int
    every: int
    repeated: bool = False
    backend: str = "hashmap"
    claim: ClaimMode = ClaimMode.NO_CLAIM
    inline_bytes: int = 0
    mode: Mode = Mode.ALIGNED
    ops: tuple[Op, ...] = ()
    drain: bool = False
    local: bool = False
    program: str = "totals"

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """Derive everything from a seed.

        Seeds of 0 and below are the fixed scenarios of the full enumeration: one per backend, then
        one per thing that is asked of a driver.
        """
        backends = list(BACKENDS)
        if seed <= 0:
            claim = ClaimMode.CLAIM if seed else ClaimMode.NO_CLAIM
            number = max(0, -seed - len(backends) + 1)
            backend = backends[-seed] if -seed < len(backends) else "hashmap-incremental"
            fixed = cls(seed, 14, 2, 2, partitions=2, deferred=False, tolerable=0, every=2)
            asked, drain = list(ASKED.values())[number - 1] if number else ((), False)
            return replace(fixed, backend=backend, claim=claim, ops=asked, drain=drain)
        dice = Dice(seed)
        found = cls(
            seed,
            events=8 + dice.below(10),
            rules=1 + dice.below(3),
            parallelism=1 + dice.below(3),
            partitions=1 + dice.below(3),
            deferred=bool(dice.below(2)),
            tolerable=dice.below(2),
            every=1 + dice.below(3),
            repeated=bool(dice.below(2)),
            backend=SHARES[dice.below(len(SHARES))],
            claim=list(ClaimMode)[dice.below(3)],
            inline_bytes=(0, 0, 900)[dice.below(3)],
        )
        kinds = list(OpKind)
        ops = [
            Op(1 + dice.below(7), kinds[dice.below(len(kinds))], 1 + dice.below(3))
            for _ in range(dice.below(3))
        ]
        ordered = tuple(sorted(ops, key=lambda op: op.epoch))
        return replace(found, ops=ordered, drain=dice.below(4) == 0, local=dice.below(4) == 0)


ASKED: Final[dict[str, tuple[tuple[Op, ...], bool]]] = {
    "rescale 2-3-1": ((Op(2, OpKind.RESCALE, 3), Op(4, OpKind.RESCALE, 1)), False),
    "rescale that goes back": ((Op(3, OpKind.BAD_RESCALE, 3),), False),
    "stop and resume": ((Op(3, OpKind.STOP, 3),), False),
    "savepoint": ((Op(3, OpKind.SAVEPOINT),), False),
    "drain": ((), True),
}
"""What is asked of a driver in the fixed scenarios behind those of the backends."""
