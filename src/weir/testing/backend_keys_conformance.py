"""What every `KeyedBackend` must do with keys that are equal; part of `KeyedBackendConformance`.

State is found by equality, as in a dict, which is the model here: whatever the classes of two equal
keys are, they have one entry, before and after a restore. NaNs come as `weir.keys.NAN`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from weir.backend.base import KeyedBackend
from weir.backend.timers import EVENT_TIMERS
from weir.common.typeinfo import Types
from weir.keygroup import KeyGroupRange, key_group
from weir.keys import NAN, one_nan
from weir.state.descriptor import MapStateDescriptor, ValueStateDescriptor
from weir.testing.backend_snapshot_conformance import (
    ALL_GROUPS,
    MAX_PARALLELISM,
    source_of,
    write_file,
)
from weir.testing.equal_keys import Name, Pair, equal_keys, equal_map_keys

VALUE = ValueStateDescriptor("value", Types.LONG())
MAP = MapStateDescriptor("map")
_FEW = settings(max_examples=12, deadline=None)


def at(backend: Any, key: Any) -> None:
    """Make a key current, as an exchange gives it."""
    backend.current.key = one_nan(key)
    backend.current.group = key_group(key, MAX_PARALLELISM)


class KeysConformance:
    """Keys that are equal are one key."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return a new, empty backend."""
        raise NotImplementedError

    def _again(self, backend: Any, key_type: Any = None) -> Any:
        """Return another backend with the same contents."""
        snapshot = backend.snapshot(1)
        made = self.make_backend(key_type, ALL_GROUPS)
        made.restore([source_of(write_file(snapshot))])
        snapshot.release()
        return made

    def test_equal_keys_have_one_entry(self) -> None:
        """Of any classes, in the same epoch, in a later one and after a restore."""

        @_FEW
        @given(st.lists(equal_keys(), min_size=1, max_size=12))
        def check(pairs: list[tuple[Any, Any]]) -> None:
            backend: Any = self.make_backend(None, ALL_GROUPS)
            model: dict[Any, int] = {}
            for number, (one, other) in enumerate(pairs):
                assert key_group(one, MAX_PARALLELISM) == key_group(other, MAX_PARALLELISM)
                model[one_nan(one)] = number
                at(backend, one)
                backend.state(VALUE).update(number)
            for again in (backend, self._again(backend)):
                again.end_epoch()
                for one, other in pairs:
                    for key in (one, other):
                        at(again, key)
                        assert again.state(VALUE).value() == model[one_nan(one)]
                assert again.size() == len(model)

        check()

    def test_equal_map_keys_have_one_entry(self) -> None:
        """A map finds, replaces and removes what equals the given key."""

        @_FEW
        @given(st.lists(equal_map_keys(), min_size=1, max_size=12))
        def check(pairs: list[tuple[Any, Any]]) -> None:
            backend: Any = self.make_backend(Types.STRING(), ALL_GROUPS)
            at(backend, "a")
            state = backend.state(MAP)
            model: dict[Any, int] = {}
            for number, (one, other) in enumerate(pairs):
                state.put(one, number)
                state.put(other, number)
                model[one_nan(one)] = number
            backend.end_epoch()
            backend = self._again(backend, Types.STRING())
            at(backend, "a")
            state = backend.state(MAP)
            for one, other in pairs:
                assert state.get(other) == model[one_nan(one)]
                assert state.contains(other)
            assert dict(state.items()) == model
            for _, other in pairs:
                state.remove(other)
            assert state.is_empty()

        check()

    def test_equal_keys_have_one_timer(self) -> None:
        """A timer is registered once, and deleted under any key that equals its own."""

        @_FEW
        @given(st.lists(equal_keys(), min_size=1, max_size=6))
        def check(pairs: list[tuple[Any, Any]]) -> None:
            backend: Any = self.make_backend(None, ALL_GROUPS)
            timers = backend.timers(EVENT_TIMERS)
            keys = {one_nan(one): other for one, other in pairs}
            for one, other in pairs:
                for key in (one, other):
                    timers.register(1, one_nan(key), key_group(key, MAX_PARALLELISM))
            assert len(timers) == len(keys)
            timers = self._again(backend).timers(EVENT_TIMERS)
            for other in keys.values():
                assert timers.delete(1, one_nan(other), key_group(other, MAX_PARALLELISM))
            assert not len(timers)

        check()

    def test_a_declared_nan_is_one_key(self) -> None:
        """In maps, lists of changes and restored entries of floating-point keys."""
        declared = MapStateDescriptor("map", Types.DOUBLE(), Types.LONG())
        for key_type in (Types.DOUBLE(), Types.FLOAT(), Types.BIG_DEC()):
            backend: Any = self.make_backend(key_type, ALL_GROUPS)
            at(backend, NAN)
            backend.state(VALUE).update(1)
            for number in range(3):
                backend.state(declared).put(float("nan"), number)
            backend = self._again(backend, key_type)
            at(backend, NAN)
            assert backend.state(VALUE).value() == 1
            state = backend.state(declared)
            assert state.get(float("nan")) == 2
            assert len(state.keys()) == 1
            state.remove(float("nan"))
            assert state.is_empty()
            assert backend.size() == 1

    def test_zero_has_no_sign(self) -> None:
        """Neither alone nor inside of a tuple."""
        pair = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
        for key_type, one, other in ((Types.DOUBLE(), 0.0, -0.0), (pair, (1, -0.0), (1, 0.0))):
            backend: Any = self.make_backend(key_type, ALL_GROUPS)
            at(backend, one)
            backend.state(VALUE).update(1)
            backend = self._again(backend, key_type)
            at(backend, other)
            assert backend.state(VALUE).value() == 1

    def test_a_map_shows_keys_as_they_were_put(self) -> None:
        """The first of equal ones, of the class it has, also after a restore."""
        backend: Any = self.make_backend(Types.STRING(), ALL_GROUPS)
        at(backend, "a")
        keys = [Pair(1, 2), Name.A, 1.0, (True, Name.EMPTY)]
        backend.state(MAP).put_all(dict.fromkeys(keys, 1))
        backend.end_epoch()
        backend = self._again(backend, Types.STRING())
        at(backend, "a")
        assert sorted(map(repr, backend.state(MAP).keys())) == sorted(map(repr, keys))

    def test_a_lookup_knows_the_declared_type(self) -> None:
        """What equals a key of the type is found; what it cannot hold is in no map."""
        backend: Any = self.make_backend(Types.STRING(), ALL_GROUPS)
        at(backend, "a")
        state = backend.state(MapStateDescriptor("longs", Types.LONG(), Types.LONG()))
        state.put(1, 5)
        for equal in (1.0, True):
            assert state.get(equal) == 5
        for other in (1.5, "1", (1,), 1 << 70):
            assert state.get(other) is None
            assert not state.contains(other)
            state.remove(other)
        assert state.items() == [(1, 5)]
