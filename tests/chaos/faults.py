"""What goes wrong: faults as values that follow from a seed, and how each is done to a job.

Only processes of the attacked job are touched, found as descendants of its driver or by the name of
its directory.
"""

from __future__ import annotations

import enum
import os
import random
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.spark.scenario import command, slot_processes

TMPFS_BYTES = 256 << 20


class Kind(enum.Enum):
    """What goes wrong."""

    SLOT = "a slot is killed"
    ALL_SLOTS = "all slots are killed"
    STARTING_SLOT = "a slot is killed, and the one that follows it while it starts"
    FROZEN_SLOT = "a slot stops for longer than its lease, then goes on"
    WORKER = "a Python worker of Spark is killed"
    DRIVER = "the driver is killed"
    FROZEN_DRIVER = "the driver stops for a while"
    JVM = "the JVM is killed"
    FULL = "the disk of the checkpoints is full for a while"
    READ_ONLY = "the disk of the checkpoints is read-only for a while"
    SAVEPOINT = "a savepoint is taken"
    RESCALE = "the job is rescaled"
    STOP = "the job is stopped with a savepoint, and goes on from it"
    DAMAGE = "the driver is killed, and a file of its newest checkpoint is damaged"


PLANNED = {Kind.SAVEPOINT, Kind.RESCALE, Kind.STOP}
ENDING = {Kind.DRIVER, Kind.JVM, Kind.STOP, Kind.DAMAGE}
NEED_MOUNT = {Kind.FULL, Kind.READ_ONLY}


@dataclass(frozen=True)
class Fault:
    """One fault; `victim` chooses among slots or files, `second` follows before recovery."""

    number: int
    kind: Kind
    victim: int
    second: Kind | None = None

    def __str__(self) -> str:
        also = "" if self.second is None else f", then {self.second.name}"
        return f"{self.number}: {self.kind.name}/{self.victim}{also}"


def choose(seed: int, count: int, kinds: list[Kind], double: float = 0.15) -> list[Fault]:
    """Return the faults of a run: the same for the same arguments; all kinds take turns."""
    rng = random.Random(f"chaos {seed}")
    # A second fault must leave the job alive: what it does is waited for.
    seconds = [k for k in kinds if k in (Kind.SLOT, Kind.ALL_SLOTS, Kind.WORKER)]
    turns: list[Kind] = []
    while len(turns) < count:
        turns += rng.sample(kinds, len(kinds))
    faults = []
    for number, kind in enumerate(turns[:count], 1):
        twice = kind not in ENDING | PLANNED and bool(seconds) and rng.random() < double
        second = rng.choice(seconds) if twice else None
        faults.append(Fault(number, kind, rng.randrange(1 << 16), second))
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
        """Return the Python workers: those that Spark's daemon has forked."""
        found = [p for p in descendants(self.driver) if "python" in command(p).split("\0")[0]]
        return sorted(p for p in found if "daemon" in command(p) and not children(p))

    def kill(self, pids: list[int], how: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to processes that were just found; returns how many got it."""
        return sum(_sent(pid, how) for pid in pids)


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


class Mount:
    """A small file system of its own for checkpoints, if this user may make one."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.made = _quiet("mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", path)
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no room."""
        with self._filler.open("wb") as out:
            try:
                while True:
                    out.write(b"x" * (1 << 20))
                    out.flush()
            except OSError:
                return

    def empty(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)

    def read_only(self, *, on: bool) -> None:
        """Refuse all writing, or allow it again."""
        mode = "ro" if on else "rw"
        while not _quiet("mount", "-o", f"remount,{mode}", self._path) and not on:
            continue

    def close(self) -> None:
        """Take it away."""
        if self.made:
            _quiet("umount", "-l", self._path)


def _quiet(*words: object) -> bool:
    done = subprocess.run(list(map(str, words)), capture_output=True, check=False)
    return done.returncode == 0


def damage(checkpoint: Path, victim: int) -> tuple[Path, bytes]:
    """Flip a bit of a checkpoint's file, cut it, or take it away; returns what it was."""
    rng = random.Random(f"damage {victim}")
    files = sorted(p for p in checkpoint.rglob("*") if p.is_file())
    path = rng.choice(files)
    whole = path.read_bytes()
    match rng.choice(("flip", "cut", "gone")):
        case "flip":
            place = rng.randrange(len(whole))
            changed = bytes([whole[place] ^ (1 << rng.randrange(8))])
            path.write_bytes(whole[:place] + changed + whole[place + 1 :])
        case "cut":
            path.write_bytes(whole[: rng.randrange(len(whole))])
        case _:
            path.unlink()
    return path, whole
