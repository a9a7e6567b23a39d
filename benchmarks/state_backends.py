"""State access and checkpoints of every backend, named as in Flink's state benchmarks.

Access: operations per second over keys that exist, in random order; `dict` is the same loop over a
plain dict and the floor. Checkpoints: state of many keys, full and incremental with 1 % of the keys
changed, restore, and 2 to 3 rescale.
Usage: python benchmarks/state_backends.py [--keys 100000] [--checkpoint-keys 1000000]
       [--backends hashmap,rocksdb] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from weir.backend.base import (
    RestoreSource,
    SnapshotKind,
    SnapshotOutput,
    StateLayer,
)
from weir.backend.factory import BackendContext, BackendSettings, create_backend
from weir.clock import SystemClock
from weir.common.typeinfo import Types
from weir.datastream.state import StateTtlConfig
from weir.ids import JobId
from weir.keygroup import KeyGroupRange, key_group, range_of
from weir.slot.files import SlotFiles, StoredFiles
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.state.ttl import bind_ttl
from weir.storage.local import LocalStorage

GROUPS = 128
MAP_ENTRIES = 10
LIST_ELEMENTS = 10
BACKENDS = {
    "hashmap": BackendSettings("hashmap"),
    "hashmap incremental": BackendSettings("hashmap", incremental=True),
    "rocksdb": BackendSettings("rocksdb"),
    "rocksdb incremental": BackendSettings("rocksdb", incremental=True),
    "changelog/hashmap": BackendSettings("hashmap", changelog=True),
    "changelog/rocksdb": BackendSettings("rocksdb", changelog=True),
}
Loop = Callable[[Any, Any, list[tuple[int, int]]], None]


def keys_in_order(count: int, seed: int = 7) -> list[tuple[int, int]]:
    """Return keys with their groups, shuffled."""
    keys = [(k, key_group(k, GROUPS)) for k in range(count)]
    random.Random(seed).shuffle(keys)
    return keys


class Place:
    """A backend with a directory of its own."""

    def __init__(self, settings: BackendSettings, root: Path, groups: KeyGroupRange) -> None:
        """Create the backend empty."""
        self.storage = LocalStorage(str(root))
        self.files = SlotFiles(self.storage, JobId("job"), 0, 0)
        self.context = BackendContext(
            settings, self.files.shared("op"), SystemClock(), root, "op", 0
        )
        self.kind = (
            SnapshotKind.INCREMENTAL
            if settings.incremental or settings.changelog
            else SnapshotKind.FULL
        )
        self.backend = create_backend(self.context, Types.LONG(), groups)

    def checkpoint(self, number: int, *, full: bool = False) -> dict[str, Any]:
        """Take a checkpoint as a slot does; return files and times."""
        backend = self.backend
        started = time.perf_counter()
        backend.end_epoch()
        snapshot = backend.snapshot(number, SnapshotKind.FULL if full else self.kind)
        frozen = time.perf_counter()
        before = self._bytes()
        parts: list[Any] = []

        def fill(writer: Any) -> dict[str, Any]:
            part = snapshot.write(SnapshotOutput(writer, self.context.shared))
            parts.append(part)
            return {"operators": {"op": {"keyed": part.states, "operator": {}}}}

        own = self.files.write(f"job/chk-{number}", "", fill)
        written = time.perf_counter()
        snapshot.release()
        backend.notify_complete(number)
        return {
            "files": [*parts[0].layers, own],
            "sync_ms": (frozen - started) * 1000,
            "seconds": written - started,
            "bytes": self._bytes() - before,
            "directory": f"job/chk-{number}",
        }

    def _bytes(self) -> int:
        root = Path(self.storage.uri.removeprefix("file://"), "job")
        return sum(p.stat().st_size for p in root.rglob("*") if p.is_file())


def restore(
    place: Place, taken: list[tuple[Place, dict[str, Any], KeyGroupRange]], reuse: bool = False
) -> None:
    """Fill an empty backend from checkpoints."""
    sources = []
    for old, checkpoint, stored in taken:
        files = StoredFiles(old.storage, checkpoint["directory"])
        layers = []
        for handle in checkpoint["files"]:
            reader = files.reader(handle)
            layers.append(StateLayer(reader, reader.operator("op")["keyed"], handle))
        wanted = stored.intersect(place.backend.key_groups)
        if wanted:
            sources.append(RestoreSource(tuple(layers), wanted, stored, files, reuse))
    place.backend.restore(sources)


def timed(work: Callable[[], None], operations: int, rounds: int) -> float:
    """Return operations per second, the best of some rounds."""
    best = 0.0
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        started = time.perf_counter()
        work()
        best = max(best, operations / (time.perf_counter() - started))
        gc.enable()
    return best


def each_key(backend: Any, keys: list[tuple[int, int]]) -> Iterator[int]:
    """Make one key after the other current."""
    current = backend.current
    for key, group in keys:
        current.key = key
        current.group = group
        yield key


def dict_floor(keys: list[tuple[int, int]], rounds: int) -> dict[str, float]:
    """Do to a plain dict per key group what the handles do."""
    groups: list[dict[int, int]] = [{} for _ in range(GROUPS)]
    for key, group in keys:
        groups[group][key] = key

    def get() -> None:
        for key, group in keys:
            groups[group].get(key)

    def update() -> None:
        for key, group in keys:
            groups[group][key] = key

    def both() -> None:
        for key, group in keys:
            value = groups[group].get(key)
            groups[group][key] = value + 1  # type: ignore[operator]

    n = len(keys)
    return {
        "valueGet": timed(get, n, rounds),
        "valueUpdate": timed(update, n, rounds),
        "valueGetUpdate": timed(both, n, rounds),
    }


def value_operations(backend: Any, state: Any) -> dict[str, Callable[[list[Any]], None]]:
    """Return the loops over value state."""
    current = backend.current

    def value_get(keys: list[Any]) -> None:
        value = state.value
        for current.key, current.group in keys:
            value()

    def value_update(keys: list[Any]) -> None:
        update = state.update
        for current.key, current.group in keys:
            update(current.key)

    def value_get_update(keys: list[Any]) -> None:
        value, update = state.value, state.update
        for current.key, current.group in keys:
            update(value() + 1)

    return {
        "valueGet": value_get,
        "valueUpdate": value_update,
        "valueGetUpdate": value_get_update,
    }


def list_operations(backend: Any, state: Any) -> dict[str, Callable[[list[Any]], None]]:
    """Return the loops over list state; `listAppend` adds to lists that exist."""
    current = backend.current

    def list_add(keys: list[Any]) -> None:
        update, values = state.update, list(range(LIST_ELEMENTS))
        for current.key, current.group in keys:
            update(values)

    def list_append(keys: list[Any]) -> None:
        add = state.add
        for current.key, current.group in keys:
            add(1)

    def list_add_all(keys: list[Any]) -> None:
        add_all, values = state.add_all, [1, 2, 3]
        for current.key, current.group in keys:
            add_all(values)

    def list_get(keys: list[Any]) -> None:
        get = state.get
        for current.key, current.group in keys:
            get()

    def list_get_and_iterate(keys: list[Any]) -> None:
        get = state.get
        for current.key, current.group in keys:
            sum(get())

    return {
        "listUpdate": list_add,
        "listGet": list_get,
        "listGetAndIterate": list_get_and_iterate,
        "listAppend": list_append,
        "listAddAll": list_add_all,
    }


def map_operations(backend: Any, state: Any) -> dict[str, Callable[[list[Any]], None]]:
    """Return the loops over map state."""
    current = backend.current

    def map_put(keys: list[Any]) -> None:
        put = state.put
        for current.key, current.group in keys:
            put(3, current.key)

    def map_get(keys: list[Any]) -> None:
        get = state.get
        for current.key, current.group in keys:
            get(3)

    def map_contains(keys: list[Any]) -> None:
        contains = state.contains
        for current.key, current.group in keys:
            contains(99)

    def map_is_empty(keys: list[Any]) -> None:
        is_empty = state.is_empty
        for current.key, current.group in keys:
            is_empty()

    def map_iterator(keys: list[Any]) -> None:
        items = state.items
        for current.key, current.group in keys:
            for _ in items():
                pass

    def map_remove(keys: list[Any]) -> None:
        remove = state.remove
        for current.key, current.group in keys:
            remove(4)

    return {
        "mapPut": map_put,
        "mapGet": map_get,
        "mapContains": map_contains,
        "mapIsEmpty": map_is_empty,
        "mapIterator": map_iterator,
        "mapRemove": map_remove,
    }


def access(settings: BackendSettings, count: int, rounds: int) -> dict[str, float]:
    """Measure every access benchmark of one backend."""
    keys = keys_in_order(count)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        place = Place(settings, Path(directory), KeyGroupRange(0, GROUPS - 1))
        backend: Any = place.backend
        long = Types.LONG()
        value: Any = backend.state(ValueStateDescriptor("value", long))
        elements: Any = backend.state(ListStateDescriptor("list", long))
        entries: Any = backend.state(MapStateDescriptor("map", long, long))
        loops = value_operations(backend, value)
        found["valueAdd"] = timed(lambda: _epoch(backend, loops["valueUpdate"], keys), count, 1)
        for name, loop in list(loops.items()):
            found[name] = _measure(backend, loop, keys, rounds)
        few = keys[: count // 4]
        loops = list_operations(backend, elements)
        found["listAdd"] = timed(lambda: _epoch(backend, loops["listAppend"], few), len(few), 1)
        for name, loop in list(loops.items()):
            found[name] = _measure(backend, loop, few, rounds)
        for _ in each_key(backend, few):
            entries.put_all({n: n for n in range(MAP_ENTRIES)})
        backend.end_epoch()
        for name, loop in map_operations(backend, entries).items():
            found[name] = _measure(backend, loop, few, rounds)
        backend.close()
    return found


def _epoch(backend: Any, loop: Callable[[list[Any]], None], keys: list[Any]) -> None:
    loop(keys)
    backend.end_epoch()


def _measure(
    backend: Any, loop: Callable[[list[Any]], None], keys: list[Any], rounds: int
) -> float:
    return timed(lambda: _epoch(backend, loop, keys), len(keys), rounds)


def checkpoints(settings: BackendSettings, count: int) -> dict[str, float]:
    """Measure checkpoints, restore and rescaling at many keys."""
    keys = keys_in_order(count)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        whole = KeyGroupRange(0, GROUPS - 1)
        found["bytes/key resident"] = in_new_process(settings, count)
        place = Place(settings, root / "one", whole)
        state: Any = place.backend.state(ValueStateDescriptor("value", Types.LONG()))
        for key in each_key(place.backend, keys):
            state.update(key)
        place.backend.end_epoch()
        full = place.checkpoint(1)
        found["full MB"] = full["bytes"] / 1e6
        found["full s"] = full["seconds"]
        found["full sync ms, nothing to flush"] = full["sync_ms"]
        rng = random.Random(3)
        results = []
        for number in (2, 3, 4):
            for key in each_key(place.backend, rng.sample(keys, count // 100)):
                state.update(-key)
            results.append(place.checkpoint(number))
        for name, field, scale in (
            ("1 % MB", "bytes", 1e6),
            ("1 % s", "seconds", 1),
            ("1 % sync ms, flush of the epoch included", "sync_ms", 1),
        ):
            found[name] = statistics.median(r[field] for r in results) / scale
        found["1 % bytes / full bytes"] = found["1 % MB"] / found["full MB"]
        started = time.perf_counter()
        again = Place(settings, root / "again", whole)
        restore(again, [(place, results[-1], whole)])
        again.backend.state(ValueStateDescriptor("value", Types.LONG()))
        found["restore s"] = time.perf_counter() - started
        again.backend.close()
        place.backend.close()
    found["rescale 2->3 s"] = rescale(settings, count)
    return found


def rescale(settings: BackendSettings, count: int) -> float:
    """Return the seconds that the slowest of three new subtasks needs to read its ranges."""
    keys = keys_in_order(count)
    with tempfile.TemporaryDirectory() as directory:
        taken = []
        for subtask in range(2):
            groups = range_of(subtask, 2, GROUPS)
            place = Place(settings, Path(directory) / f"old{subtask}", groups)
            state: Any = place.backend.state(ValueStateDescriptor("value", Types.LONG()))
            for key in each_key(place.backend, [k for k in keys if k[1] in groups]):
                state.update(key)
            taken.append((place, place.checkpoint(1), groups))
        slowest = 0.0
        for subtask in range(3):
            started = time.perf_counter()
            new = Place(settings, Path(directory) / f"new{subtask}", range_of(subtask, 3, GROUPS))
            restore(new, taken)
            new.backend.state(ValueStateDescriptor("value", Types.LONG()))
            slowest = max(slowest, time.perf_counter() - started)
            new.backend.close()
        for old, _, _ in taken:
            old.backend.close()
    return slowest


def epoch_cost(settings: BackendSettings, count: int) -> float:
    """Return milliseconds of an epoch of 1,000 updates at some state size, with its checkpoint."""
    keys = keys_in_order(count)
    with tempfile.TemporaryDirectory() as directory:
        place = Place(settings, Path(directory), KeyGroupRange(0, GROUPS - 1))
        state: Any = place.backend.state(ValueStateDescriptor("value", Types.LONG()))
        for key in each_key(place.backend, keys):
            state.update(key)
        place.checkpoint(1)
        snapshot = place.backend.snapshot(2, place.kind)  # in flight while epochs go on
        costs = []
        for _ in range(10):
            started = time.perf_counter()
            for key in each_key(place.backend, keys[:1000]):
                state.update(key)
            place.backend.end_epoch()
            place.backend.approximate_size()
            costs.append((time.perf_counter() - started) * 1000)
        snapshot.release()
        place.backend.close()
    return statistics.median(costs)


def ttl_matrix(settings: BackendSettings, count: int, rounds: int) -> dict[str, float]:
    """Measure value state with every pair of TTL update type and visibility."""
    keys = keys_in_order(count)
    clock = SystemClock()
    found: dict[str, float] = {}
    for update in StateTtlConfig.UpdateType:
        for visibility in StateTtlConfig.StateVisibility:
            if update.name == "Disabled":
                continue
            with tempfile.TemporaryDirectory() as directory:
                place = Place(settings, Path(directory), KeyGroupRange(0, GROUPS - 1))
                descriptor = ValueStateDescriptor("value", Types.LONG())
                config = StateTtlConfig.new_builder(3_600_000)
                config = config.set_update_type(update).set_state_visibility(visibility)
                descriptor.enable_time_to_live(config.build())
                state = bind_ttl(place.backend, descriptor, clock.now_ms)
                loops = value_operations(place.backend, state)
                _epoch(place.backend, loops["valueUpdate"], keys)
                for name in ("valueGet", "valueUpdate"):
                    label = f"{name} {update.name} {visibility.name}"
                    found[label] = _measure(place.backend, loops[name], keys, rounds)
                place.backend.close()
    return found


def in_new_process(settings: BackendSettings, count: int) -> float:
    """Measure the memory of a key where no other backend has left any."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(bytes_per_key, (settings, count))


