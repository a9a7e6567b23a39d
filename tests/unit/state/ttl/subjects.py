"""States with a time to live under test: what is written to them and what must be read back."""

from __future__ import annotations

from typing import ClassVar

from weir.backend.base import VOID
from weir.backend.factory import BackendContext, create_backend
from weir.common.typeinfo import Types
from weir.keygroup import KeyGroupRange, key_group
from weir.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from weir.state.ttl import StateTtlConfig, TtlStates
from weir.testing import ManualClock
from weir.testing.backend_snapshot_conformance import source_of, write_file

GROUPS = 16
LONG = Types.LONG()
UPDATES = StateTtlConfig.UpdateType
VISIBILITIES = StateTtlConfig.StateVisibility


class FromThree:
    """Sums, from 3 on, and gives the sum as text."""

    def create_accumulator(self):
        return 3

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return str(accumulator)

    def merge(self, a, b):
        return a + b


class Subject:
    """One kind of state: three updates, and what a read gives after each of them.

    `first` is written to an empty state, `second` to one that is not expired, `third` to an
    expired one. `both` is what is seen when `second` came in time.
    """

    empty = None

    def descriptor(self):
        raise NotImplementedError

    def write(self, state, update):
        raise NotImplementedError

    def read(self, state):
        raise NotImplementedError


class Value(Subject):
    first, second, third = 11, 21, 31
    seen_first, both, seen_third = 11, 21, 31

    def descriptor(self):
        return ValueStateDescriptor("s", LONG)

    def write(self, state, update):
        state.update(update)

    def read(self, state):
        return state.value()


class List(Subject):
    empty: ClassVar = []
    first, second, third = [5, 7, 10], [8, 9, 11], [1, 4]
    seen_first, both, seen_third = first, second, third

    def descriptor(self):
        return ListStateDescriptor("s", LONG)

    def write(self, state, update):
        state.add_all(update)

    def read(self, state):
        return list(state.get())


class ListUpdated(List):
    def write(self, state, update):
        state.update(update)


class AnyList(List):
    """Elements of an undeclared type, pickled."""

    def descriptor(self):
        return ListStateDescriptor("s")


class MapAll(Subject):
    empty: ClassVar = {}
    first: ClassVar = {"a": 3, "b": 5, "null": None, "c": 10}
    second: ClassVar = {"d": 12, "null2": None, "e": 7}
    third: ClassVar = {"f": 15, "null3": None, "g": 4}
    seen_first, both, seen_third = first, second, third

    def descriptor(self):
        return MapStateDescriptor("s", Types.STRING(), LONG)

    def write(self, state, update):
        state.put_all(update)

    def read(self, state):
        return dict(state.items())


class MapOne(Subject):
    first, second, third = 1, 2, 3
    seen_first, both, seen_third = 1, 2, 3

    def descriptor(self):
        return MapStateDescriptor("s", Types.STRING(), LONG)

    def write(self, state, update):
        state.put("k", update)

    def read(self, state):
        return state.get("k")


class MapNull(MapOne):
    """A None value exists, and expires."""

    empty = False
    first = second = third = None
    seen_first = both = seen_third = True

    def read(self, state):
        return state.contains("k")


class Reducing(Subject):
    first, second, third = 5, 7, 6
    seen_first, both, seen_third = 5, 12, 6

    def descriptor(self):
        return ReducingStateDescriptor("s", lambda a, b: a + b, LONG)

    def write(self, state, update):
        state.add(update)

    def read(self, state):
        return state.get()


class Aggregating(Reducing):
    seen_first, both, seen_third = "8", "15", "9"

    def descriptor(self):
        return AggregatingStateDescriptor("s", FromThree(), LONG)


LISTS = [List(), ListUpdated(), AnyList()]
FOLDS = [Reducing(), Aggregating()]
SUBJECTS = [Value(), *LISTS, MapAll(), MapOne(), MapNull(), *FOLDS]


class World:
    """One state of one kind on a backend, a clock, and restores whenever asked."""

    def __init__(self, subject, config, settings):
        self.subject = subject
        self.config = config
        self.settings = settings
        self.clock = ManualClock()
        self._begin(None)

    def _begin(self, data):
        groups = KeyGroupRange(0, GROUPS - 1)
        context = BackendContext(self.settings, clock=self.clock)
        self.backend = create_backend(context, Types.STRING(), groups)
        if data is not None:
            self.backend.restore([source_of(data, groups)])
        self.ttl = TtlStates(self.backend, self.clock, backend_kind=self.settings.kind)
        descriptor = self.subject.descriptor()
        if self.config is not None:
            descriptor.enable_time_to_live(self.config)
            self.state = self.ttl.bind(descriptor)
        else:
            self.state = self.backend.state(descriptor)
        self.at("id")

    def at(self, key, namespace=VOID):
        current = self.backend.current
        current.key, current.group, current.namespace = key, key_group(key, GROUPS), namespace
        return self

    def snapshot(self):
        snapshot = self.backend.snapshot(1)
        data = write_file(snapshot)
        snapshot.release()
        return data

    def restore(self, data):
        key, namespace = self.backend.current.key, self.backend.current.namespace
        self.backend.close()
        self._begin(data)
        self.at(key, namespace)

    def step(self, now_ms):
        """Go to a time, through a snapshot and a restore."""
        self.restore(self.snapshot())
        self.clock.set(now_ms)
        return self

    def write(self, update, now_ms=None):
        if now_ms is not None:
            self.clock.set(now_ms)
        self.subject.write(self.state, update)

    def read(self, now_ms=None):
        if now_ms is not None:
            self.clock.set(now_ms)
        return self.subject.read(self.state)

    def is_empty(self):
        return self.read() == self.subject.empty

    def entries(self):
        return self.backend.size()


def config(update="OnCreateAndWrite", visible="NeverReturnExpired", ttl=100, change=None):
    builder = StateTtlConfig.new_builder(ttl).set_update_type(UPDATES[update])
    builder.set_state_visibility(VISIBILITIES[visible])
    if change is not None:
        change(builder)
    return builder.build()
