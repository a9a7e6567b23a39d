"""Savepoints of windows, joins and patterns that were written once are resumed from for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.golden.write_savepoints import HERE, folder_of
from tests.harness.programs import started
from tests.harness.surviving import HALF, SUBJECTS, in_order, program, undisturbed
from tests.harness.test_savepoints import SETTINGS
from tests.harness.test_window_joins import PAIR, grouped

from weir.checkpoint.store import load_checkpoint
from weir.errors import WeirError
from weir.jobmanager.recovery import RestorePoint
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import settings_of
from weir.testing.harness import HarnessOptions, JobHarness

EARLIER_JOIN = "earlier-co-group"


def resumed(env, folder: Path, tmp_path: Path, backend: str = "hashmap") -> JobHarness:
    """Return a job that has not yet begun, from a copy of a savepoint."""
    shutil.copytree(folder, tmp_path / "sp")
    storage = LocalStorage(str(tmp_path))
    point = RestorePoint(storage.uri, "sp", load_checkpoint(storage, "sp"))
    options = HarnessOptions(storage=storage, backend=settings_of(backend), checkpoints=SETTINGS)
    return JobHarness(env.build_graph(), 3, options, point)


def test_every_program_has_a_golden_savepoint_and_every_savepoint_a_program() -> None:
    found = {path.name for path in HERE.iterdir()}
    assert found == {*(folder_of(subject).name for subject in SUBJECTS), EARLIER_JOIN}
    sizes = [path.stat().st_size for path in HERE.glob("*/*")]
    assert max(sizes) < 16 << 10


@pytest.mark.matrix
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_golden_savepoint_goes_on_to_the_right_answer(subject: str, tmp_path: Path) -> None:
    before = started(program(subject))
    before.run_epoch(take=HALF)
    before.end_slots()
    later = resumed(program(subject), folder_of(subject), tmp_path).start().run(6)
    assert in_order([*before.collected(), *later.collected()]) == undisturbed(subject)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_the_pickled_contents_of_earlier_joins_are_read(backend: str, tmp_path: Path) -> None:
    """They are (side, record), written before both streams' types were stored."""
    job = resumed(grouped(None), HERE / EARLIER_JOIN, tmp_path, backend).start().run()
    assert in_order(job.collected()) == in_order(
        [([0, 1, 2], [0, 1]), ([3, 4, 5], [3]), ([6, 7, 8], []), ([], [6, 7, 8])]
    )


def test_the_contents_of_earlier_joins_do_not_fit_declared_types(tmp_path: Path) -> None:
    job = resumed(grouped(PAIR), HERE / EARLIER_JOIN, tmp_path)
    with pytest.raises(WeirError, match=r"_window_contents.*stored without a declared type"):
        job.start()
