"""Looks at the keyed state of a slot, for whoever asks while the job runs.

It happens between two records, so an answer is never torn; and what is found is encoded at once, in
the format of snapshots, so that nobody outside holds an object of the program. Looking changes
nothing, and shows nothing that is expired. State that was restored is shown before the program
asks for it, as it was stored; where that cannot be told to be right, there is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from itertools import chain, groupby, islice
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from weir.backend.address import split_address
from weir.backend.base import Keep
from weir.backend.groups import kept
from weir.backend.kinds import Shape
from weir.backend.peek import Peekable, SeenState
from weir.codec.portable import portable
from weir.codec.stamped import STAMPED
from weir.errors import UsageError, WeirError
from weir.keys import one_nan_many
from weir.runtime.stateful import StatefulOperator
from weir.runtime.subtask import Subtask
from weir.runtime.window_contents import CONTENTS
from weir.state.ttl.rules import Expiry

_PART_ENTRIES: Final = 1 << 14


class StateLookup(msgspec.Struct, frozen=True):
    """Some keys, encoded by the type of keys, each with its key group; or all of some groups.

    Keys of the same group stand together. With a `limit` as many entries of each whole group are
    wanted, those of its first keys. `types` is the `types_mark` of the types by which entries will
    be read; 0 stands for any.
    """

    operator: str
    state: str
    groups: list[int]
    keys: list[bytes] | None = None
    limit: int | None = None
    types: int = 0


class LookupCall(msgspec.Struct, frozen=True):
    """What is asked of one slot; whatever has more than so many bytes is refused."""

    attempt: int
    lookups: list[StateLookup]
    patience_ms: int
    bytes_max: int


class FoundEntries(msgspec.Struct, frozen=True):
    """The entries of one look-up in the format of snapshots, or why there is no answer.

    What is refused `for_now` may be answered later.
    """

    parts: list[bytes] = []
    refused: str = ""
    for_now: bool = False


class LookupAnswer(msgspec.Struct, frozen=True):
    """What a slot found while it handled an epoch, or after it."""

    epoch: int
    found: list[FoundEntries]


class SlotState(msgspec.Struct, frozen=True):
    """A keyed state of a slot; `ttl_ms` is there when entries expire.

    Of one that was `restored` and not asked for since, the types are those it was stored with, and
    nobody knows its time to live.
    """

    operator: str
    name: str
    queryable_name: str | None
    kind: str
    types: dict[str, Any]
    windowed: bool
    ttl_ms: int | None = None
    event_time: bool = False
    restored: bool = False


class SlotStates(msgspec.Struct, frozen=True):
    """The keyed states of the operators of a slot; `blind` ones cannot be looked at."""

    states: list[SlotState]
    blind: list[str] = []


# Built at import, as those of weir.slot.messages are.
_encode = msgspec.msgpack.Encoder().encode
_decode_call = msgspec.msgpack.Decoder(LookupCall).decode
_decode_answer = msgspec.msgpack.Decoder(LookupAnswer).decode


def types_mark(types: dict[str, Any]) -> int:
    """Return a number by which the types of a state are told from others."""
    return crc32(msgspec.json.encode(types, order="sorted")) or 1


def encode_lookup(call: LookupCall) -> bytes:
    """Return a call as bytes."""
    return _encode(call)


def decode_lookup(data: bytes) -> LookupCall:
    """Return the call that some bytes are.

    Raises:
        WeirError: they are none.
    """
    try:
        return _decode_call(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{len(data)} bytes are no look-up: {error}"
        raise WeirError(msg) from error


def encode_answer(answer: LookupAnswer) -> bytes:
    """Return an answer as bytes."""
    return _encode(answer)


def decode_answer(data: bytes) -> LookupAnswer:
    """Return the answer that some bytes are.

    Raises:
        WeirError: they are none.
    """
    try:
        return _decode_answer(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{len(data)} bytes are no answer to a look-up: {error}"
        raise WeirError(msg) from error


def states_of(subtask: Subtask) -> SlotStates:
    """Return the keyed states of a slot; called between two records."""
    found: list[SlotState] = []
    blind: list[str] = []
    for op in subtask.operators.values():
        if not isinstance(op, StatefulOperator) or op.backend is None:
            continue
        if not isinstance(op.backend, Peekable):
            blind.append(op.node.id)
            continue
        names = subtask.facts.queryable.of(op.node.id)
        seen = op.backend.seen_states()
        windowed = _is_windowed(seen)
        found += [_described(op.node.id, state, names, windowed=windowed) for state in seen]
    return SlotStates(found, blind)


def _is_windowed(seen: Iterable[SeenState]) -> bool:
    return any(state.name == CONTENTS for state in seen)


def _described(
    operator: str, state: SeenState, names: dict[str, str], *, windowed: bool
) -> SlotState:
    ttl_ms, event_time = None, False
    if isinstance(state.cleanup, Expiry):
        ttl_ms, event_time = state.cleanup.rules.ttl_ms, state.cleanup.rules.event_time
    return SlotState(
        operator,
        state.name,
        names.get(state.name),
        state.kind.name,
        types=state.format.describe(),
        windowed=windowed,
        ttl_ms=ttl_ms,
        event_time=event_time,
        restored=state.restored,
    )


class _NotYetError(WeirError):
    """There may be an answer when the program has asked for a state that was restored."""


class _Known(NamedTuple):
    """What look-ups need of a state."""

    state: SeenState
    decode_key: Callable[[bytes], Any]
    spaced: bool
    types: int


class Looking:
    """Answers look-ups; `decoders` of keys stay from one to the next."""

    def __init__(self, subtask: Subtask) -> None:
        # Found out once: to ask whether something is Peekable takes longer than a look.
        self._backends: dict[str, Peekable] = {}
        for op in subtask.operators.values():
            backend: Any = op.backend if isinstance(op, StatefulOperator) else None
            if isinstance(backend, Peekable):
                self._backends[op.node.id] = backend
        self._known: dict[tuple[str, str], _Known] = {}

    def answer(self, call: LookupCall, epoch: int) -> LookupAnswer:
        """Look everything up, between two records: all of it as of the same moment."""
        return LookupAnswer(epoch, [self._found(lookup, call) for lookup in call.lookups])

    def _found(self, lookup: StateLookup, call: LookupCall) -> FoundEntries:
        """Answer one of several look-ups, whose callers know nothing of each other."""
        try:
            return FoundEntries(self._look(lookup, call.bytes_max))
        except _NotYetError as error:
            return FoundEntries(refused=str(error), for_now=True)
        except WeirError as error:
            return FoundEntries(refused=str(error))

    def _look(self, lookup: StateLookup, bytes_max: int) -> list[bytes]:
        backend = self._backends.get(lookup.operator)
        for group in dict.fromkeys(lookup.groups):
            if backend is None or group not in backend.key_groups:
                msg = f"key group {group} of operator {lookup.operator!r} is not in this slot"
                raise UsageError(msg)
        known = None if backend is None else self._state(backend, lookup)
        if backend is None or known is None:
            return []  # nothing of it was restored, and no record has led to this state here yet
        _refuse_unsure(known, lookup)
        state, decode, spaced, _ = known
        found: list[Iterable[tuple[Any, Any]]] = []
        if lookup.keys is None:
            found += [backend.peek_group(state.name, group) for group in lookup.groups]
            if lookup.limit is not None:
                found = [_first(state, entries, lookup.limit) for entries in found]
        else:
            keys = one_nan_many([decode(key) for key in lookup.keys])
            begin = 0
            for group, own in groupby(lookup.groups):
                end = begin + len(list(own))
                found.append(backend.peek(state.name, group, keys[begin:end], spaced=spaced))
                begin = end
        # Encoded together: entries of many groups cost little more than those of one.
        return list(_encoded(state, chain.from_iterable(found), bytes_max))

    def _state(self, backend: Peekable, lookup: StateLookup) -> _Known | None:
        at = (lookup.operator, lookup.state)
        found = self._known.get(at)
        if found is None:
            seen = backend.seen_states()
            state = next((s for s in seen if s.name == lookup.state), None)
            if state is None:
                return None
            # Of an undeclared key plain data alone is loaded, whoever asks.
            codec = portable(state.format.key.type_info).codec
            mark = types_mark(state.format.describe())
            found = _Known(state, codec.decode, _is_windowed(seen), mark)
            if not state.restored:
                self._known[at] = found
        return found


def _refuse_unsure(known: _Known, lookup: StateLookup) -> None:
    """Refuse entries that would be read by other types, or of which some may be expired.

    Raises:
        _NotYetError: they would.
    """
    state = known.state
    if lookup.types not in (0, known.types):
        msg = f"state {state.name!r} has other types in this slot now than elsewhere, or before"
        raise _NotYetError(msg)
    if state.restored and state.format.value.type_info.kind == STAMPED:
        msg = (
            f"state {state.name!r} was restored, and what of it is expired is not known before the "
            "program asks for it with its time to live"
        )
        raise _NotYetError(msg)


def _first(
    state: SeenState, entries: Iterable[tuple[Any, Any]], limit: int
) -> list[tuple[Any, Any]]:
    """Return the entries of the first keys of a group, none that has expired or shows no row."""
    keep: Keep | None = None if state.cleanup is None else state.cleanup.keep()
    shape = state.kind.shape
    shown = (
        (address, stored)
        for address, stored in entries
        if (keep is None or kept(shape, stored, keep) is not None)
        and (shape is Shape.ONE or len(stored))
    )
    return nsmallest(limit, shown, key=lambda entry: split_address(entry[0])[0])


def _encoded(
    state: SeenState, entries: Iterable[tuple[Any, Any]], bytes_max: int
) -> Iterator[bytes]:
    """Encode what is not expired, some entries at a time."""
    keep: Keep | None = None if state.cleanup is None else state.cleanup.keep()
    shape, rest, size = state.kind.shape, iter(entries), 0
    while part := list(islice(rest, _PART_ENTRIES)):
        if keep is not None:
            left = [(address, kept(shape, stored, keep)) for address, stored in part]
            part = [entry for entry in left if entry[1] is not None]
        if not part:
            continue
        data = state.format.encode([a for a, _ in part], [s for _, s in part])
        size += len(data)
        if size > bytes_max:
            msg = (
                f"the entries of state {state.name!r} have more than {bytes_max} bytes: ask for "
                "fewer keys, or raise weir.queryable-state.max-answer-size"
            )
            raise UsageError(msg)
        yield data
