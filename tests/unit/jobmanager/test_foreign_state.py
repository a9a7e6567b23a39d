"""State that another user could have written is not unpickled, unless that is wanted."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.jobmanager.test_restore_decision import NEW, OLD, World

from weir.checkpoint.metadata import CheckpointMetadata, FileRecord
from weir.checkpoint.retention import CheckpointRef
from weir.checkpoint.store import write_metadata
from weir.datastream import StreamExecutionEnvironment
from weir.errors import UsageError
from weir.graph.plan import compile_plan
from weir.ids import JobId
from weir.jobmanager.foreign_state import refuse_foreign
from weir.jobmanager.origin import find_origin
from weir.jobmanager.recovery import RestorePoint, load_restore_point
from weir.jobmanager.restoration import JobSpec, Restoration
from weir.jobmanager.settings import JobSettings
from weir.testing.clock import ManualClock

NOBODY = 54_321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Snapshots:
    """A job's directory with a checkpoint that has a file of its own and a shared one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.world = World(root)
        self.chk = root / OLD / "chk-4"
        self.shared = root / OLD / "shared"
        for path in (self.chk / "own", self.shared / "theirs"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"state")
        names = ("own", "../shared/theirs")
        files = tuple(FileRecord(name, 5, zlib.crc32(b"state"), 0) for name in names)
        facts = CheckpointMetadata(4, OLD, "totals", 0, "checkpoint", 0, files=files)
        write_metadata(self.world.storage, f"{OLD}/chk-4", facts)
        for path in (root, *root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def start(self, location: Path | None = None, **settings: bool) -> None:
        place = str(location or self.chk)
        chosen = JobSettings(recovery_path=place, **settings)
        find_origin(NEW, self.world.plan(), chosen, self.world.storage, self.root)


@pytest.fixture
def found(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path / "checkpoints")


PLACES: list[Callable[[Snapshots], Path]] = [
    lambda found: found.root.parent,
    lambda found: found.root,
    lambda found: found.chk,
    lambda found: found.chk / "_metadata",
    lambda found: found.chk / "own",
    lambda found: found.chk.parent,
    lambda found: found.shared,
    lambda found: found.shared / "theirs",
]


def test_what_nobody_else_can_write_is_restored(found: Snapshots) -> None:
    found.start()
    found.start(found.chk / "_metadata")


@needs_root
@pytest.mark.parametrize("place", PLACES)
def test_what_belongs_to_another_user_is_refused(
    found: Snapshots, place: Callable[[Snapshots], Path]
) -> None:
    path = place(found)
    os.chown(path, NOBODY, -1)
    with pytest.raises(UsageError, match=rf"{path.name}' belongs to user {NOBODY}.*foreign-files"):
        found.start()
    found.start(trust_foreign_files=True)


@pytest.mark.parametrize("place", PLACES)
def test_what_everybody_can_write_is_refused(
    found: Snapshots, place: Callable[[Snapshots], Path]
) -> None:
    path = place(found)
    path.chmod(0o777)
    with pytest.raises(UsageError, match=rf"{path.name}' has mode 0777: everybody can write"):
        found.start()
    found.start(trust_foreign_files=True)


@needs_root
def test_a_group_may_write_if_it_is_the_users_own(found: Snapshots) -> None:
    found.chk.chmod(0o775)
    found.start()
    os.chown(found.chk, -1, NOBODY)
    with pytest.raises(UsageError, match=f"the group {NOBODY} can write to it"):
        found.start()


def test_a_savepoint_may_lie_in_a_sticky_directory(found: Snapshots) -> None:
    shared = found.root.parent / "savepoints"
    shared.mkdir()
    shared.chmod(0o1777)
    shutil.copytree(found.chk, shared / "savepoint-1")
    metadata = CheckpointMetadata(4, OLD, "totals", 0, "savepoint", 0)
    (shared / "savepoint-1" / "_metadata").unlink()
    write_metadata(World(shared).storage, "savepoint-1", metadata)
    found.start(shared / "savepoint-1")
    shared.chmod(0o777)
    with pytest.raises(UsageError, match="savepoints' has mode 0777"):
        found.start(shared / "savepoint-1")


def test_the_setting_is_read() -> None:
    key = "weir.recovery.foreign-files"
    assert not JobSettings.of([{}]).trust_foreign_files
    assert JobSettings.of([{key: "trust"}]).trust_foreign_files
    with pytest.raises(UsageError, match=key):
        JobSettings.of([{key: "perhaps"}])


# ---- restarts -----------------------------------------------------------------------------------


def restarted(found: Snapshots, **settings: bool) -> RestorePoint | None:
    """Choose what a restart of the job that took the checkpoints begins with."""
    env = StreamExecutionEnvironment()
    env.from_collection([1]).uid("numbers").print().uid("printed")
    graph = env.build_graph()
    plan = compile_plan(graph, 1)
    spec = JobSpec(JobId(OLD), plan, JobSettings(**settings), found.world.storage, graph)
    ref = CheckpointRef(4, f"{OLD}/chk-4")
    return Restoration(spec, ManualClock()).choose(plan, [ref], 0)


@pytest.mark.parametrize("place", PLACES)
def test_a_restart_refuses_its_own_checkpoint_that_everybody_can_write(
    found: Snapshots, place: Callable[[Snapshots], Path]
) -> None:
    point = restarted(found)
    assert point is not None
    assert point.metadata.checkpoint_id == 4
    path = place(found)
    path.chmod(0o777)
    with pytest.raises(UsageError, match=rf"{path.name}' has mode 0777.*foreign-files"):
        restarted(found)
    assert restarted(found, trust_foreign_files=True) is not None


@needs_root
@pytest.mark.parametrize("place", PLACES)
def test_a_restart_refuses_its_own_checkpoint_that_belongs_to_another_user(
    found: Snapshots, place: Callable[[Snapshots], Path]
) -> None:
    os.chown(place(found), NOBODY, -1)
    with pytest.raises(UsageError, match=f"belongs to user {NOBODY}"):
        restarted(found)


def test_a_file_that_a_copy_stands_in_for_is_not_looked_at(found: Snapshots) -> None:
    (found.chk / "own").chmod(0o666)
    point = load_restore_point(str(found.chk))
    with pytest.raises(UsageError, match="own' has mode 0666"):
        refuse_foreign(point, JobSettings())
    refuse_foreign(replace(point, damaged=("own",)), JobSettings())
