"""The campaign's checker can fail: an engine broken on purpose is caught within a few crashes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import msgspec
import pytest

from weir.backend.timers import TimerQueue
from weir.checkpoint.coordinator import CheckpointCoordinator
from weir.checkpoint.shared import SharedRegistry
from weir.connector.file_writer import FileSinkWriter
from weir.jobmanager.assembly import EpochFacts
from weir.jobmanager.checkpoints import CheckpointRunner
from weir.jobmanager.cleanup import CheckpointFiles
from weir.jobmanager.restoration import Restoration
from weir.jobmanager.results import Results
from weir.jobmanager.stand_ins import StandIns
from weir.runtime.in_flight import LevelProgress
from weir.runtime.sinks import SinkOperator
from weir.runtime.stateful import StatefulOperator
from weir.runtime.subtask import Subtask
from weir.slot.copies import SlotCopies
from weir.slot.messages import OperatorRestore
from weir.slot.overtake import Overtake
from weir.slot.rows import _OwnRows
from weir.slot.service import SlotService
from weir.testing.campaign import NEVER_ENDED, Crash, Kind, Mode, random_crashes, run
from weir.testing.campaign_scenario import Scenario
from weir.testing.harness_sources import HarnessSources

pytestmark = pytest.mark.campaign

FIXED = 0
SHARING = -1
REPEATING_SEEDS = (7, 8, 10, 11, 13)
OVERTAKING_SEEDS = (5, 8, 15, 20, 60, 75)


def commit_before_metadata(patch):
    write = CheckpointRunner._write_metadata

    def broken(self, action):
        self._complete(action.ref.checkpoint_id)
        write(self, action)

    patch.setattr(CheckpointRunner, "_write_metadata", broken)


def one_acknowledgement_is_not_waited_for(patch):
    trigger = CheckpointCoordinator.on_trigger

    def broken(self, checkpoint_id, subtasks, now_ms):
        trigger(self, checkpoint_id, set(subtasks) - {max(subtasks)}, now_ms)

    patch.setattr(CheckpointCoordinator, "on_trigger", broken)


def sources_are_not_rewound(patch):
    patch.setattr(HarnessSources, "rewind", lambda self, positions: None)


def sources_start_over(patch):
    rewind = HarnessSources.rewind
    patch.setattr(HarnessSources, "rewind", lambda self, positions: rewind(self, None))


def operator_state_is_not_restored(patch):
    assignment = Restoration.assignment

    def broken(self, subtask, plan, plan_bytes):
        whole = assignment(self, subtask, plan, plan_bytes)
        bare = [OperatorRestore(p.operator, p.keyed, []) for p in whole.restore]
        return msgspec.structs.replace(whole, restore=bare)

    patch.setattr(Restoration, "assignment", broken)


def keyed_state_is_not_restored(patch):
    restore = StatefulOperator.restore

    def broken(self, checkpoint_id, keyed, operator, raw):
        restore(self, checkpoint_id, [], operator, raw)

    patch.setattr(StatefulOperator, "restore", broken)


def timers_are_not_restored(patch):
    patch.setattr(TimerQueue, "restore", lambda self, sources: None)


def records_of_a_lost_attempt_are_released(patch):
    patch.setattr(Results, "drop_unreleased", lambda self: None)


def prepared_files_are_cleaned_away(patch):
    discard = FileSinkWriter.discard_leftovers
    patch.setattr(FileSinkWriter, "discard_leftovers", lambda self, keep: discard(self, []))
    # Cleaning comes first, as if another subtask had been faster.
    opened = SinkOperator.commit_restored

    def broken(self, committables):
        if isinstance(self.writer, FileSinkWriter):
            self.writer.discard_leftovers([])
            return
        opened(self, committables)

    patch.setattr(SinkOperator, "commit_restored", broken)


def leftovers_stay(patch):
    patch.setattr(FileSinkWriter, "discard_leftovers", lambda self, keep: None)


def restored_commits_are_forgotten(patch):
    patch.setattr(SinkOperator, "commit_restored", lambda self, committables: None)


def failed_commits_count_as_done(patch):
    complete = CheckpointRunner._complete

    def broken(self, checkpoint_id):
        events, self._events = self._events, type(self._events)()
        try:
            complete(self, checkpoint_id)
        finally:
            self._events = events
        self._uncommitted.clear()

    patch.setattr(CheckpointRunner, "_complete", broken)


def late_files_stay(patch):
    patch.setattr(CheckpointFiles, "sweep_job", lambda self, kept, first_id: None)
    patch.setattr(CheckpointFiles, "delete_tree", lambda self, directory: None)


@pytest.mark.parametrize(
    "sabotage",
    [
        commit_before_metadata,
        one_acknowledgement_is_not_waited_for,
        sources_are_not_rewound,
        sources_start_over,
        operator_state_is_not_restored,
        keyed_state_is_not_restored,
        timers_are_not_restored,
        records_of_a_lost_attempt_are_released,
        prepared_files_are_cleaned_away,
        leftovers_stay,
        restored_commits_are_forgotten,
        failed_commits_count_as_done,
        late_files_stay,
    ],
    ids=lambda f: f.__name__,
)
def test_a_broken_engine_is_caught(monkeypatch, sabotage):
    steps = len(run(FIXED).steps)
    sabotage(monkeypatch)
    assert any(is_caught(FIXED, crashes) for crashes in spread(steps))


def files_in_use_are_given_up(patch):
    release = SharedRegistry.release

    def broken(self, checkpoint_id):
        files = self._files.get(checkpoint_id, frozenset())
        return (*release(self, checkpoint_id), *sorted(files))

    patch.setattr(SharedRegistry, "release", broken)


def freed_files_stay(patch):
    patch.setattr(SharedRegistry, "release", lambda self, checkpoint_id: ())
    patch.setattr(SharedRegistry, "discard", lambda self, files: ())


def changes_are_not_restored(patch):
    restore = StatefulOperator.restore

    def broken(self, checkpoint_id, keyed, operator, raw):
        bases = [replace(source, layers=source.layers[-1:]) for source in keyed]
        restore(self, checkpoint_id, bases, operator, raw)

    patch.setattr(StatefulOperator, "restore", broken)


@pytest.mark.parametrize(
    "sabotage",
    [files_in_use_are_given_up, freed_files_stay, changes_are_not_restored],
    ids=lambda f: f.__name__,
)
def test_an_engine_that_is_broken_with_shared_files_is_caught(monkeypatch, sabotage):
    steps = len(run(SHARING).steps)
    sabotage(monkeypatch)
    assert any(is_caught(SHARING, crashes) for crashes in spread(steps))


def test_an_epoch_that_is_applied_twice_is_caught(monkeypatch):
    assert not any(is_caught(seed, []) for seed in REPEATING_SEEDS)
    answer = SlotService.run

    def broken(self, call, frames):
        self._outputs.clear()
        self._applied.clear()
        return answer(self, call, frames)

    monkeypatch.setattr(SlotService, "run", broken)
    assert any(is_caught(seed, []) for seed in REPEATING_SEEDS)


def rows_that_wait_are_not_stored(patch):
    patch.setattr(LevelProgress, "frames", lambda self, subtask: self.sent)


def rows_that_were_sent_on_are_not_stored(patch):
    cut = Subtask.cut

    def broken(self, barrier, level, output, *, replayed):
        writers, self._writers = self._writers, defaultdict(list)
        try:
            return cut(self, barrier, level, None, replayed=replayed)
        finally:
            self._writers = writers

    patch.setattr(Subtask, "cut", broken)


def rows_in_flight_are_not_restored(patch):
    patch.setattr(_OwnRows, "_take", lambda self, stored, edge, number, payload: None)


def results_of_the_epoch_are_released_with_the_cut(patch):
    patch.setattr(EpochFacts, "shown_epoch", property(lambda self: self.epoch))


def results_on_their_way_are_not_stored(patch):
    patch.setattr(_OwnRows, "take_reports", lambda self, reader, part: None)


def a_slot_takes_part_twice(patch):
    patch.setattr(Overtake, "has_cut", lambda self, checkpoint_id: False)
    cut = Subtask.cut

    def broken(self, barrier, level, output, *, replayed):
        rows = cut(self, barrier, level, output, replayed=replayed)
        self._cut_id = None
        return rows

    patch.setattr(Subtask, "cut", broken)


def a_slot_that_waits_for_its_rows_cuts_at_once(patch):
    idle_cut = Overtake.idle_cut
    patch.setattr(Overtake, "idle_cut", lambda self, width: idle_cut(self, lambda level: False))


@pytest.mark.parametrize(
    "sabotage",
    [
        rows_that_wait_are_not_stored,
        rows_that_were_sent_on_are_not_stored,
        rows_in_flight_are_not_restored,
        results_of_the_epoch_are_released_with_the_cut,
        results_on_their_way_are_not_stored,
        a_slot_takes_part_twice,
        a_slot_that_waits_for_its_rows_cuts_at_once,
    ],
    ids=lambda f: f.__name__,
)
def test_a_broken_cut_is_caught(monkeypatch, sabotage):
    runs = [(seed, random_crashes(seed, 500)) for seed in OVERTAKING_SEEDS]
    assert not any(is_caught(*found, mode=Mode.UNALIGNED) for found in runs)
    sabotage(monkeypatch)
    assert any(is_caught(*found, mode=Mode.UNALIGNED) for found in runs)


def copies_are_not_put_together(patch):
    patch.setattr(SlotCopies, "keep", lambda self, checkpoint_id, handles, made: None)


def copies_go_with_their_own_checkpoint(patch):
    completed = SlotCopies.completed

    def broken(self, checkpoint_id):
        completed(self, checkpoint_id)
        self.aborted(checkpoint_id)

    patch.setattr(SlotCopies, "completed", broken)


def copies_stay_when_the_job_ends(patch):
    patch.setattr(StandIns, "remove", lambda self: None)


@pytest.mark.parametrize(
    "sabotage",
    [
        copies_are_not_put_together,
        copies_go_with_their_own_checkpoint,
        copies_stay_when_the_job_ends,
    ],
    ids=lambda f: f.__name__,
)
def test_broken_local_copies_are_caught(monkeypatch, sabotage):
    seeds = [seed for seed in range(1, 40) if Scenario.of(seed).local]
    runs = [(seed, random_crashes(seed, 500)) for seed in seeds[:6]]
    assert not any(is_caught(*found) for found in runs)
    sabotage(monkeypatch)
    assert any(is_caught(*found) for found in runs)


def spread(steps):
    """Every fifth step from the end to the beginning, by turns with every kind of crash."""
    for kind in (Kind.SLOT, Kind.DRIVER, Kind.REFUSED):
        for point in range(steps, 0, -5):
            yield [Crash(point, kind)]


def is_caught(seed, crashes, **mode):
    try:
        return bool(run(seed, crashes, **mode).problems)
    except RuntimeError as error:
        return NEVER_ENDED in str(error)
