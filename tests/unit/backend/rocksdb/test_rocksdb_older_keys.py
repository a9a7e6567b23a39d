"""Databases whose keys have the bytes of an older release are restored with those of this one."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.databases import Databases, scratch_directory

from weir.backend import key_bytes
from weir.backend.base import NATIVE_PREFIX, RestoreSource, StateLayer
from weir.backend.timers import EVENT_TIMERS
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError
from weir.keygroup import key_group
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.testing.checkpoint_world import CheckpointWorld

NATIVE = NATIVE_PREFIX + "rocksdb"
VALUE = ValueStateDescriptor("value", Types.LONG())
LIST = ListStateDescriptor("list", Types.LONG())
MAP = MapStateDescriptor("map")
ENCODE = key_bytes._encode_any


class Pair(NamedTuple):
    x: int
    y: int


@pytest.fixture
def databases() -> Iterator[Databases]:
    with scratch_directory() as directory:
        made = Databases(directory)
        yield made
        made.close()


def at(backend: Any, key: Any) -> None:
    backend.current.key, backend.current.group = key, key_group(key, 128)


def older(source: RestoreSource) -> RestoreSource:
    """Return a source that does not say which bytes its keys have."""
    entry = source.layers[-1].states[NATIVE].items()
    return described(source, {name: part for name, part in entry if name != "keys"})


def described(source: RestoreSource, entry: Any) -> RestoreSource:
    """Return a source with another description of its newest database."""
    *layers, last = source.layers
    states = {**last.states, NATIVE: entry}
    return RestoreSource(
        (*layers, StateLayer(last.reader, states)),
        source.key_groups,
        source.stored,
        source.files,
        source.reusable,
    )


def pickled_unless_plain(value: Any) -> bytes:
    """Encode a key as older releases did: by its class."""
    if value.__class__ in (int, str):
        return ENCODE(value)
    return b"p" + bytes(key_bytes._pickle(value))


def written(databases: Databases, monkeypatch: Any, keys: list[Any], key_type: Any = None) -> Any:
    """Return a checkpoint in which keys have older bytes, and its world."""
    world = CheckpointWorld()
    with monkeypatch.context() as patched:
        patched.setattr(key_bytes, "_encode_any", pickled_unless_plain)
        backend = databases.backend(key_type=key_type)
        for number, key in enumerate(keys):
            at(backend, key)
            backend.state(VALUE).update(number)
            backend.state(LIST).add(number)
            backend.state(MAP).put(key, number)
            backend.timers(EVENT_TIMERS).register(number, key, backend.current.group)
        checkpoint = world.run(backend, 1)
    assert world.source(checkpoint).layers[-1].states[NATIVE]["keys"] == key_bytes.KEY_FORMAT
    return older(world.source(checkpoint, reusable=True))


def test_state_is_found_under_its_new_bytes(databases: Databases, monkeypatch: Any) -> None:
    keys = [np.int64(7), Pair(1, 2), decimal.Decimal("2.50"), (3, 4), "text", 9]
    source = written(databases, monkeypatch, keys)
    backend = databases.backend(key_type=None)
    backend.restore([source])
    for number, key in enumerate([7, (1, 2), 2.5, Pair(3, 4), "text", np.int64(9)]):
        at(backend, key)
        assert backend.state(VALUE).value() == number
        assert list(backend.state(LIST).get()) == [number]
        assert backend.state(MAP).get(key) == number
        assert backend.timers(EVENT_TIMERS).delete(number, key, backend.current.group)
    assert not len(backend.timers(EVENT_TIMERS))


def test_entries_of_equal_keys_become_one(databases: Databases, monkeypatch: Any) -> None:
    source = written(databases, monkeypatch, [Pair(1, 2), (1, 2), Pair(1, 2)])
    backend = databases.backend(key_type=None)
    backend.restore([source])
    at(backend, (1, 2))
    assert backend.state(VALUE).value() in (1, 2)
    assert sorted(backend.state(LIST).get()) == [0, 1, 2]
    assert len(list(backend.state(MAP).items())) == 1
    assert backend.size() == 3


def test_databases_of_keys_that_did_not_change_are_taken_as_they_are(
    databases: Databases, monkeypatch: Any
) -> None:
    world = CheckpointWorld()
    backend = databases.backend(key_type=Types.LONG())
    at(backend, 5)
    backend.state(VALUE).update(1)
    source = older(world.source(world.run(backend, 1), reusable=True))
    again = databases.backend(key_type=Types.LONG())
    again.restore([source])
    made = world.shared.made
    at(again, 5)
    assert again.state(VALUE).value() == 1
    world.run(again, 2)
    assert world.shared.made == made  # the files that were there serve again


@pytest.mark.parametrize("keys", ["1", -1, None])
def test_a_description_that_is_none_is_damage(databases: Databases, keys: Any) -> None:
    world = CheckpointWorld()
    backend = databases.backend(key_type=Types.LONG())
    at(backend, 5)
    backend.state(VALUE).update(1)
    source = world.source(world.run(backend, 1))
    entry = {**source.layers[-1].states[NATIVE], "keys": keys}
    with pytest.raises(CorruptStateError, match="its database is not in the known form"):
        databases.backend(key_type=Types.LONG()).restore([described(source, entry)])
