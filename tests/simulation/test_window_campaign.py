"""Windows, joins, patterns and aggregates through any crash: each record counts once.

Also the other way round: operators that are broken on purpose are caught within a few runs.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from weir.backend.timers import TimerQueue
from weir.runtime.combining import CombiningWriter
from weir.runtime.interval_join import IntervalJoin
from weir.runtime.patterns import PatternOperator
from weir.runtime.session_folding import SessionFolding
from weir.runtime.stateful import StatefulOperator
from weir.runtime.window_contents import TimedRecords
from weir.runtime.window_folding import Folding
from weir.runtime.window_groups import WindowGroups
from weir.runtime.window_operator import WindowOperator
from weir.runtime.window_slices import Slices
from weir.testing.campaign import (
    NEVER_ENDED,
    Crash,
    Kind,
    Mode,
    failures,
    random_crashes,
    run,
)
from weir.testing.campaign_programs import PLAIN, PROGRAMS
from weir.testing.campaign_scenario import Scenario

pytestmark = pytest.mark.campaign

SEEDS = int(os.environ.get("WEIR_CAMPAIGN_SEEDS", "2000")) * 3 // 40
NEW = [name for name in PROGRAMS if name != PLAIN]
MODES = list(Mode)
# Scenarios in which things go wrong, by turns with barriers that overtake.
RUNS = [
    (seed, Mode.UNALIGNED if index % 2 else Mode.ALIGNED)
    for index, seed in enumerate([2, 8, 9, 12, 15, 20, 22, 26])
]


@pytest.mark.parametrize("program", NEW)
def test_random_scenarios_with_up_to_three_crashes_give_the_right_answer(program):
    count, found = 0, []
    own = range(1 + NEW.index(program), SEEDS + 1, len(NEW))
    for index, mode in enumerate(MODES):
        for failure in failures(own[index :: len(MODES)], mode=mode, program=program):
            count += 1
            if failure is not None:
                found.append(failure)
    assert count == len(own)
    assert found == []


def test_late_records_and_refiring_windows_are_among_what_is_checked(monkeypatch):
    """Otherwise half of the checker looks at nothing."""
    lines = []
    whole = PROGRAMS["windows"]

    def looking(scenario, seen):
        lines.extend(seen.text)
        return whole.problems(scenario, seen)

    monkeypatch.setitem(PROGRAMS, "windows", replace(whole, problems=looking))
    for seed in (3, 5):
        assert run(seed, program="windows").problems == []
    found = [line.split(", (")[0] for line in lines]
    assert any(line.startswith("('late',") for line in found)
    assert any(line.startswith("('late-to-sessions',") for line in found)
    refired = [line for line in found if line.startswith("('tumbling'") and found.count(line) > 1]
    assert refired


def test_combined_rows_steps_and_windows_of_the_clock_are_among_what_is_checked(monkeypatch):
    lines, combined = [], []
    whole, combine = PROGRAMS["aggregates"], CombiningWriter._combined

    def looking(scenario, seen):
        lines.extend(seen.text)
        return whole.problems(scenario, seen)

    def counting(self, batch):
        made = combine(self, batch)
        combined.append(made is not None and made.num_rows < batch.num_rows)
        return made

    monkeypatch.setitem(PROGRAMS, "aggregates", replace(whole, problems=looking))
    monkeypatch.setattr(CombiningWriter, "_combined", counting)
    for seed in (3, 5):
        assert run(seed, program="aggregates").problems == []
    assert sum(combined) > 20
    assert any(line.startswith("('clocked',") for line in lines)
    windows = [line.split(", (")[0] for line in lines if line.startswith("('stepwise'")]
    assert len(set(windows)) < len(windows)


def is_caught(program, seed, mode):
    try:
        crashes = random_crashes(seed, 500)
        return bool(run(seed, crashes, mode=mode, program=program).problems)
    except RuntimeError as error:
        return NEVER_ENDED in str(error)


@pytest.mark.parametrize("program", NEW)
def test_what_is_not_broken_is_not_caught(program):
    assert not any(is_caught(program, *found) for found in RUNS)
    assert any(Scenario.of(seed).drain for seed, _ in RUNS)


def windows_are_not_forgotten(patch):
    patch.setattr(Folding, "_is_over", lambda self, time, last: False)


def sessions_are_not_stored(patch):
    patch.setattr(WindowOperator, "_store_sets", lambda self: self._sets.clear())
    patch.setattr(SessionFolding, "_store", lambda self, key, group, windows: None)


def sessions_of_the_epoch_are_not_in_the_checkpoint(patch):
    patch.setattr(WindowOperator, "snapshot", StatefulOperator.snapshot)


def merged_sessions_lose_what_one_of_them_held(patch):
    merge = WindowOperator._merge
    patch.setattr(
        WindowOperator, "_merge", lambda self, merged: merge(self, merged._replace(sources=[]))
    )
    patch.setattr(SessionFolding, "_move", lambda self, of_key, key, touching: None)


def windows_have_no_timers_when_they_are_restored(patch):
    patch.setattr(TimerQueue, "restore", lambda self, sources: None)


def nothing_is_ever_late(patch):
    patch.setattr(WindowOperator, "is_late", lambda self, window: False)


def late_records_are_in_the_window_and_in_the_side_output(patch):
    into = WindowOperator.into_windows

    def broken(self, value, stamp, windows):
        into(self, value, stamp, windows)
        return False

    patch.setattr(WindowOperator, "into_windows", broken)


def late_records_are_not_given_to_anybody(patch):
    patch.setattr(WindowOperator, "skipped", lambda self, value, stamp: None)


def what_was_folded_is_not_in_the_checkpoint(patch):
    def broken(self):
        if self._sets:
            self._store_sets()

    patch.setattr(WindowOperator, "_settle", broken)


@pytest.mark.parametrize(
    "sabotage",
    [
        windows_are_not_forgotten,
        sessions_are_not_stored,
        sessions_of_the_epoch_are_not_in_the_checkpoint,
        merged_sessions_lose_what_one_of_them_held,
        windows_have_no_timers_when_they_are_restored,
        nothing_is_ever_late,
        late_records_are_in_the_window_and_in_the_side_output,
        late_records_are_not_given_to_anybody,
        what_was_folded_is_not_in_the_checkpoint,
    ],
    ids=lambda f: f.__name__,
)
def test_broken_windows_are_caught(monkeypatch, sabotage):
    sabotage(monkeypatch)
    assert any(is_caught("windows", *found) for found in RUNS)


def test_event_time_that_begins_anew_after_a_restore_is_caught(monkeypatch):
    """A record that is late comes right after the restore, and opens its window again."""
    steps = run(6, program="windows").steps
    points = [i + 1 for i, step in enumerate(steps) if step == "slot 0: level 1 begins"]
    monkeypatch.setattr(StatefulOperator, "restore_watermark", lambda self, watermark: None)
    assert any(run(6, [Crash(p, Kind.SLOT)], program="windows").problems for p in points[3:])


def keyed_state_is_not_restored(patch):
    restore = StatefulOperator.restore

    def broken(self, checkpoint_id, keyed, operator, raw):
        restore(self, checkpoint_id, [], operator, raw)

    patch.setattr(StatefulOperator, "restore", broken)


def records_are_kept_for_ever(patch):
    def broken(self, watermark):
        StatefulOperator.on_watermark(self, watermark)
        self._store()

    patch.setattr(IntervalJoin, "on_watermark", broken)


def records_go_too_early(patch):
    write = IntervalJoin._write

    def broken(self, side, known, reached):
        for each in self._sides:
            each.wait = -5
        write(self, side, known, reached)

    patch.setattr(IntervalJoin, "_write", broken)


@pytest.mark.parametrize(
    "sabotage",
    [
        keyed_state_is_not_restored,
        records_are_kept_for_ever,
        records_go_too_early,
        sessions_are_not_stored,
        what_was_folded_is_not_in_the_checkpoint,
    ],
    ids=lambda f: f.__name__,
)
def test_broken_joins_are_caught(monkeypatch, sabotage):
    sabotage(monkeypatch)
    assert any(is_caught("joins", *found) for found in RUNS)


def combined_rows_count_as_one_each(patch):
    values = Slices._values
    patch.setattr(
        Slices, "_values", lambda self, batch, field, weights: values(self, batch, field, None)
    )


def combined_rows_but_the_first_are_lost(patch):
    combined = CombiningWriter._combined

    def broken(self, batch):
        made = combined(self, batch)
        return None if made is None else made.slice(0, 1)

    patch.setattr(CombiningWriter, "_combined", broken)


def groups_forget_what_their_windows_hold(patch):
    patch.setattr(WindowGroups, "_merged", lambda self, values, held, new: values)


def groups_set_no_timers(patch):
    patch.setattr(WindowGroups, "_register", lambda self, namespace, group, addresses, new: None)


def evicted_records_come_twice(patch):
    patch.setattr(
        TimedRecords,
        "add",
        lambda self, value, timestamp: self.state.add_all([(value, timestamp)] * 2),
    )


def windows_are_empty_once_they_fired(patch):
    follow = WindowOperator._follow

    def broken(self, result, window, spaces, stamp):
        follow(self, result, window, spaces, stamp)
        if result.is_fire():
            self.current.namespace = spaces[1]
            self.contents.clear()

    patch.setattr(WindowOperator, "_follow", broken)


@pytest.mark.parametrize(
    "sabotage",
    [
        keyed_state_is_not_restored,
        windows_have_no_timers_when_they_are_restored,
        combined_rows_count_as_one_each,
        combined_rows_but_the_first_are_lost,
        groups_forget_what_their_windows_hold,
        groups_set_no_timers,
        evicted_records_come_twice,
        windows_are_empty_once_they_fired,
    ],
    ids=lambda f: f.__name__,
)
def test_broken_aggregates_are_caught(monkeypatch, sabotage):
    sabotage(monkeypatch)
    assert any(is_caught("aggregates", *found) for found in RUNS)


def events_that_wait_are_not_in_the_checkpoint(patch):
    patch.setattr(PatternOperator, "snapshot", StatefulOperator.snapshot)


def partial_matches_are_not_stored(patch):
    patch.setattr(PatternOperator, "_remember", lambda self, stored: None)


@pytest.mark.parametrize(
    "sabotage",
    [
        keyed_state_is_not_restored,
        windows_have_no_timers_when_they_are_restored,
        events_that_wait_are_not_in_the_checkpoint,
        partial_matches_are_not_stored,
    ],
    ids=lambda f: f.__name__,
)
def test_broken_patterns_are_caught(monkeypatch, sabotage):
    sabotage(monkeypatch)
    assert any(is_caught("patterns", *found) for found in RUNS)
