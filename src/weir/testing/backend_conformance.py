"""What every `KeyedBackend` must do, as a suite to subclass.

Subclass `KeyedBackendConformance`, return a new empty backend from `make_backend`, and let pytest
collect the class. The suite uses nothing but the protocol. Rules of state kinds are here, those of
snapshots in `weir.testing.backend_snapshot_conformance`, of strides in
`weir.testing.backend_strides_conformance`, of keys in `weir.testing.backend_keys_conformance`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weir.backend.base import NO_KEY, VOID
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange, key_group
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from weir.testing.backend_keys_conformance import KeysConformance
from weir.testing.backend_snapshot_conformance import MAX_PARALLELISM, SnapshotConformance, Sum
from weir.testing.backend_strides_conformance import StridesConformance


def add(a: int, b: int) -> int:
    """Reduce by summing."""
    return a + b


class KeyedBackendConformance(SnapshotConformance, StridesConformance, KeysConformance):
    """The contract of `weir.backend.base.KeyedBackend`."""

    @pytest.fixture
    def backend(self) -> Any:
        """Give each test its own backend over all key groups."""
        return self.make_backend(Types.STRING(), KeyGroupRange(0, MAX_PARALLELISM - 1))

    @staticmethod
    def at(backend: Any, key: Any, namespace: Any = VOID) -> None:
        """Make a key current."""
        backend.current.key = key
        backend.current.group = key_group(key, MAX_PARALLELISM)
        backend.current.namespace = namespace

    # ---- value state

    def test_a_value_belongs_to_its_key(self, backend: Any) -> None:
        """Keys do not see each other's values; empty is None."""
        state = backend.state(ValueStateDescriptor("v", Types.LONG()))
        self.at(backend, "a")
        assert state.value() is None
        state.update(1)
        self.at(backend, "b")
        assert state.value() is None
        state.update(2)
        self.at(backend, "a")
        assert state.value() == 1

    def test_updating_a_value_with_null_clears_it(self, backend: Any) -> None:
        """None is the absence of a value."""
        state = backend.state(ValueStateDescriptor("v", Types.LONG()))
        self.at(backend, "a")
        state.update(17)
        state.update(None)
        assert state.value() is None
        assert backend.size() == 0
        state.clear()
        assert state.value() is None

    @pytest.mark.parametrize(
        ("type_info", "value"),
        [
            (Types.LONG(), "1"),
            (Types.LONG(), 1 << 63),
            (Types.INT(), 1 << 31),
            (Types.BYTE(), 128),
            (Types.LONG(), True),
            (Types.STRING(), 1),
            (Types.STRING(), "half: \ud83d"),
            (Types.CHAR(), "\udc00"),
            (Types.TUPLE([Types.LONG(), Types.STRING()]), (1, "\ud83d")),
            (Types.DOUBLE(), "1.0"),
            (Types.BOOLEAN(), 1),
        ],
    )
    def test_a_value_that_the_type_cannot_hold_is_refused(
        self, backend: Any, type_info: Any, value: Any
    ) -> None:
        """The message names the state and the value; the state keeps what it had."""
        state = backend.state(ValueStateDescriptor("the state", type_info))
        self.at(backend, "a")
        with pytest.raises(UsageError, match="the state") as refused:
            state.update(value)
        assert repr(value) in str(refused.value)
        assert state.value() is None

    def test_an_undeclared_type_holds_anything(self, backend: Any) -> None:
        """No type and the pickled type check nothing."""
        self.at(backend, "a")
        for name, type_info in (("none", None), ("pickled", Types.PICKLED_BYTE_ARRAY())):
            state = backend.state(ValueStateDescriptor(name, type_info))
            for value in (1, "x", {"a": [1, (2, 3)]}, {1, 2}):
                state.update(value)
                assert state.value() == value

    # ---- list state

    def test_list_state_follows_the_rules(self, backend: Any) -> None:
        """Add, add_all, update, and what an empty list is."""
        state = backend.state(ListStateDescriptor("l", Types.LONG()))
        self.at(backend, "abc")
        assert list(state.get()) == []
        state.add(17)
        state.add(11)
        assert list(state.get()) == [17, 11]
        state.update([])
        assert list(state.get()) == []
        assert backend.size() == 0
        state.add_all([])
        assert list(state.get()) == []
        state.update([10, 16])
        state.add_all([])
        state.add_all([3, 4, 5, 6])
        assert list(state) == [10, 16, 3, 4, 5, 6]
        state.update([1, 2])
        self.at(backend, "def")
        assert list(state.get()) == []
        self.at(backend, "abc")
        for value in (3, 2, 1):
            state.add(value)
        assert list(state.get()) == [1, 2, 3, 2, 1]
        state.clear()
        assert backend.size() == 0

    def test_null_is_not_a_list_element(self, backend: Any) -> None:
        """Every way in refuses it, and refuses the whole call."""
        state = backend.state(ListStateDescriptor("l", Types.LONG()))
        self.at(backend, "a")
        state.add(1)
        calls: list[Any] = [
            lambda: state.add(None),
            lambda: state.add_all([2, None]),
            lambda: state.add_all(None),
            lambda: state.update([None]),
            lambda: state.update(None),
        ]
        for call in calls:
            with pytest.raises(UsageError, match="You cannot add null to a ListState"):
                call()
        with pytest.raises(UsageError, match="'l'"):
            state.add_all([2, "x"])
        assert list(state.get()) == [1]

    def test_a_list_that_was_read_is_the_readers_own(self, backend: Any) -> None:
        """Adding while iterating does not show; changing what was passed in does not either."""
        state = backend.state(ListStateDescriptor("l", Types.LONG()))
        self.at(backend, "a")
        given = [1, 2]
        state.update(given)
        given.append(9)
        for element in state.get():
            state.add(element + 10)
        assert list(state.get()) == [1, 2, 11, 12]

    # ---- map state

    def test_map_state_follows_the_rules(self, backend: Any) -> None:
        """Put, get, remove, contains, and the Python spellings of them."""
        state = backend.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
        self.at(backend, "a")
        assert state.is_empty()
        assert list(state.items()) == list(state.keys()) == list(state.values()) == []
        assert state.get("x") is None
        state.put("x", 1)
        state["y"] = 2
        state.put_all({"z": 3})
        assert (state["x"], state["y"], state.get("z")) == (1, 2, 3)
        assert "x" in state
        assert "nothing" not in state
        assert sorted(state) == ["x", "y", "z"]
        assert sorted(state.items()) == [("x", 1), ("y", 2), ("z", 3)]
        assert sorted(state.values()) == [1, 2, 3]
        del state["x"]
        state.remove("never there")
        assert not state.contains("x")
        self.at(backend, "b")
        assert state.is_empty()
        self.at(backend, "a")
        state.clear()
        assert state.is_empty()

    def test_a_map_holds_null_values(self, backend: Any) -> None:
        """A key with None is present."""
        state = backend.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
        self.at(backend, "a")
        state.put("x", None)
        assert state.contains("x")
        assert state.get("x") is None
        assert list(state.items()) == [("x", None)]
        assert not state.is_empty()

    def test_map_keys_and_values_are_checked(self, backend: Any) -> None:
        """put_all puts all or nothing."""
        state = backend.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
        self.at(backend, "a")
        for entries in ({"a": 1, "b": "x"}, {"a": 1, 2: 2}):
            with pytest.raises(UsageError, match="'m'"):
                state.put_all(entries)
        with pytest.raises(UsageError, match="'m'"):
            state.put("a", "x")
        assert state.is_empty()

    def test_removing_the_last_entry_clears_the_map(self, backend: Any) -> None:
        """1024 puts and removes."""
        state = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
        self.at(backend, "a")
        for i in range(1024):
            state.put(i, i * 2)
            assert not state.is_empty()
        for i in range(1024):
            assert not state.is_empty()
            state.remove(i)
        assert state.is_empty()
        assert backend.size() == 0

    def test_entries_may_be_removed_and_changed_while_iterating(self, backend: Any) -> None:
        """4096 entries: every second one is removed, the others are changed."""
        state = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
        self.at(backend, "a")
        state.put_all({i: i * 2 for i in range(4096)})
        seen = 0
        for key, value in state.items():
            assert value == key * 2
            seen += 1
            if key % 2:
                state.remove(key)
            else:
                state.put(key, -key)
        assert seen == 4096
        assert sorted(state.items()) == sorted((i, -i) for i in range(0, 4096, 2))

    # ---- reducing and aggregating state

    @pytest.mark.parametrize(
        "descriptor",
        [
            ReducingStateDescriptor("s", add, Types.LONG()),
            AggregatingStateDescriptor("s", Sum(), Types.LONG()),
        ],
    )
    def test_folding_states_fold(self, backend: Any, descriptor: StateDescriptor) -> None:
        """17 + 11 and 1 + 2 + 3 + 2 + 1; empty is None; adding None clears."""
        state = backend.state(descriptor)
        self.at(backend, "abc")
        assert state.get() is None
        state.add(17)
        state.add(11)
        assert state.get() == 28
        self.at(backend, "def")
        assert state.get() is None
        for value in (1, 2, 3, 2, 1):
            state.add(value)
        assert state.get() == 9
        state.add(None)
        assert state.get() is None
        self.at(backend, "abc")
        state.clear()
        assert backend.size() == 0

    def test_a_reducing_state_refuses_what_its_type_cannot_hold(self, backend: Any) -> None:
        """Both what is added and what the function makes of it are checked."""
        state = backend.state(ReducingStateDescriptor("s", add, Types.INT()))
        self.at(backend, "a")
        with pytest.raises(UsageError, match="'s'"):
            state.add("x")
        state.add((1 << 31) - 1)
        with pytest.raises(UsageError, match="'s'"):
            state.add(1)
        assert state.get() == (1 << 31) - 1

    # ---- text

    def test_text_that_cannot_be_encoded_is_refused_by_every_access(self, backend: Any) -> None:
        """No checkpoint could write half of a surrogate pair, so that no state may hold it."""
        text, bad = Types.STRING(), "\ud83d"
        value = backend.state(ValueStateDescriptor("the value", text))
        elements = backend.state(ListStateDescriptor("the list", text))
        entries = backend.state(MapStateDescriptor("the map", text, text))
        reducing = backend.state(ReducingStateDescriptor("the sum", max, text))
        self.at(backend, "a")
        reducing.add("a")
        accesses: list[tuple[str, Callable[[], None]]] = [
            ("the value", lambda: value.update(bad)),
            ("the list", lambda: elements.add(bad)),
            ("the list", lambda: elements.add_all(["a", bad])),
            ("the list", lambda: elements.update([bad])),
            ("the map", lambda: entries.put("a", bad)),
            ("the map", lambda: entries.put(bad, "a")),
            ("the map", lambda: entries.put_all({"a": "a", bad: "a"})),
            ("the sum", lambda: reducing.add(bad)),
        ]
        for name, access in accesses:
            with pytest.raises(UsageError, match=f"'{name}'.*without halves of surrogate pairs"):
                access()
        assert (value.value(), list(elements.get()), list(entries.items())) == (None, [], [])
        assert reducing.get() == "a"

    def test_text_of_all_writing_systems_is_kept(self, backend: Any) -> None:
        """Whole characters beyond ASCII are text as any other."""
        state = backend.state(ValueStateDescriptor("v", Types.STRING()))
        self.at(backend, "a")
        for text in ("", "a", "\x00", "é", "文字", "😀", "\uffff"):
            state.update(text)
            assert state.value() == text

    # ---- registration and keys

    def test_the_same_declaration_gives_the_same_handle(self, backend: Any) -> None:
        """Registering again is harmless."""
        first = backend.state(ValueStateDescriptor("v", Types.LONG()))
        assert backend.state(ValueStateDescriptor("v", Types.LONG())) is first

    def test_a_name_has_one_kind_and_one_type(self, backend: Any) -> None:
        """Another kind or type under a used name is refused."""
        backend.state(ValueStateDescriptor("v", Types.LONG()))
        backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
        clash = "The state name 'v' is already in use and not a ListState"
        with pytest.raises(UsageError, match=clash):
            backend.state(ListStateDescriptor("v", Types.LONG()))
        with pytest.raises(UsageError, match="already in use with type"):
            backend.state(ValueStateDescriptor("v", Types.STRING()))
        with pytest.raises(UsageError, match="already in use with type"):
            backend.state(MapStateDescriptor("m", Types.STRING(), Types.LONG()))

    def test_state_without_a_current_key_is_refused(self, backend: Any) -> None:
        """Before the first record and between epochs, for reads and for writes."""
        value = backend.state(ValueStateDescriptor("v", Types.LONG()))
        elements = backend.state(ListStateDescriptor("l", Types.LONG()))
        entries = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))
        reduced = backend.state(ReducingStateDescriptor("r", add, Types.LONG()))
        calls: list[Any] = [
            value.value,
            lambda: value.update(1),
            lambda: value.update(None),
            value.clear,
            elements.get,
            lambda: elements.add(1),
            lambda: elements.update([]),
            lambda: entries.get(1),
            lambda: entries.put(1, 1),
            lambda: entries.remove(1),
            entries.items,
            entries.is_empty,
            reduced.get,
            lambda: reduced.add(1),
        ]
        for _ in range(2):
            for call in calls:
                with pytest.raises(UsageError, match="No key set"):
                    call()
            self.at(backend, "a")
            value.update(1)
            backend.current.key = NO_KEY
        assert backend.size() == 1

    def test_a_key_group_of_another_subtask_is_refused(self) -> None:
        """State of a foreign group must never be touched."""
        backend = self.make_backend(Types.STRING(), KeyGroupRange(10, 20))
        state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
        backend.current.key = "a"
        for group in (0, 9):
            backend.current.group = group
            with pytest.raises(UsageError, match="not owned"):
                state.update(1)
        backend.current.group = 21
        with pytest.raises((UsageError, IndexError)):
            state.update(1)

    # ---- namespaces

    @pytest.mark.parametrize(
        "descriptor",
        [
            ListStateDescriptor("s", Types.LONG()),
            ReducingStateDescriptor("s", add, Types.LONG()),
            AggregatingStateDescriptor("s", Sum(), Types.LONG()),
        ],
    )
    def test_namespaces_merge(self, backend: Any, descriptor: StateDescriptor) -> None:
        """33, 55 | 22, 11 | 44 over three namespaces make 165, wherever they are merged to."""
        state = backend.state(descriptor)
        values: dict[str, dict[int, list[int]]] = {
            "all": {1: [33, 55], 2: [22, 11], 3: [44]},
            "spread": {1: [11], 3: [22, 33, 44, 55]},
            "only the target": {1: [11, 22, 33, 44, 55]},
            "not the target": {3: [11, 22, 33, 44, 55]},
        }
        for key, spaces in values.items():
            for namespace, numbers in spaces.items():
                self.at(backend, key, namespace)
                for number in numbers:
                    state.add(number)
        for key in [*values, "nothing"]:
            self.at(backend, key)
            state.merge_namespaces(1, [2, 3])
        for key in values:
            self.at(backend, key, 1)
            result = state.get()
            assert (sum(result) if isinstance(result, list) else result) == 165
            for namespace in (2, 3):
                self.at(backend, key, namespace)
                assert not state.get()
        self.at(backend, "all", 1)
        if isinstance(descriptor, ListStateDescriptor):
            assert list(state.get()) == [33, 55, 22, 11, 44]
        self.at(backend, "nothing", 1)
        assert not state.get()

    def test_a_namespaced_entry_is_not_mistaken_for_a_tuple_key(self) -> None:
        """Key and namespace together never equal a key that is a pair."""
        backend = self.make_backend(None, KeyGroupRange(0, MAX_PARALLELISM - 1))
        state: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
        backend.current.key, backend.current.group, backend.current.namespace = "a", 0, 1
        state.update(1)
        backend.current.namespace = VOID
        for key in (("a", 1), (1, "a"), "a"):
            backend.current.key = key
            assert state.value() is None

    def test_keys_are_listed_by_namespace(self, backend: Any) -> None:
        """1000 + 1000 keys over two namespaces."""
        state = backend.state(ValueStateDescriptor("v", Types.LONG()))
        for i in range(1000):
            self.at(backend, f"first {i}", "one")
            state.update(i)
            self.at(backend, f"second {i}", "two")
            state.update(i)
        self.at(backend, "plain")
        state.update(1)
        assert sorted(backend.keys("v", "one")) == sorted(f"first {i}" for i in range(1000))
        assert sorted(backend.keys("v", "two")) == sorted(f"second {i}" for i in range(1000))
        assert list(backend.keys("v")) == ["plain"]
        found = list(backend.addresses("v"))
        assert len(found) == 2001
        wanted: set[Any] = {("plain", VOID)}
        wanted |= {(f"first {i}", "one") for i in range(1000)}
        wanted |= {(f"second {i}", "two") for i in range(1000)}
        assert {(key, namespace) for _, key, namespace in found} == wanted
        assert all(group == key_group(key, MAX_PARALLELISM) for group, key, _ in found)
        assert backend.size() == 2001
        assert 1000 < backend.approximate_size() < 4000
        assert backend.approximate_bytes() > 2001
