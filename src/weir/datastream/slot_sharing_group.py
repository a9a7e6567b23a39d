"""`SlotSharingGroup` and `MemorySize`: resource wishes by PyFlink's names.

They have no effect, and a program that uses them is told so once: a slot is a process that runs one
subtask of each operator, and its memory and cores are those of its host.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import total_ordering

from weir.errors import UsageError
from weir.notices import warn_once

log = logging.getLogger("weir.datastream")


@total_ordering
@dataclass(frozen=True, eq=True)
class MemorySize:
    """A number of bytes.

    Example:
        MemorySize.of_mebi_bytes(64)
    """

    bytes_size: int

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Return that many mebibytes."""
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        """Return the size in bytes."""
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """Return the size in whole kibibytes."""
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        """Return the size in whole mebibytes."""
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        """Return the size in whole gibibytes."""
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        """Return the size in whole tebibytes."""
        return self.bytes_size >> 40

    def __lt__(self, other: MemorySize) -> bool:
        """Order by size."""
        return self.bytes_size < other.bytes_size

    def __str__(self) -> str:
        """Show the size with its unit."""
        return f"{self.bytes_size} bytes"


@dataclass(frozen=True)
class SlotSharingGroup:
    """A named group of operators with resource wishes, which have no effect.

    Example:
        stream.map(lambda r: r).slot_sharing_group("heavy")
    """

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict, hash=False)

    def get_name(self) -> str:
        """Return the group's name."""
        return self.name

    def get_cpu_cores(self) -> float | None:
        """Return the CPU cores asked for."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Return the task heap memory asked for."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Return the task off-heap memory asked for."""
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Return the managed memory asked for."""
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Return the external resources asked for, by name."""
        return dict(self.external_resources)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Start to describe a group."""
        return SlotSharingGroup.Builder(name)

    class Builder:
        """Collects what a group asks for."""

        def __init__(self, name: str) -> None:
            """Start with a name and no wishes."""
            if not name:
                msg = "a slot sharing group needs a name, found an empty one"
                raise UsageError(msg)
            self._name = name
            self._cpu_cores: float | None = None
            self._memory: dict[str, MemorySize] = {}
            self._external: dict[str, float] = {}

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Ask for CPU cores."""
            self._cpu_cores = cpu_cores
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Ask for task heap memory."""
            self._memory["task_heap_memory"] = task_heap_memory
            return self

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Ask for task heap memory in mebibytes."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(
            self, task_off_heap_memory: MemorySize
        ) -> SlotSharingGroup.Builder:
            """Ask for task off-heap memory."""
            self._memory["task_off_heap_memory"] = task_off_heap_memory
            return self

        def set_task_off_heap_memory_mb(
            self, task_off_heap_memory_mb: int
        ) -> SlotSharingGroup.Builder:
            """Ask for task off-heap memory in mebibytes."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Ask for managed memory."""
            self._memory["managed_memory"] = managed_memory
            return self

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Ask for managed memory in mebibytes."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Ask for an external resource."""
            self._external[name] = value
            return self

        def build(self) -> SlotSharingGroup:
            """Return the group.

            Raises:
                UsageError: something is asked for, and not CPU cores and task heap memory.
            """
            heap = self._memory.get("task_heap_memory")
            if self._cpu_cores is None and not self._memory and not self._external:
                return SlotSharingGroup(name=self._name)
            if not self._cpu_cores or self._cpu_cores < 0 or not heap or heap.bytes_size <= 0:
                msg = (
                    f"slot sharing group {self._name!r}: The cpu cores and task heap memory are "
                    "required when specifying the resource of a slot sharing group. You need to "
                    "explicitly configure them with positive value; found "
                    f"{self._cpu_cores!r} and {heap!r}"
                )
                raise UsageError(msg)
            return SlotSharingGroup(
                name=self._name,
                cpu_cores=self._cpu_cores,
                external_resources=dict(self._external),
                **self._memory,
            )


def warn_about_slot_sharing(method: str) -> None:
    """Say once that groups have no effect."""
    warn_once(
        log,
        f"{method} has no effect, because every slot runs one subtask of each operator; a slot's "
        "memory and cores are those of its host",
    )
