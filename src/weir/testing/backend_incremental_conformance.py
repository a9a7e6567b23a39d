"""What a backend with incremental snapshots must do, as a suite to subclass.

Subclass `IncrementalConformance` and return from `make_incremental` a new empty backend that takes
incremental snapshots. The suite plays coordinator with a `CheckpointWorld`, which deletes every
file as soon as it may: a checkpoint that exists must restore exactly the moment it was taken.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from weir.backend.base import KeyedBackend, SharedFiles, SnapshotKind
from weir.backend.hashmap import HashMapBackend
from weir.backend.timers import EVENT_TIMERS
from weir.common.typeinfo import Types
from weir.keygroup import KeyGroupRange, key_group, range_of
from weir.state.descriptor import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.testing.backend_snapshot_conformance import (
    ALL_GROUPS,
    CHANGES,
    MAX_PARALLELISM,
    SnapshotConformance,
    source_of,
    write_file,
)
from weir.testing.campaign_scenario import Dice
from weir.testing.checkpoint_world import CheckpointWorld, WorldCheckpoint

RESCALES = [(4, 2), (2, 4), (15, 77), (77, 15)]
KEYS = ("a", "b", "c", "new")
BALLAST = ValueStateDescriptor("ballast", Types.STRING())
_register, _look = SnapshotConformance.register, SnapshotConformance.look

Contents = list[dict[str, Any]]


def at(backend: Any, key: Any) -> None:
    """Make a key current."""
    backend.current.key, backend.current.group = key, key_group(key, MAX_PARALLELISM)


def _fill(backend: Any) -> dict[str, Any]:
    """Fill the states, and put so much beside them that changes are small next to it."""
    at(backend, "ballast")
    backend.state(BALLAST).update("x" * 20_000)
    return SnapshotConformance.fill(backend)


def look_at_all(backend: Any, states: dict[str, Any]) -> Contents:
    """Return everything that is stored under the keys of the suite."""
    return copy.deepcopy([_look(backend, states, key) for key in KEYS])


class IncrementalConformance:
    """Checkpoints of changes are as good as full ones."""

    shares_little = True
    """A small change makes a small checkpoint, whatever the size of the state."""

    def make_incremental(
        self, key_type: Any, key_groups: KeyGroupRange, shared: SharedFiles
    ) -> KeyedBackend:
        """Return a new, empty backend whose shared files go there."""
        raise NotImplementedError

    def make_other(self, key_type: Any, key_groups: KeyGroupRange) -> KeyedBackend:
        """Return an empty backend of another kind, which must restore full snapshots."""
        return HashMapBackend(key_type, key_groups)

    def start(self, world: CheckpointWorld) -> Any:
        """Return an empty backend over all key groups."""
        return self.make_incremental(Types.STRING(), ALL_GROUPS, world.shared)

    def resume(
        self, world: CheckpointWorld, checkpoint: WorldCheckpoint, *, reusable: bool = True
    ) -> Any:
        """Return a backend with the contents of a checkpoint, in the same or another job."""
        target = world if reusable else CheckpointWorld()
        backend = self.start(target)
        backend.restore([world.source(checkpoint, reusable=reusable)])
        return backend

    def check(self, world: CheckpointWorld, checkpoint: WorldCheckpoint, moment: Contents) -> None:
        """Require that a checkpoint restores to what was there."""
        backend = self.resume(world, checkpoint, reusable=False)
        assert look_at_all(backend, _register(backend)) == moment
        backend.close()

    @staticmethod
    def change(backend: Any, states: dict[str, Any], dice: Dice) -> None:
        """Change one entry of a random key in a random way."""
        at(backend, KEYS[dice.below(len(KEYS))])
        number = dice.below(100)
        way = dice.below(len(CHANGES) + 4)
        if way < len(CHANGES):
            CHANGES[sorted(CHANGES)[way]](states)
        elif way == len(CHANGES):
            value = states["any"].value()
            if value is None:
                states["any"].update({"inner": [number]})
            else:
                value["inner"].append(number)
        elif way == len(CHANGES) + 1:
            states["map"].put(str(number % 5), number)
        elif way == len(CHANGES) + 2:
            states["map"].remove(str(number % 5))
        else:
            states["list"].add(number)
        if dice.below(3) == 0:
            backend.end_epoch()

    def test_every_checkpoint_of_a_chain_restores_its_moment(self) -> None:
        """Thirty checkpoints, each checked while it is the newest one."""
        world, dice = CheckpointWorld(), Dice(1)
        backend = self.start(world)
        states = _fill(backend)
        for number in range(1, 31):
            for _ in range(number % 4):
                self.change(backend, states, dice)
            moment = look_at_all(backend, states)
            self.check(world, world.run(backend, number), moment)
        backend.close()

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_single_change_is_in_the_next_checkpoint(self, change: str) -> None:
        """Each way to change state, alone."""
        world = CheckpointWorld()
        backend = self.start(world)
        states = _fill(backend)
        before = look_at_all(backend, states)
        world.run(backend, 1)
        at(backend, "a")
        CHANGES[change](states)
        after = look_at_all(backend, states)
        assert after != before
        self.check(world, world.run(backend, 2), after)
        self.check(world, world.run(backend, 3), after)

    def test_objects_changed_in_place_are_in_the_next_checkpoint(self) -> None:
        """They are state whether or not they were stored again."""
        world = CheckpointWorld()
        backend = self.start(world)
        value = ValueStateDescriptor("v")
        elements, entries = ListStateDescriptor("l"), MapStateDescriptor("m", Types.STRING(), None)
        at(backend, "a")
        backend.state(value).update({"n": [1]})
        backend.state(elements).add([1])
        backend.state(entries).put_all({"x": [1], "y": [1]})
        world.run(backend, 1)
        backend.state(value).value()["n"].append(2)
        backend.state(elements).get()[0].append(2)
        backend.state(entries).get("x").append(2)
        world.run(backend, 2)
        for inner in backend.state(entries).values():
            inner.append(3)
        again = self.resume(world, world.run(backend, 3))
        at(again, "a")
        assert again.state(value).value() == {"n": [1, 2]}
        assert list(again.state(elements).get()) == [[1, 2]]
        assert dict(again.state(entries).items()) == {"x": [1, 2, 3], "y": [1, 3]}

    def test_what_an_aborted_checkpoint_held_is_in_the_next_one(self) -> None:
        """Its files are gone: neither they nor their changes may be counted on."""
        world, dice = CheckpointWorld(), Dice(2)
        backend = self.start(world)
        states = _fill(backend)
        for number in range(1, 25):
            for _ in range(3):
                self.change(backend, states, dice)
            moment = look_at_all(backend, states)
            checkpoint = world.take(backend, number)
            if number % 5 != 4:
                world.write(checkpoint)
            else:
                checkpoint.snapshot.release()
            if number % 3:
                world.abort(backend, checkpoint)
            elif number % 5 != 4:
                world.complete(backend, checkpoint)
                self.check(world, checkpoint, moment)
            else:
                world.abort(backend, checkpoint)

    def test_nothing_is_lost_when_no_checkpoint_completes_for_long(self) -> None:
        """After a completed one, forty are aborted."""
        world, dice = CheckpointWorld(), Dice(3)
        backend = self.start(world)
        states = _fill(backend)
        kept = look_at_all(backend, states)
        first = world.run(backend, 1)
        for number in range(2, 42):
            self.change(backend, states, dice)
            world.abort(backend, world.write(world.take(backend, number)))
            if number % 10 == 0:
                self.check(world, first, kept)
        moment = look_at_all(backend, states)
        self.check(world, world.run(backend, 42), moment)

    @pytest.mark.parametrize("rest", ["complete", "abort"])
    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
    def test_checkpoints_overlap_in_any_order(self, order: tuple[int, ...], rest: str) -> None:
        """Three are pending at once, written late and in any order; then one completes.

        What is younger completes after it, or is given up.
        """
        for survivor in range(3):
            world, dice = CheckpointWorld(), Dice(survivor)
            backend = self.start(world)
            states = _fill(backend)
            world.run(backend, 1)
            moments, taken = [], []
            for number in range(3):
                self.change(backend, states, dice)
                moments.append(look_at_all(backend, states))
                taken.append(world.take(backend, 2 + number))
                self.change(backend, states, dice)
            for number in order:
                world.write(taken[number])
            for number in range(survivor):
                world.abort(backend, taken[number])
            world.complete(backend, taken[survivor])
            self.check(world, taken[survivor], moments[survivor])
            for number in range(survivor + 1, 3):
                getattr(world, rest)(backend, taken[number])
                if rest == "complete":
                    self.check(world, taken[number], moments[number])
            self.change(backend, states, dice)
            last = look_at_all(backend, states)
            self.check(world, world.run(backend, 9), last)

    def test_a_newer_checkpoint_completes_before_an_older_one_is_given_up(self) -> None:
        """The older one's interval must not be lost from the chain, nor its files used."""
        world, dice = CheckpointWorld(), Dice(5)
        backend = self.start(world)
        states = _fill(backend)
        world.run(backend, 1)
        for number in range(2, 20, 2):
            self.change(backend, states, dice)
            older = world.take(backend, number)
            self.change(backend, states, dice)
            moment = look_at_all(backend, states)
            newer = world.take(backend, number + 1)
            self.change(backend, states, dice)
            world.write(newer)
            world.complete(backend, newer)
            world.write(older)
            world.abort(backend, older)
            self.check(world, newer, moment)

    def test_older_retained_checkpoints_stay_whole(self) -> None:
        """Three are kept: each restores after everything that came later."""
        world, dice = CheckpointWorld(retained=3), Dice(6)
        backend = self.start(world)
        states = _fill(backend)
        moments: dict[int, Contents] = {}
        for number in range(1, 28):
            self.change(backend, states, dice)
            moments[number] = look_at_all(backend, states)
            world.run(backend, number)
            for kept, checkpoint in world.completed.items():
                self.check(world, checkpoint, moments[kept])

    def test_a_chain_goes_on_after_failovers(self) -> None:
        """Restored, gone on with, and failed again, with states that nobody asked for."""
        world, dice = CheckpointWorld(), Dice(7)
        backend = self.start(world)
        states = _fill(backend)
        number = 0
        for generation in range(8):
            for _ in range(3):
                self.change(backend, states, dice)
                number += 1
                moment = look_at_all(backend, states)
                checkpoint = world.run(backend, number)
            self.change(backend, states, dice)
            world.write(world.take(backend, number + 1))
            backend.close()
            world.fail_over()
            backend = self.resume(world, checkpoint)
            if generation % 2:
                backend.state(ValueStateDescriptor("value", Types.LONG()))
                number += 2
                checkpoint = world.run(backend, number)
                backend.close()
                backend = self.resume(world, checkpoint)
            states = _register(backend)
            assert look_at_all(backend, states) == moment

    def test_the_first_checkpoint_of_another_job_needs_no_file_of_the_old_one(self) -> None:
        """A checkpoint that is not claimed may be deleted at any time."""
        old, dice = CheckpointWorld(), Dice(8)
        backend = self.start(old)
        states = _fill(backend)
        for number in (1, 2, 3):
            self.change(backend, states, dice)
            checkpoint = old.run(backend, number)
        new = CheckpointWorld()
        again = self.start(new)
        again.restore([old.source(checkpoint)])
        old.shared.files.clear()
        states = _register(again)
        self.change(again, states, dice)
        moment = look_at_all(again, states)
        self.check(new, new.run(again, 4), moment)
        self.change(again, states, dice)
        moment = look_at_all(again, states)
        self.check(new, new.run(again, 5), moment)

    def test_a_job_goes_on_from_a_full_checkpoint_of_its_own(self) -> None:
        """What is in the checkpoint's own file goes with it and has to be written again."""
        world = CheckpointWorld()
        backend = self.start(world)
        states = _fill(backend)
        full = world.write(world.take(backend, 1, SnapshotKind.FULL))
        world.complete(backend, full)
        again = self.resume(world, full)
        at(again, "a")
        states = _register(again)
        states["value"].update(77)
        moment = look_at_all(again, states)
        self.check(world, world.run(again, 2), moment)

    def test_savepoints_in_between_change_nothing(self) -> None:
        """A full snapshot needs no other file, restores anywhere, and belongs to no chain."""
        world, dice = CheckpointWorld(), Dice(9)
        backend = self.start(world)
        states = _fill(backend)
        for number in range(1, 12):
            self.change(backend, states, dice)
            moment = look_at_all(backend, states)
            if number % 2:
                self.check(world, world.run(backend, number), moment)
                continue
            savepoint = backend.snapshot(number, SnapshotKind.FULL)
            data = write_file(savepoint)
            savepoint.release()
            if number % 4:
                backend.notify_complete(number)
            else:
                backend.notify_aborted(number)
            for other in (self.make_other(Types.STRING(), ALL_GROUPS), self.start(world)):
                other.restore([source_of(data)])
                assert look_at_all(other, _register(other)) == moment

    @pytest.mark.parametrize(("old", "new"), RESCALES)
    def test_chains_move_to_other_subtasks(self, old: int, new: int) -> None:
        """Base, changes and removals: nothing is lost, doubled or back again."""
        keys = [f"key {i}" for i in range(300)]
        descriptor = MapStateDescriptor("m", Types.LONG(), Types.STRING())
        worlds, checkpoints = [CheckpointWorld() for _ in range(old)], []
        for subtask, world in enumerate(worlds):
            owned = range_of(subtask, old, MAX_PARALLELISM)
            backend: Any = self.make_incremental(Types.STRING(), owned, world.shared)
            state = backend.state(descriptor)
            for number in range(1, 4):
                for i, key in enumerate(keys):
                    if key_group(key, MAX_PARALLELISM) in owned and i % number == 0:
                        at(backend, key)
                        state.put(i + number % 3, key)
                        if i % 7 == 0 and number == 3:
                            state.clear()
                checkpoint = world.run(backend, number)
            checkpoints.append(checkpoint)
            backend.close()
        expected: dict[str, dict[int, str]] = {}
        for i, key in enumerate(keys):
            if i % 3 != 0 or i % 7 != 0:
                expected[key] = {i + n % 3: key for n in (1, 2, 3) if i % n == 0}
        found: dict[str, dict[int, str]] = {}
        for subtask in range(new):
            owned = range_of(subtask, new, MAX_PARALLELISM)
            fresh = CheckpointWorld()
            sources = [
                world.source(checkpoint, wanted, reusable=True)
                for world, checkpoint in zip(worlds, checkpoints, strict=True)
                if (wanted := checkpoint.key_groups.intersect(owned))
            ]
            backend = self.make_incremental(Types.STRING(), owned, fresh.shared)
            backend.restore(sources)
            moved = fresh.run(backend, 4)
            backend.close()
            backend = self.make_incremental(Types.STRING(), owned, fresh.shared)
            backend.restore([fresh.source(moved)])
            state = backend.state(descriptor)
            for key in list(backend.keys("m")):
                at(backend, key)
                assert backend.current.group in owned
                assert key not in found
                found[key] = dict(state.items())
            backend.close()
        assert found == expected

    def test_swept_entries_do_not_come_back(self) -> None:
        """Entries, elements and map entries that a sweep removed are changes too."""
        world = CheckpointWorld()
        backend = self.start(world)
        states = _fill(backend)
        world.run(backend, 1)
        for name in ("value", "list", "map"):
            backend.sweep(name, lambda x: x is not None and x != 1, 100)
        moment = look_at_all(backend, states)
        assert [m["value"] for m in moment] == [0, None, 2, None]
        assert [m["list"] for m in moment] == [[0], [2], [2, 3], []]
        assert [m["map"] for m in moment] == [{"x": 0}, {}, {"x": 2}, {}]
        self.check(world, world.run(backend, 2), moment)

    def test_a_state_that_migrated_is_written_anew(self) -> None:
        """The chain goes on with the new type, also when the checkpoint with it is aborted."""
        world = CheckpointWorld()
        backend = self.start(world)
        old = ValueStateDescriptor("v", Types.INT())
        for number in range(5):
            at(backend, f"key {number}")
            backend.state(old).update(number)
        again = self.resume(world, world.run(backend, 1))
        new = ValueStateDescriptor("v", Types.LONG())
        at(again, "key 1")
        again.state(new).update(1 << 40)
        world.abort(again, world.write(world.take(again, 2)))
        at(again, "key 2")
        again.state(new).clear()
        last = self.resume(world, world.run(again, 3))
        found = []
        for number in range(5):
            at(last, f"key {number}")
            found.append(last.state(new).value())
        assert found == [0, 1 << 40, None, 3, 4]

    def test_timers_are_those_of_the_moment(self) -> None:
        """Fired and deleted timers of older checkpoints do not come back."""
        world = CheckpointWorld()
        backend = self.start(world)
        _fill(backend)
        timers = backend.timers(EVENT_TIMERS)
        for number in range(10):
            timers.register(number, f"key {number}", key_group(f"key {number}", MAX_PARALLELISM))
        world.run(backend, 1)
        assert [t.timestamp for t in timers.pop_due(6)] == list(range(7))
        timers.delete(8, "key 8", key_group("key 8", MAX_PARALLELISM))
        again = self.resume(world, world.run(backend, 2))
        found = [(t.timestamp, t.key) for t in again.timers(EVENT_TIMERS).pop_due(100)]
        assert found == [(7, "key 7"), (9, "key 9")]

    def test_a_small_change_of_a_big_state_writes_little(self) -> None:
        """One in a hundred of 20 000 keys changes: less than 3 % of the bytes are written."""
        if not self.shares_little:
            pytest.skip("the backend does not promise this")
        world = CheckpointWorld()
        backend = self.start(world)
        state = backend.state(ValueStateDescriptor("v", Types.LONG()))
        for number in range(20_000):
            at(backend, f"key {number}")
            state.update(number)
        full = world.run(backend, 1)
        whole = world.shared.bytes_written + len(full.own)
        for number in range(0, 20_000, 100):
            at(backend, f"key {number}")
            state.update(-number)
        before = world.shared.bytes_written
        checkpoint = world.run(backend, 2)
        assert world.shared.bytes_written - before + len(checkpoint.own) < 0.03 * whole