def bytes_per_key(settings: BackendSettings, count: int) -> float:
    """Return by how much the process grows for a key with a value, both integers."""
    keys = keys_in_order(count)
    with tempfile.TemporaryDirectory() as directory:
        place = Place(settings, Path(directory), KeyGroupRange(0, GROUPS - 1))
        state: Any = place.backend.state(ValueStateDescriptor("value", Types.LONG()))
        gc.collect()
        before = _resident_kb()
        for key in each_key(place.backend, keys):
            state.update(-1 - key)
        place.backend.end_epoch()
        grown = _resident_kb() - before
        place.backend.close()
    return grown * 1024 / count


def _resident_kb() -> int:
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def table(title: str, columns: dict[str, dict[str, float]], form: str) -> str:
    """Return a Markdown table with a column for each backend."""
    rows = list(dict.fromkeys(name for found in columns.values() for name in found))
    lines = [f"### {title}", "", "| | " + " | ".join(columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for row in rows:
        cells = [format(c[row], form) if row in c else "" for c in columns.values()]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what was asked for and show tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--checkpoint-keys", type=int, default=1_000_000)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="access,ttl,checkpoints,epochs")
    arguments = parser.parse_args()
    chosen = {name: BACKENDS[name] for name in arguments.backends.split(",")}
    parts = arguments.parts.split(",")
    keys, rounds = arguments.keys, arguments.rounds
    show = sys.stdout.write
    if "access" in parts:
        columns = {"dict": dict_floor(keys_in_order(keys), rounds)}
        columns |= {name: access(s, keys, rounds) for name, s in chosen.items()}
        show(table(f"Operations per second, {keys:,} keys", columns, ",.0f") + "\n")
        floor = columns["dict"]["valueGetUpdate"]
        for name, found in columns.items():
            over = (1 / found["valueGetUpdate"] - 1 / floor) * 1e6
            show(f"valueGet + valueUpdate over a dict, {name}: {over:.2f} us\n")
        show("\n")
    if "ttl" in parts:
        columns = {name: ttl_matrix(s, keys, rounds) for name, s in chosen.items()}
        show(table(f"With TTL, operations per second, {keys:,} keys", columns, ",.0f") + "\n")
    if "checkpoints" in parts:
        many = arguments.checkpoint_keys
        columns = {name: checkpoints(s, many) for name, s in chosen.items()}
        show(table(f"Checkpoints, {many:,} keys", columns, ".3f") + "\n")
    if "epochs" in parts:
        sizes = (10_000, 100_000, arguments.checkpoint_keys)
        columns = {
            name: {f"{size:,} keys": epoch_cost(s, size) for size in sizes}
            for name, s in chosen.items()
        }
        show(table("Milliseconds of an epoch with 1,000 updates", columns, ".2f") + "\n")


if __name__ == "__main__":
    main()
