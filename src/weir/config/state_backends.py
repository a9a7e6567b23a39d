"""Which state backends there are, and what everybody may know of them without importing one.

This is the one list of names. What makes a backend is in its own package, `weir.backend.<name>`,
which only `weir.backend.registry` imports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weir.errors import UsageError


@dataclass(frozen=True)
class StateBackendFacts:
    """One state backend.

    Attributes:
        name: its value of `state.backend.type`, and the name of its package.
        flink_class: the class that chooses it in programs, which REST shows too.
        old_names: further values of the option that mean this backend, and say more beside.
        needs: the package that has to be installed for it, and the extra of Weir that does so.
        compacts: expired entries go away in rounds over all of them, as compaction makes them,
            unless a program says otherwise; else with every access of a state.
    """

    name: str
    flink_class: str
    old_names: tuple[str, ...] = ()
    needs: tuple[str, str] | None = None
    compacts: bool = False


HASHMAP: Final = StateBackendFacts(
    "hashmap", "HashMapStateBackend", old_names=("filesystem", "jobmanager")
)
ROCKSDB: Final = StateBackendFacts(
    "rocksdb",
    "EmbeddedRocksDBStateBackend",
    needs=("rocksdict", "rocksdb"),
    compacts=True,
)
STATE_BACKENDS: Final = (HASHMAP, ROCKSDB)
DEFAULT_STATE_BACKEND: Final = HASHMAP.name


def state_backend(name: str) -> StateBackendFacts:
    """Return what is known of a backend, by its name or an old one.

    Raises:
        UsageError: there is no backend of that name.
    """
    for facts in STATE_BACKENDS:
        if name == facts.name or name in facts.old_names:
            return facts
    there = ", ".join(repr(facts.name) for facts in STATE_BACKENDS)
    msg = f"there is no state backend {name!r}: set state.backend.type to one of {there}"
    raise UsageError(msg)
