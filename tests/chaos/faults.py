"""What goes wrong: faults as values that follow from a seed, and the processes they are done to.

Only processes of the attacked job are touched, found as descendants of its driver or by the name of
its directory.
"""

from __future__ import annotations

import enum
import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.spark.scenario import command, slot_processes

LEASE_S = 5
FROZEN_S = 2.0 * LEASE_S
AWAY_S = 3.0
STORAGE_S = 6.0
CUT_S = 2.0 * LEASE_S
BLINK_S = 0.4 * LEASE_S


class Kind(enum.Enum):
    """What goes wrong."""

    SLOT = "a slot is killed"
    ALL_SLOTS = "all slots are killed"
    STARTING_SLOT = "a slot is killed, and the one that follows it while it starts"
    FROZEN_SLOT = "a slot stops for longer than its lease, then goes on"
    WORKER = "a Python worker of Spark is killed"
    DRIVER = "the driver is killed"
    FROZEN_DRIVER = "the driver stops, for longer or for shorter than the lease, then goes on"
    FROZEN_WORKER = "a Python worker of Spark stops for a while"
    FROZEN_JVM = "the JVM stops for a while"
    JVM = "the JVM is killed"
    FULL = "the disk of the checkpoints is full for a while"
    READ_ONLY = "the disk of the checkpoints is read-only for a while"
    SAVEPOINT = "a savepoint is taken"
    RESCALE = "the job is rescaled"
    STOP = "the job is stopped with a savepoint, and goes on from it"
    DAMAGE = "the driver is killed, and a file of its newest checkpoint is damaged"
    LIVE_DAMAGE = "a file of the newest checkpoint is damaged, and a slot is killed"
    CLOCK = "the clock of driver and slots jumps by minutes to hours, and back"
    SLOW = "the storage of the checkpoints is slow for a while"
    FLAKY = "the storage of the checkpoints breaks connections off for a while"
    EXECUTOR = "an executor is killed"
    FROZEN_EXECUTOR = "an executor stops for a while"
    HOST = "a host loses power; later it starts again, with its Spark worker"
    NETWORK = "a host is cut off, for longer or for shorter than the lease"
    BROKER = "the Kafka broker is killed, and started again"
    DATABASE = "the database is killed, and started again"
    ZOMBIE = "slots stand still, their driver is killed, another goes on; then they wake"


PLANNED = {Kind.SAVEPOINT, Kind.RESCALE, Kind.STOP}
ENDING = {Kind.DRIVER, Kind.JVM, Kind.STOP, Kind.DAMAGE, Kind.LIVE_DAMAGE, Kind.ZOMBIE}
NEED_MOUNT = {Kind.FULL, Kind.READ_ONLY}
NEED_BUCKET = {Kind.SLOW, Kind.FLAKY}
NEED_CLUSTER = {Kind.EXECUTOR, Kind.FROZEN_EXECUTOR, Kind.HOST, Kind.NETWORK}
NEED_ENDS = {Kind.BROKER, Kind.DATABASE, Kind.ZOMBIE}
SERVERS = {Kind.BROKER, Kind.DATABASE}
NOT_ON_CLUSTER = NEED_MOUNT | NEED_BUCKET | {Kind.CLOCK}
DAMAGING = {Kind.DAMAGE, Kind.LIVE_DAMAGE}
FREEZING = {Kind.FROZEN_SLOT, Kind.FROZEN_WORKER, Kind.FROZEN_JVM, Kind.FROZEN_EXECUTOR}
# A restart after one of these would be one without need: nothing else may come with them.
NEEDS_NO_RESTART = {Kind.CLOCK}


@dataclass(frozen=True)
class Fault:
    """One fault; `victim` chooses among slots or files, `second` follows before recovery.

    `turn` counts the faults of a kind, from the seed on: what has two ways alternates by it.
    """

    number: int
    kind: Kind
    victim: int
    second: Kind | None = None
    turn: int = 0

    def __str__(self) -> str:
        also = "" if self.second is None else f", then {self.second.name}"
        return f"{self.number}: {self.kind.name}/{self.victim}{also}"

    @property
    def lasts(self) -> float:
        """How many seconds the fault goes on by itself before anything can be well."""
        match self.kind:
            case _ if self.kind in FREEZING:
                return FROZEN_S
            case Kind.FROZEN_DRIVER:
                return AWAY_S if self.turn % 2 else FROZEN_S
            case Kind.FULL | Kind.READ_ONLY | Kind.CLOCK | Kind.HOST:
                return AWAY_S
            case Kind.BROKER | Kind.DATABASE:
                return AWAY_S
            case Kind.SLOW | Kind.FLAKY:
                return STORAGE_S
            case Kind.NETWORK:
                return CUT_S if self.turn % 2 else BLINK_S
        return 0.0


def choose(seed: int, count: int, kinds: list[Kind], double: float = 0.15) -> list[Fault]:
    """Return the faults of a run: the same for the same arguments; all kinds take turns.

    Without kinds there is none.
    """
    rng = random.Random(f"chaos {seed}")
    # A second fault must leave the job alive: what it does is waited for.
    seconds = [k for k in kinds if k in (Kind.SLOT, Kind.ALL_SLOTS, Kind.WORKER)]
    alone = ENDING | PLANNED | NEEDS_NO_RESTART
    turns: list[Kind] = []
    while kinds and len(turns) < count:
        turns += rng.sample(kinds, len(kinds))
    faults: list[Fault] = []
    for number, kind in enumerate(turns[:count], 1):
        twice = kind not in alone and bool(seconds) and rng.random() < double
        second = rng.choice(seconds) if twice else None
        turn = seed + turns[: number - 1].count(kind)
        faults.append(Fault(number, kind, rng.randrange(1 << 16), second, turn))
    return faults


@dataclass(frozen=True)
class Target:
    """The processes of a running job."""

    driver: int
    logs: Path

    def slots(self) -> list[int]:
        """Return the slots that live, in a stable order."""
        return sorted(slot_processes(str(self.logs)))

    def jvm(self) -> list[int]:
        """Return the JVM of the driver."""
        return [p for p in descendants(self.driver) if "org.apache.spark" in command(p)]

    def workers(self) -> list[int]:
        """Return the Python workers of a driver without a cluster."""
        return forked_workers(descendants(self.driver))

    def kill(self, pids: list[int], how: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to processes that were just found; returns how many got it."""
        return sum(_sent(pid, how) for pid in pids)


def forked_workers(pids: list[int]) -> list[int]:
    """Return which of these processes are Python workers: those that Spark's daemon has forked."""
    found = [p for p in pids if "python" in command(p).split("\0")[0]]
    return sorted(p for p in found if "daemon" in command(p) and not children(p))


def _sent(pid: int, how: signal.Signals) -> bool:
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return False
    return True


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:
        return found
    return found


def descendants(pid: int) -> list[int]:
    """Return everything that a process has started and that still belongs to it."""
    return [p for child in children(pid) for p in (child, *descendants(child))]
