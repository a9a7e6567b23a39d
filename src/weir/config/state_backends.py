"""Which state backends there are, and what everybody may know of them without importing one.

This is the one list of names. What makes a backend is in its own package, `weir.backend.<name>`,
or in a package of the user's, and only `weir.backend.registry` imports it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from weir.errors import UsageError


@dataclass(frozen=True)
class StateBackendFacts:
    """One state backend.

    Attributes:
        name: its value of `state.backend.type`, and for those of Weir the name of its package.
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
GROUP: Final = "weir.backends"
"""The group of entry points under which packages offer backends of their own."""

FORM: Final = (
    "one of hashmap, rocksdb, filesystem, jobmanager, a factory class of Flink, an entry point of "
    f"the group {GROUP}, or the path of a backend of your own such as 'package.module:NAME'"
)
_ALIASES: Final = {
    **{n: n for facts in STATE_BACKENDS for n in (facts.name, *facts.old_names)},
    "memory": "jobmanager",
    "fs": "filesystem",
    "embeddedrocksdb": ROCKSDB.name,
    "forst": ROCKSDB.name,
    "gemini": HASHMAP.name,
}
_NOTES: Final = {
    "forst": "ForSt is not here: state is kept in a RocksDB on local disks",
    "gemini": "Gemini is part of Ververica's platform: state is kept by the fastest backend here, "
    "hashmap, and has to fit into memory",
}
_FLINK: Final = "org.apache.flink."
_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(?:[.:])[A-Za-z_]\w*")


def chosen_backend(value: object) -> str:
    """Return what a value of `state.backend.type` chooses.

    That is a backend of Weir or one of its old names, else the value itself: the path of a backend
    of the user's own, or the name of an installed entry point. Nothing is imported.

    Raises:
        ValueError: the value chooses nothing.
    """
    text = str(value).strip()
    known = _ALIASES.get(_simple(text))
    if known is not None:
        return known
    if not text.startswith(_FLINK) and (_PATH.fullmatch(text) or entry_point(text)):
        return text
    raise ValueError(text)


def note_on(value: object) -> str | None:
    """Return what who chose this should know: another backend than the one named is used."""
    return _NOTES.get(_simple(str(value).strip()))


def _simple(text: str) -> str:
    """Return what a name is looked up by: of Flink's classes only what distinguishes them."""
    if text.startswith(_FLINK):
        text = text.rpartition(".")[2].removesuffix("Factory").removesuffix("StateBackend")
    return re.sub("[-_ ]", "", text).lower()


def entry_point(name: str) -> EntryPoint | None:
    """Return the installed entry point under which a package offers a backend of this name."""
    return next(iter(entry_points(group=GROUP, name=name)), None)


def state_backend(name: str) -> StateBackendFacts:
    """Return what is known of a backend, by its name or an old one.

    Raises:
        UsageError: there is no backend of that name.
    """
    for facts in STATE_BACKENDS:
        if name == facts.name or name in facts.old_names:
            return facts
    if _PATH.fullmatch(name) or entry_point(name):
        return StateBackendFacts(name, re.split("[.:]", name)[-1])
    there = ", ".join(repr(facts.name) for facts in STATE_BACKENDS)
    msg = (
        f"there is no state backend {name!r}: set state.backend.type to one of {there}, or to the "
        "path of your own, 'package.module:NAME'"
    )
    raise UsageError(msg)
