"""A world in which every step is a numbered place to die: storage, files, protocol.

The same program on the same seed takes the same steps, so a crash is named by its number. Files
of sinks live in memory and outlive every process of the job, as a disk does.
"""

from __future__ import annotations

import enum
import errno
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, TypeVar

from weir.errors import StorageError
from weir.ids import unique_suffix
from weir.storage.base import Storage
from weir.testing.crashing_file_system import CrashingFileSystem
from weir.testing.faulty_storage import FaultyStorage
from weir.testing.harness import JobHarness
from weir.testing.harness_slots import DriverCrash, HarnessSlot, Hooks, SlotCrash, SlotHang

T = TypeVar("T")
_TEARABLE = frozenset({"create", "open_write", "delete_tree"})
_CHANGING = _TEARABLE | {"delete"}
_BEFORE_ATTEMPT, _BEHIND_ATTEMPT = "before BeginAttempt", "behind BeginAttempt"


class Kind(enum.Enum):
    """What goes wrong at a point.

    A slot dies, all of them do, one is not heard any more, or one hangs. The driver dies. The
    storage or a disk refuses the next call, or does what it is told and says that it failed. The
    engine fails the next part of an epoch although all slots live, or cannot prepare an attempt.
    """

    SLOT = "slot"
    ALL_SLOTS = "all-slots"
    DRIVER = "driver"
    ZOMBIE = "zombie"
    REFUSED = "refused"
    HANG = "hang"
    UNKNOWN = "unknown"
    ENGINE = "engine"
    DISK = "disk"


@dataclass(frozen=True)
class Crash:
    """One thing that goes wrong: at which step, and what; `victim` chooses among slots."""

    point: int
    kind: Kind
    victim: int = 0

    def __str__(self) -> str:
        """Show as on the command line of a reproduction."""
        return f"{self.point}:{self.kind.value}:{self.victim}"

    @classmethod
    def parse(cls, text: str) -> Crash:
        """Read what `str` shows."""
        point, kind, victim = text.split(":")
        return cls(int(point), Kind(kind), int(victim))


class World(Hooks):
    """Counts steps and strikes where it was told to."""

    def __init__(self, crashes: Sequence[Crash] = ()) -> None:
        self.name = unique_suffix()
        self.disk = MemoryDisk()
        self.labels: list[str] = []
        self.harness: JobHarness | None = None
        self.struck: list[str] = []
        self.refusing = False
        self.doubtful = False
        self.failing = False
        self.full = False
        self.failing_trials = 0
        self.overtaker: Callable[[], None] | None = None
        self.rot: Callable[[], None] | None = None
        self.repair: Callable[[], None] | None = None
        self._crashes = {crash.point: crash for crash in crashes}
        self._slot: HarnessSlot | None = None
        self._file_systems: dict[int, _SlotFileSystem] = {}
        _WORLDS[self.name] = self

    def close(self) -> None:
        """Forget this world."""
        _WORLDS.pop(self.name, None)

    @contextmanager
    def process(self, slot: HarnessSlot | None) -> Iterator[None]:
        """Note who is running."""
        before, self._slot = self._slot, slot
        try:
            yield
        finally:
            self._slot = before

    def step(self, label: str) -> None:
        """Number a step and strike if this is the place."""
        if label == _BEFORE_ATTEMPT and self.rot is not None:
            self.rot()
        if label == _BEHIND_ATTEMPT and self.repair is not None:
            self.repair()
        if self._slot is not None and self._slot.dead:
            raise SlotCrash
        crash = self._here(label)
        if crash is None:
            return
        if not self._mark(crash):
            self._die(crash)

    def _mark(self, crash: Crash) -> bool:
        """Let something go wrong later, or to others; False when it goes wrong here and now."""
        match crash.kind:
            case Kind.REFUSED:
                self.refusing = True
            case Kind.UNKNOWN:
                self.doubtful = True
            case Kind.ENGINE:
                self.failing = True
            case Kind.DISK:
                self.failing = self.full = True
            case Kind.ZOMBIE:
                self._victim(crash).lost = True
            case Kind.HANG if self._slot is None:
                self._victim(crash).hangs = True
            case _:
                return False
        return True

    def tear(self, label: str) -> bool:
        """Number the middle of a write; True means: tear it, then call `die`."""
        crash = self._here(label)
        if crash is None:
            return False
        if self._mark(crash):
            return False
        if crash.kind is Kind.HANG:
            raise SlotHang
        if self._slot is None and crash.kind is not Kind.DRIVER:
            self._die(crash)
            return False
        self._torn = crash
        return True

    def die(self) -> NoReturn:
        """Die in the middle of a write."""
        self._die(self._torn)
        raise SlotCrash

    def refuse(self, what: str) -> None:
        """Raise if this call is to be refused."""
        if self.refusing:
            self.refusing = False
            msg = f"{what} was refused on purpose"
            raise StorageError(msg)

    def doubt(self, what: str) -> None:
        """Raise if a call that was carried out is to look as if it had failed."""
        if self.doubtful:
            self.doubtful = False
            msg = f"{what} did not answer in time, on purpose"
            raise StorageError(msg)

    def begins(self) -> None:
        """Let an attempt find a full disk."""
        self.step("attempt is prepared")
        if self.full:
            self.full = False
            raise OSError(errno.ENOSPC, "No space left on device, on purpose")
        job = self.harness
        trial = None if job is None else getattr(job.supervisor.job.state, "trial", None)
        if trial is not None and self.failing_trials:
            self.failing_trials -= 1
            raise OSError(errno.EIO, "the new parallelism does not work, on purpose")

    def fails(self) -> None:
        """Let the engine's job fail, and leave the slots alone."""
        if self.failing:
            self.failing = False
            msg = "the engine's job failed, on purpose"
            raise RuntimeError(msg)

    def _here(self, label: str) -> Crash | None:
        who = "driver" if self._slot is None else f"slot {self._slot.subtask}"
        self.labels.append(f"{who}: {label}")
        crash = self._crashes.get(len(self.labels))
        if crash is not None:
            self.struck.append(f"{crash} at {self.labels[-1]!r}")
        return crash

    def _die(self, crash: Crash) -> None:
        if crash.kind is Kind.DRIVER:
            raise DriverCrash
        if crash.kind is Kind.HANG:
            raise SlotHang
        running = self._harness.slots
        if crash.kind is Kind.ALL_SLOTS:
            for slot in running.slots:
                running.kill(slot)
        elif self._slot is None and running.slots:
            running.kill(self._victim(crash))
        if self._slot is not None:
            raise SlotCrash

    def _victim(self, crash: Crash) -> HarnessSlot:
        slots = self._harness.slots.slots
        if self._slot is not None or not slots:
            return self._slot or HarnessSlot(0, -1)
        return slots[crash.victim % len(slots)]

    @property
    def _harness(self) -> JobHarness:
        if self.harness is None:
            msg = "the world has no job yet"
            raise RuntimeError(msg)
        return self.harness

    def storage(self, inner: Storage, slot: HarnessSlot | None) -> Storage:
        """Return the storage as one process sees it."""
        return _WorldStorage(inner, self, slot)

    def paused(self, slot: HarnessSlot) -> None:
        """Let the barrier overtake rows, if that is part of the scenario."""
        if self.overtaker is not None:
            self.overtaker()

    def killed(self, slot: HarnessSlot) -> None:
        """Drop the open files of a slot."""
        found = self._file_systems.get(id(slot))
        if found is not None:
            found.die()

    def file_system(self) -> _SlotFileSystem:
        """Return the file system of the slot that is running."""
        slot = self._slot
        if slot is None:
            msg = "only slots write files"
            raise RuntimeError(msg)
        found = self._file_systems.get(id(slot))
        if found is None:
            found = self._file_systems[id(slot)] = _SlotFileSystem(self, slot)
        return found


