"""What every `KeyedBackend` must do with strides of records; part of `KeyedBackendConformance`.

Numbers under integer keys, many at once: the states that a backend may keep in another form than
the rest, and look up ahead. Nothing of that may show.
"""

from __future__ import annotations

from typing import Any

import pytest

from weir.backend.base import VOID, KeyedBackend
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange, key_group, range_of
from weir.state.descriptor import ReducingStateDescriptor, ValueStateDescriptor
from weir.testing.backend_snapshot_conformance import (
    ALL_GROUPS,
    MAX_PARALLELISM,
    source_of,
    write_file,
)

LONG = Types.LONG()
VALUE = ValueStateDescriptor("value", LONG)
DOUBLE = ValueStateDescriptor("double", Types.DOUBLE())
SUM = ReducingStateDescriptor("sum", lambda a, b: a + b, LONG)
LEAST = -(1 << 63)


class StridesConformance:
    """States of numbers behave alike in strides and outside of them."""

    def make_backend(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return a new, empty backend."""
        raise NotImplementedError

    @pytest.fixture
    def numbered(self) -> Any:
        """Give each test a backend with integer keys over all key groups."""
        return self.make_backend(LONG, ALL_GROUPS)

    @staticmethod
    def run_stride(backend: Any, keys: list[int], handle: Any) -> None:
        """Call a function for every key, in one stride."""
        groups = [key_group(key, MAX_PARALLELISM) for key in keys]
        backend.begin_stride(keys, groups)
        for backend.current.key, backend.current.group in zip(keys, groups, strict=True):
            handle()
        backend.end_stride()

    def contents(self, backend: Any, name: Any = VALUE) -> dict[int, Any]:
        """Read a state key by key, outside of strides."""
        state = backend.state(name)
        found = {}
        for key in list(backend.keys(name.get_name())):
            backend.current.key, backend.current.group = key, key_group(key, MAX_PARALLELISM)
            found[key] = state.value() if hasattr(state, "value") else state.get()
        return found

    def test_what_a_stride_writes_is_read_in_it_and_after_it(self, numbered: Any) -> None:
        """Also under keys that come several times, and under new ones."""
        state = numbered.state(VALUE)

        def count() -> None:
            state.update((state.value() or 0) + 1)

        keys = [*range(-50, 50), *range(50), *range(10)]
        self.run_stride(numbered, keys, count)
        self.run_stride(numbered, keys, count)
        numbered.end_epoch()
        self.run_stride(numbered, keys, count)
        assert self.contents(numbered) == {key: 3 * keys.count(key) for key in set(keys)}
        assert numbered.size() == 100

    def test_what_a_stride_clears_is_gone(self, numbered: Any) -> None:
        """Cleared, set again, cleared by None; and keys that had nothing."""
        state = numbered.state(VALUE)
        self.run_stride(numbered, list(range(60)), lambda: state.update(1))

        def change() -> None:
            key = numbered.current.key
            if key % 3 == 0:
                state.clear()
            elif key % 3 == 1:
                state.clear()
                assert state.value() is None
                state.update(key)
            else:
                state.update(None)

        self.run_stride(numbered, list(range(100)), change)
        expected = {key: key for key in range(100) if key % 3 == 1}
        assert self.contents(numbered) == expected
        assert numbered.size() == len(expected)

    def test_a_stride_and_single_keys_see_each_other(self, numbered: Any) -> None:
        """Timers fire between strides, and change the same entries."""
        state, total = numbered.state(VALUE), numbered.state(SUM)
        keys = list(range(40))
        for round_ in range(3):
            self.run_stride(numbered, keys, lambda: total.add(1))
            for key in keys[::2]:
                numbered.current.key, numbered.current.group = key, key_group(key, MAX_PARALLELISM)
                assert total.get() == round_ * 2 + 1 - (round_ if key % 4 else 0)
                if key % 4 == 0:
                    total.add(1)
                state.update(key + round_)
        assert self.contents(numbered) == {key: key + 2 for key in keys[::2]}
        assert self.contents(numbered, SUM) == {key: 6 if key % 4 == 0 else 3 for key in keys}

    def test_floats_keep_their_sign_and_may_be_no_numbers(self, numbered: Any) -> None:
        """0.0 and -0.0 are equal and not the same."""
        state = numbered.state(DOUBLE)
        keys = list(range(40))
        self.run_stride(numbered, keys, lambda: state.update(0.0))
        self.run_stride(numbered, keys, lambda: state.update(-0.0))
        assert {str(value) for value in self.contents(numbered, DOUBLE).values()} == {"-0.0"}
        self.run_stride(numbered, keys, lambda: state.update(float("nan")))
        assert {str(value) for value in self.contents(numbered, DOUBLE).values()} == {"nan"}

    def test_the_least_and_greatest_numbers_are_keys_and_values(self, numbered: Any) -> None:
        """All 64 bits count."""
        state = numbered.state(VALUE)
        ends = [LEAST, LEAST + 1, LEAST + 2, -LEAST - 1, 0, -1]
        keys = [*range(1000, 1040), *ends]
        self.run_stride(numbered, keys, lambda: state.update(numbered.current.key))
        self.run_stride(numbered, keys, lambda: state.update(-1 - state.value()))
        assert self.contents(numbered) == {key: -1 - key for key in keys}
        file = write_file(numbered.snapshot(1))
        restored: Any = self.make_backend(LONG, ALL_GROUPS)
        restored.restore([source_of(file)])
        assert self.contents(restored) == {key: -1 - key for key in keys}

    def test_snapshots_show_the_moment_between_two_strides(self, numbered: Any) -> None:
        """However many strides later they are written, and in whatever order they are released."""
        state = numbered.state(VALUE)
        model: dict[int, int] = {}
        taken = []

        def change() -> None:
            key = numbered.current.key
            if (key + step) % 7 == 0:
                state.clear()
                model.pop(key, None)
            else:
                state.update(key * step)
                model[key] = key * step

        for step in range(12):
            self.run_stride(numbered, list(range(step * 20, step * 20 + 80)), change)
            if step % 3 == 0:
                taken.append((numbered.snapshot(step), dict(model)))
            if step % 4 == 1:
                numbered.end_epoch()
            if step in (5, 8):
                taken.pop(0)[0].release()
        for snapshot, expected in reversed(taken):
            file = write_file(snapshot)
            snapshot.release()
            restored: Any = self.make_backend(LONG, ALL_GROUPS)
            restored.restore([source_of(file)])
            assert self.contents(restored) == expected
        assert self.contents(numbered) == model

    def test_many_entries_move_to_other_subtasks(self, numbered: Any) -> None:
        """Key groups keep what strides put into them."""
        state = numbered.state(VALUE)
        keys = list(range(3000))
        for start in range(0, 3000, 500):
            self.run_stride(numbered, keys[start : start + 500], lambda: state.update(7))
        numbered.end_epoch()
        file = write_file(numbered.snapshot(1))
        found: dict[int, Any] = {}
        for subtask in range(3):
            owned = range_of(subtask, 3, MAX_PARALLELISM)
            restored: Any = self.make_backend(LONG, owned)
            restored.restore([source_of(file, owned)])
            mine = self.contents(restored)
            assert all(key_group(key, MAX_PARALLELISM) in owned for key in mine)
            found.update(mine)
        assert found == dict.fromkeys(keys, 7)

    def test_namespaces_come_after_strides(self, numbered: Any) -> None:
        """The same key with and without a namespace has two values."""
        state = numbered.state(VALUE)
        self.run_stride(numbered, list(range(50)), lambda: state.update(1))
        numbered.current.key, numbered.current.group = 5, key_group(5, MAX_PARALLELISM)
        numbered.current.namespace = "n"
        assert state.value() is None
        state.update(2)
        numbered.current.namespace = VOID
        assert state.value() == 1
        self.run_stride(numbered, list(range(50)), lambda: state.update(state.value() + 2))
        assert self.contents(numbered) == dict.fromkeys(range(50), 3)
        numbered.current.key, numbered.current.group = 5, key_group(5, MAX_PARALLELISM)
        numbered.current.namespace = "n"
        assert state.value() == 2

    def test_a_stride_with_keys_of_another_subtask_is_refused(self) -> None:
        """Nothing is read or written in a key group that is not this subtask's."""
        backend: Any = self.make_backend(LONG, range_of(1, 2, MAX_PARALLELISM))
        state = backend.state(VALUE)
        foreign = [key for key in range(200) if key_group(key, MAX_PARALLELISM) < 64]
        with pytest.raises(UsageError, match="key group"):
            self.run_stride(backend, foreign, lambda: state.update(1))
