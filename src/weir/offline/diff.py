"""What differs between two checkpoints or savepoints, state by state, entry by entry.

Both sides are read piece by piece: all entries whose keys can be in the same key group of both are
compared together, whatever the parallelism and max parallelism of the two. Values are the same
where the program calls them equal, or where their bytes are the same. Texts are cut to be shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from math import gcd
from typing import Any, Final

from weir.backend.kinds import Shape
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.offline.contents import SnapshotContents
from weir.offline.elements import MODES, ElementTable
from weir.offline.keyed import KeyedTable
from weir.offline.tables import StateTable
from weir.runtime.sinks import COMMITTABLES

EXAMPLES: Final = 5
_SHOWN: Final = 200
Same = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class Change:
    """One entry that differs: `what` is added, removed or changed; texts are Python's."""

    what: str
    entry: str
    before: str | None = None
    after: str | None = None


@dataclass
class StateDiff:
    """What differs in one state; `note` says what can be said instead of entries."""

    operator: str
    state: str
    kind: str
    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0
    note: str | None = None
    examples: list[Change] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Tell whether anything differs."""
        return bool(self.added or self.removed or self.changed or self.note)

    def count(self, change: Change, limit: int) -> None:
        """Take one difference."""
        setattr(self, change.what, getattr(self, change.what) + 1)
        if len(self.examples) < limit:
            self.examples.append(change)


def diff(
    before: SnapshotContents,
    after: SnapshotContents,
    *,
    operator: str | None = None,
    state: str | None = None,
    examples: int = EXAMPLES,
) -> Iterator[StateDiff]:
    """Compare two checkpoints: yields a result for each state of one or both, also for equal ones.

    `operator` and `state` choose some of them. Positions of sources come last.

    Raises:
        UsageError: nothing of that name is on either side.
        CorruptStateError: a file is damaged.
        StorageError: a file cannot be read.
    """
    sides = [_tables(side, operator, state) for side in (before, after)]
    names = sorted(sides[0].keys() | sides[1].keys())
    if not names and (operator is not None or state is not None):
        msg = f"neither side has state {state or 'of any name'!r} of operator {operator!r}"
        raise UsageError(msg)
    for name in names:
        yield _compare(name[:2], sides[0].get(name), sides[1].get(name), examples)
    if operator is None and state is None:
        yield from _sources(before, after)


def _tables(
    contents: SnapshotContents, operator: str | None, state: str | None
) -> dict[tuple[str, str, bool], StateTable]:
    """Return the states of one side; keyed and operator state may have the same name."""
    found: dict[tuple[str, str, bool], StateTable] = {}
    for stored in contents.states():
        record = stored.operator
        chosen = operator is None or operator in (record.uid, record.id, record.name)
        if chosen and state in (None, stored.name):
            of_operator = stored.kind in MODES.values()
            read = contents.operator_state if of_operator else contents.keyed_state
            name = (record.uid or record.id, stored.name, of_operator)
            found[name] = read(record.id, stored.name)
    return found


def _compare(
    name: tuple[str, str], before: StateTable | None, after: StateTable | None, examples: int
) -> StateDiff:
    present = before or after
    result = StateDiff(*name, "" if present is None else present.kind)
    if before is None or after is None:
        result.note = "only before" if after is None else "only after"
    elif before.kind != after.kind:
        result.note = f"{before.kind} before, {after.kind} after"
    if result.note is None and name[1] == COMMITTABLES:
        result.note = "transactions of a sink, which every checkpoint has of its own"
        return result
    same = _sameness(before, after)
    try:
        for entry, old, new in _pairs(before, after):
            _count(result, entry, (old, new), same, limit=examples)
    except UsageError as error:
        result.note = str(error)
    return result


_ABSENT: Final = object()


def _count(
    result: StateDiff, entry: str, sides: tuple[Any, Any], same: Same, *, limit: int
) -> None:
    old, new = sides
    if old is _ABSENT:
        result.count(Change("added", entry, after=_text(new)), limit)
    elif new is _ABSENT:
        result.count(Change("removed", entry, before=_text(old)), limit)
    elif same(old, new):
        result.same += 1
    else:
        result.count(Change("changed", entry, before=_text(old), after=_text(new)), limit)


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _sameness(before: StateTable | None, after: StateTable | None) -> Same:
    """Return what tells whether an entry holds the same on both sides."""
    codecs = _value_codec(before), _value_codec(after)
    if before is None or after is None or before.kind != after.kind or None in codecs:
        return _equal
    old_codec, new_codec = codecs
    if old_codec.type_info != new_codec.type_info:
        return _equal

    def one(old: Any, new: Any) -> bool:
        return _equal(old, new) or bool(old_codec.encode(old) == new_codec.encode(new))

    def many(old: Any, new: Any) -> bool:
        return len(old) == len(new) and all(map(one, old, new))

    def by_key(old: Any, new: Any) -> bool:
        return bool(old.keys() == new.keys()) and all(one(old[key], new[key]) for key in old)

    shape = before.layout.format.shape if isinstance(before, KeyedTable) else Shape.ONE
    return {Shape.ONE: one, Shape.LIST: many, Shape.MAP: by_key}[shape]


def _value_codec(table: StateTable | None) -> Any:
    """Return what makes the stored bytes of a value; None for what only has to be equal."""
    if isinstance(table, KeyedTable):
        return None if table.layout.is_timers else table.layout.format.value
    if isinstance(table, ElementTable) and table.map_key is not None:
        return table.value.codec
    return None


def _equal(old: Any, new: Any) -> bool:
    """Tell whether the program calls two values equal.

    Raises:
        UsageError: the comparison of their class fails.
    """
    try:
        return bool(old == new)
    except (ValueError, ArithmeticError):
        return False  # arrays, and decimals that signal, have no answer: their bytes decide
    except Exception as error:
        msg = f"a value of {type(old).__name__} cannot be compared: its == raised {error!r}"
        raise UsageError(msg) from error


def _pairs(before: StateTable | None, after: StateTable | None) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before or after, KeyedTable):
        old = before if isinstance(before, KeyedTable) else None
        new = after if isinstance(after, KeyedTable) else None
        yield from _keyed(old, new)
    else:
        yield from _of_operator(before, after)


def _keyed(before: KeyedTable | None, after: KeyedTable | None) -> Iterator[tuple[str, Any, Any]]:
    for old, new in _together(before, after):
        for address in [*old, *(a for a in new if a not in old)]:
            key, namespace = map(_text, address)
            text = key if address[1] is None else f"{key} in {namespace}"
            yield text, old.get(address, _ABSENT), new.get(address, _ABSENT)


def _together(
    before: KeyedTable | None, after: KeyedTable | None
) -> Iterator[tuple[dict[Any, Any], dict[Any, Any]]]:
    """Yield entries that may have the same keys, by key and namespace, from both sides."""
    widths = {len(table.key_groups) for table in (before, after) if table is not None}
    if len(widths) == 1:
        old, new = _by_group(before), _by_group(after)
        left, right = next(old, None), next(new, None)
        while left is not None or right is not None:
            group = min(side[0] for side in (left, right) if side is not None)
            entries: list[dict[Any, Any]] = [{}, {}]
            if left is not None and left[0] == group:
                entries[0], left = left[1], next(old, None)
            if right is not None and right[0] == group:
                entries[1], right = right[1], next(new, None)
            yield entries[0], entries[1]
        return
    step = gcd(*widths)
    for residue in range(step):
        yield _with_residue(before, residue, step), _with_residue(after, residue, step)


def _by_group(
    table: KeyedTable | None, key_groups: KeyGroupRange | None = None
) -> Iterator[tuple[int, dict[Any, Any]]]:
    """Yield key groups with their entries; a key with several timers has them as a list."""
    if table is None:
        return
    for group, found in groupby(table.entries(key_groups), lambda entry: entry.key_group):
        entries: dict[Any, Any] = {}
        for entry in found:
            address = (entry.key, entry.namespace)
            if table.layout.is_timers:
                entries[address] = sorted([*entries.get(address, []), entry.value])
            else:
                entries[address] = entry.value
        yield group, entries


def _with_residue(table: KeyedTable | None, residue: int, step: int) -> dict[Any, Any]:
    """Return the entries of the key groups that leave a residue."""
    found: dict[Any, Any] = {}
    if table is not None:
        for group in range(residue, len(table.key_groups), step):
            for _, entries in _by_group(table, KeyGroupRange(group, group)):
                found.update(entries)
    return found


def _of_operator(
    before: StateTable | None, after: StateTable | None
) -> Iterator[tuple[str, Any, Any]]:
    """Yield elements of operator state: of a map by key, of a list by value, counted.

    Two are the same one if their bytes are, or else if they can be looked up and are equal.
    """
    old, new = _elements(before), _elements(after)
    alike = _identity_type(before) == _identity_type(after)
    both = {data for data in old if alike and data in new}
    for data in old:
        if data in both:
            yield _text(old[data][0]), old[data][1], new[data][1]
    rest: dict[Any, tuple[list[Any], list[Any]]] = {}
    for side, elements in enumerate((old, new)):
        for data, element in elements.items():
            if data not in both:
                rest.setdefault(_looked_up(element[0], data), ([], []))[side].append(element)
    for olds, news in rest.values():
        for one, other in zip_longest(olds, news):
            name = (one or other)[0]
            yield _text(name), one[1] if one else _ABSENT, other[1] if other else _ABSENT


def _elements(table: StateTable | None) -> dict[bytes, tuple[Any, Any]]:
    """Return the elements of an operator state, by the bytes of map key or list element.

    They are (key, value) of a map, (element, how many there are) of a list.
    """
    if not isinstance(table, ElementTable):
        return {}
    if table.map_key is not None:
        of_key = table.map_key
        return {
            key: (table.decoded(of_key, key), table.decoded(table.value, value))
            for key, value in table.stored()
        }
    counts = Counter(data for _, data in table.stored())
    return {data: (table.decoded(table.value, data), count) for data, count in counts.items()}


def _identity_type(table: StateTable | None) -> Any:
    """Return the type of what tells the elements of an operator state apart."""
    if not isinstance(table, ElementTable):
        return None
    return (table.value if table.map_key is None else table.map_key).type_info


def _looked_up(value: Any, data: bytes) -> Any:
    """Return what an element is looked up by: the value, or its bytes where it has no hash."""
    try:
        return frozenset((value,))
    except TypeError:
        return data


def _sources(before: SnapshotContents, after: SnapshotContents) -> Iterator[StateDiff]:
    old, new = (
        {uid: position for uid, position, *_ in side.sources().rows} for side in (before, after)
    )
    for uid in sorted(old.keys() | new.keys()):
        result = StateDiff(uid, "position", "source")
        positions = old.get(uid, _ABSENT), new.get(uid, _ABSENT)
        _count(result, uid, positions, _equal, limit=EXAMPLES)
        yield result