_WORLDS: dict[str, World] = {}


class _WorldStorage(FaultyStorage):
    """The storage of one process of a world."""

    def __init__(self, inner: Storage, world: World, slot: HarnessSlot | None) -> None:
        super().__init__(inner)
        self._world = world
        self._slot = slot

    @contextmanager
    def _point(self, operation: str, path: str) -> Iterator[bool]:
        world = self._world
        if self._slot is not None and self._slot.dead:
            raise SlotCrash
        world.step(f"before {operation}")
        world.refuse(f"{operation} of {path!r}")
        torn = operation in _TEARABLE and world.tear(f"amid {operation}")
        world.refuse(f"{operation} of {path!r}")
        yield torn
        if operation in _CHANGING:
            world.step(f"behind {operation}")
            world.doubt(f"{operation} of {path!r}")

    def _die(self, operation: str, path: str) -> Any:
        self._world.die()


class _SlotFileSystem(CrashingFileSystem):
    """The sinks' file system of one slot; dies with it."""

    def __init__(self, world: World, slot: HarnessSlot) -> None:
        super().__init__()
        self._world = world
        self._slot = slot
        self._inner: Any = world.disk

    def point(self, action: Callable[[], T], torn: Callable[[], Any] | None = None) -> T:
        """Run one call, or die at it."""
        if self.dead or self._slot.dead:
            raise SlotCrash
        world = self._world
        world.step("before a file call")
        world.refuse("a file call")
        if torn is not None and world.tear("amid a file write"):
            torn()
            self.die()
            world.die()
        world.refuse("a file call")
        result = action()
        world.step("behind a file call")
        return result


class WorldFileSystem:
    """What a sink holds: pickled as a name, it finds the slot that it runs in."""

    def __init__(self, world: str) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        """Pass every call on to the running slot's file system."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(_WORLDS[self._world].file_system(), name)


class _MemoryFile(io.BytesIO):
    """Keeps its contents after it was closed."""

    def close(self) -> None:
        """Keep everything."""


class MemoryDisk:
    """A `FileSystem` in a dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, _MemoryFile] = {}

    def make_directory(self, path: str) -> None:
        """Directories are names only."""

    def create(self, path: str) -> BinaryIO:
        """Create a file exclusively."""
        if path in self.files:
            raise FileExistsError(path)
        self.files[path] = _MemoryFile()
        return self.files[path]

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return io.BytesIO(self.files[path].getvalue())

    def sync(self, stream: BinaryIO) -> None:
        """Everything is durable at once."""

    def sync_directory(self, path: str) -> None:
        """Everything is durable at once."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file."""
        if source not in self.files:
            raise FileNotFoundError(source)
        self.files[target] = self.files.pop(source)

    def size(self, path: str) -> int | None:
        """Return the size, None if there is no such file."""
        found = self.files.get(path)
        return None if found is None else len(found.getbuffer())

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        self.files.pop(path, None)

    def walk(self, path: str) -> Iterator[str]:
        """Yield all files below."""
        yield from sorted(p for p in self.files if p.startswith(path + "/"))

    def lines(self, folder: str) -> list[str]:
        """Return the lines of all files that readers see below a folder."""
        visible = [p for p in self.walk(folder) if "/." not in p]
        return [x for p in visible for x in self.files[p].getvalue().decode().splitlines()]

    def hidden(self) -> list[str]:
        """Return the files that readers do not see."""
        return sorted(p for p in self.files if "/." in p)
