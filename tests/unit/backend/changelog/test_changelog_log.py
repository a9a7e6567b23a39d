"""The log and its files: what is merged, what is written again, and who deletes what."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from weir.backend.changelog.log import ChangeLog, merge_start
from weir.backend.changelog.pieces import Piece, Usage
from weir.backend.changes import StateChanges
from weir.backend.delta import GroupDelta
from weir.backend.group_format import AddressTypes, GroupFormat
from weir.backend.kinds import StateKind
from weir.common.typeinfo import Types
from weir.errors import StorageError
from weir.testing.background import ManualBackground
from weir.testing.checkpoint_world import MemoryFiles

FORMAT = GroupFormat.of(StateKind.VALUE, AddressTypes(Types.STRING()), Types.LONG())


def change(**values: int) -> list[StateChanges]:
    return [StateChanges("v", StateKind.VALUE, FORMAT, {0: GroupDelta(put=dict(values))})]


def log_with(limit: int = 1000) -> tuple[ChangeLog, MemoryFiles]:
    files = MemoryFiles()
    return ChangeLog(files, attempts=1, limit=limit), files


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ([5], 100, 0),
        ([5, 5], 100, 0),
        ([6, 5], 100, 1),
        ([10, 5, 5], 100, 0),
        ([10, 6, 5], 100, 2),
        ([20, 10, 5, 5], 100, 0),
        ([60, 60], 100, 1),
        ([50, 50], 100, 0),
        ([1, 200], 100, 1),
    ],
)
def test_segments_are_merged_with_younger_ones_of_their_size(
    sizes: list[int], limit: int, expected: int
) -> None:
    assert merge_start(sizes, limit) == expected


def test_many_small_checkpoints_make_few_segments() -> None:
    log, _ = log_with(limit=1 << 20)
    replaced = 0
    for number in range(1000):
        log.append(change(a=number))
        replaced += len(log.close_segment())
    assert len(log.segments) <= 12
    assert replaced + len(log.segments) == 1000
    (first, *_, last) = log.segments
    assert (first.begin, last.end) == (0, 1000)


def test_segments_do_not_grow_beyond_the_limit_nor_stay_in_memory() -> None:
    log, _ = log_with(limit=300)
    for number in range(200):
        log.append(change(a=number))
        log.close_segment()
    assert max(segment.size for segment in log.segments) <= 300
    in_memory = [s.size for s in log.segments if s.batch is not None]
    assert sum(in_memory) <= 300


def test_a_cut_separates_what_is_truncated_from_what_stays() -> None:
    log, _ = log_with()
    log.append(change(b=1))
    cut, _ = log.cut()
    before = [s.piece for s in log.segments]
    log.append(change(c=1))
    assert log.close_segment() == []
    after = log.segments[-1].piece
    assert log.truncate(cut) == before
    assert [s.piece for s in log.segments] == [after]
    assert log.clear() == [after]
    assert log.segments == []


def test_a_whole_state_in_the_log_replaces_what_was_logged_before() -> None:
    log, files = log_with()
    log.append(change(a=1))
    whole = GroupDelta(put={"b": 2})
    log.append([StateChanges("v", StateKind.VALUE, FORMAT, {1: whole}, whole=True)])
    log.append(change(c=3))
    log.close_segment()
    log.segments[0].piece.make()
    (data,) = files.files.values()
    assert data.count(b"WEIRSNP") == 2
    state = log.segments[0].batch
    assert state is not None
    groups = state.states["v"].groups
    assert {g: [p.whole for p in parts] for g, parts in groups.items()} == {1: [True], 0: [False]}


def piece_of(files: MemoryFiles, attempts: int = 1, *, once: bool = False) -> Piece:
    return Piece(files, lambda writer: {}, attempts=attempts, once=once)


def test_a_piece_is_made_once_however_many_need_it() -> None:
    files = MemoryFiles()
    piece = piece_of(files)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(piece.make())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files.made == 1
    assert len({handle.path for handle in found}) == 1


def test_a_piece_is_tried_as_often_as_allowed_and_again_when_asked_again() -> None:
    files = MemoryFiles()
    files.failures = 4
    piece = piece_of(files, attempts=3)
    with pytest.raises(OSError, match="out of order"):
        piece.make()
    assert not piece.made
    assert piece.error is not None
    piece.make()
    assert piece.made
    assert piece.error is None


def test_a_piece_that_can_be_written_once_stays_failed() -> None:
    files = MemoryFiles()
    files.failures = 1
    piece = piece_of(files, once=True)
    with pytest.raises(OSError, match="out of order"):
        piece.make()
    with pytest.raises(StorageError, match="out of order"):
        piece.make()


def test_a_dropped_piece_leaves_no_file_whenever_it_is_dropped() -> None:
    files = MemoryFiles()
    before = piece_of(files)
    before.drop()
    with pytest.raises(StorageError, match="nobody needs it"):
        before.make()
    after = piece_of(files)
    after.make()
    after.drop()
    after.drop()
    assert files.files == {}
    during = Piece(files, lambda writer: during.drop() or {}, attempts=1)  # type: ignore[func-returns-value]
    during.make()
    assert files.made == 2
    assert files.files == {}


def test_pieces_are_deleted_when_no_checkpoint_can_need_them() -> None:
    files, background = MemoryFiles(), ManualBackground(inline=True)
    usage = Usage(background.submit)
    shared, alone, kept = piece_of(files), piece_of(files), piece_of(files)
    for piece in (shared, alone, kept):
        piece.make()
    usage.taken(1, [shared, kept])
    usage.taken(2, [shared])
    usage.retire([shared, alone, kept])
    assert len(files.files) == 2
    usage.completed(1)
    usage.aborted(2)
    assert len(files.files) == 2
    usage.aborted(99)
    usage.completed(99)
    assert (shared.kept, kept.kept, alone.kept) == (True, True, False)


def test_pieces_of_aborted_checkpoints_wait_for_the_last_of_them() -> None:
    files = MemoryFiles()
    usage = Usage(ManualBackground(inline=True).submit)
    piece = piece_of(files)
    piece.make()
    usage.taken(1, [piece])
    usage.taken(2, [piece])
    usage.aborted(1)
    usage.retire([piece])
    assert len(files.files) == 1
    usage.aborted(2)
    assert files.files == {}
