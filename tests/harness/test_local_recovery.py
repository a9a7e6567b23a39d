"""Local recovery: copies on the slots' hosts stand in for the files of the newest checkpoint."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.harness.test_checkpoints_shared import expected, job, output

from weir.checkpoint.paths import resolve
from weir.checkpoint.retention import JobEnd
from weir.checkpoint.store import list_completed, load_checkpoint
from weir.common.job_status import JobStatus
from weir.errors import CorruptStateError, StorageError
from weir.jobmanager.recovery import BehindCommits
from weir.jobmanager.settings import LocalRecovery, StateFileSettings
from weir.slot.copies import CopyStream, MissingCopyError
from weir.storage.memory import MemoryStorage
from weir.testing.campaign_backends import BACKENDS
from weir.testing.faulty_storage import FaultyStorage
from weir.testing.harness_slots import Hooks

pytestmark = pytest.mark.matrix
every_kind = pytest.mark.parametrize("kind", list(BACKENDS))
every_damage = pytest.mark.parametrize("how", ["flipped", "cut", "missing"])


def damage(storage, path, how="flipped"):
    data = storage.read(path)
    storage.delete(path)
    if how == "flipped":
        storage.create(path, data[:-9] + bytes([data[-9] ^ 4]) + data[-8:])
    elif how == "cut":
        storage.create(path, data[:-1])


class World:
    """A job with local recovery, after four checkpoints."""

    def __init__(self, tmp_path, kind="hashmap", parallelism=2, *, dirs=("copies",), **options):
        self.dirs = [tmp_path / name for name in dirs]
        local = LocalRecovery(backup=True, restore=True, dirs=tuple(map(str, self.dirs)))
        options.setdefault("storage", MemoryStorage())
        self.job = job(kind, parallelism, local=local, **options)
        self.storage = self.job.options.storage
        for _ in range(4):
            self.job.run_epoch(take=5, checkpoint=True)

    @property
    def newest(self):
        return list_completed(self.storage, self.job.job_id)[0]

    def files(self):
        """Return where the files of the newest checkpoint are."""
        found = self.newest
        names = {f.path for f in found.metadata.files if f.data is None}
        return sorted(resolve(found.directory, name) for name in names)

    def roots(self):
        return [root for place in self.dirs if place.is_dir() for root in place.iterdir()]

    def copies(self, number):
        roots = self.roots()
        return sorted(p for root in roots for p in root.glob(f"chk-{number}/*"))

    def damage_all(self, how="flipped"):
        for path in self.files():
            damage(self.storage, path, how)

    def fail_over(self, slot=0):
        self.job.kill_slot(slot)
        self.job.fail_over()

    def assert_tidy(self):
        """Copies are exactly those of the newest checkpoint, and of a log that goes on."""
        number = self.newest.metadata.checkpoint_id
        names = sorted(path.rsplit("/", 1)[-1] for path in self.files())
        assert [copy.name for copy in self.copies(number)] == names
        for root in self.roots():
            found = {path.name for path in root.iterdir() if path.is_dir() and any(path.iterdir())}
            fresh = {f"s{s.subtask}a{s.attempt}" for s in self.job.slots.slots}
            assert found - fresh <= {f"chk-{number}"}
            if not self.job.options.backend.changelog:
                assert found & fresh == set()

    def assert_restored(self, number=4):
        assert self.job.epoch == number
        assert self.job.supervisor.restoration.point.metadata.checkpoint_id == number


@every_kind
@every_damage
def test_damaged_files_of_the_newest_checkpoint_cost_nothing(tmp_path, caplog, kind, how):
    world = World(tmp_path, kind)
    world.assert_tidy()
    own = world.files()[0]
    world.damage_all(how)
    copy = next(path for path in world.copies(4) if own.endswith(path.name))
    world.fail_over()
    world.assert_restored()
    assert "falling back" not in caplog.text
    assert "checkpoint 4 is restored with local copies" in caplog.text
    used = [r.getMessage() for r in caplog.records if "is used instead" in r.getMessage()]
    assert any(own in text and str(copy) in text for text in used)
    assert output(world.job.run(take=7)) == expected()
    assert world.roots() == []


@every_kind
def test_a_checkpoint_behind_a_damaged_one_does_not_refer_to_what_is_damaged(tmp_path, kind):
    world = World(tmp_path, kind)
    before = set(world.files())
    world.damage_all()
    world.fail_over()
    world.job.run_epoch(take=3, checkpoint=True)
    assert not before & set(world.files())
    for copy in world.copies(5):
        copy.unlink()
    world.fail_over(1)
    world.assert_restored(5)
    assert output(world.job.run(take=7)) == expected()


@pytest.mark.parametrize("how", ["flipped", "cut", "missing", "a newer version"])
@pytest.mark.parametrize("inline", [0, 1 << 20], ids=["files", "all in the metadata"])
def test_damaged_metadata_costs_nothing(tmp_path, caplog, how, inline):
    world = World(tmp_path, state_files=StateFileSettings(inline))
    path = f"{world.newest.directory}/_metadata"
    if how == "a newer version":
        data = world.storage.read(path)
        world.storage.delete(path)
        world.storage.create(path, data.replace(b"weir-metadata ", b"weir-metadata 9", 1))
    else:
        damage(world.storage, path, how)
    world.fail_over()
    world.assert_restored()
    assert "checkpoint 4 is restored with local copies" in caplog.text
    assert output(world.job.run(take=7)) == expected()


class Watched(Hooks):
    """Notes what slots read of the storage, and acts before an attempt."""

    def __init__(self):
        self.read = []
        self.before_attempt = lambda: None

    def step(self, label):
        if label == "before BeginAttempt":
            self.before_attempt()

    def storage(self, inner, slot):
        return inner if slot is None else _Reading(inner, self.read)


class _Reading:
    def __init__(self, inner, read):
        self._inner, self._read = inner, read

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def read_range(self, path, offset, length):
        self._read.append(path)
        return self._inner.read_range(path, offset, length)


@every_kind
def test_slots_read_copies_instead_of_the_storage(tmp_path, caplog, kind):
    hooks = Watched()
    world = World(tmp_path, kind, hooks=hooks)
    for number in (4, 5):
        world.fail_over()
        world.assert_restored(number)
        assert hooks.read == []
        world.job.run_epoch(take=3, checkpoint=True)
        world.assert_tidy()
    assert output(world.job.run(take=7)) == expected()
    assert "copies" not in caplog.text


@pytest.mark.parametrize(
    ("dirs", "how"),
    [(("copies",), None), (("copies",), "flipped"), (("a", "b", "c"), None), ("abc", "missing")],
    ids=["whole", "flipped", "whole in three places", "missing in three places"],
)
@every_kind
def test_a_rescaled_job_reads_copies_of_other_subtasks(tmp_path, kind, dirs, how):
    hooks = Watched()
    world = World(tmp_path, kind, dirs=dirs, hooks=hooks)
    for parallelism in (3, 1):
        if how is not None:
            hooks.before_attempt = lambda: world.damage_all(how)
        asked = world.job.control.rescale(parallelism)
        world.job.turn_until(asked.done)
        assert asked.result() == parallelism
        hooks.before_attempt = lambda: None
        assert hooks.read == []
        world.job.run_epoch(take=3, checkpoint=True)
        world.job.run_epoch(take=3, checkpoint=True)
        world.assert_tidy()
    assert output(world.job.run(take=7)) == expected()


@every_kind
def test_without_its_directory_a_job_reads_the_checkpoint(tmp_path, caplog, kind):
    hooks = Watched()
    world = World(tmp_path, kind, hooks=hooks)
    for root in world.roots():
        remove(root)
    world.fail_over()
    world.assert_restored()
    assert set(hooks.read) == set(world.files())
    world.job.run_epoch(take=3, checkpoint=True)
    hooks.read.clear()
    world.fail_over()
    world.assert_restored(5)
    assert output(world.job.run(take=7)) == expected()
    assert "falling back" not in caplog.text


def remove(path):
    for inside in path.iterdir():
        if inside.is_dir():
            remove(inside)
        else:
            inside.unlink()
    path.rmdir()


@pytest.mark.parametrize("how", ["flipped", "cut"])
@every_kind
def test_a_copy_that_is_damaged_itself_is_ignored_with_a_warning(tmp_path, caplog, kind, how):
    world = World(tmp_path, kind)
    for copy in world.copies(4):
        data = copy.read_bytes()
        copy.unlink()
        flipped = bytes([data[0] ^ 1]) + data[1:]
        copy.write_bytes(flipped if how == "flipped" else data[:-3])
    world.fail_over()
    world.assert_restored()
    assert f"the copy {str(world.copies(4)[0])!r} is not used" in caplog.text
    assert output(world.job.run(take=7)) == expected()


@pytest.mark.parametrize("behind", [BehindCommits.REFUSE, BehindCommits.REPEAT])
def test_what_is_damaged_twice_is_judged_as_without_copies(tmp_path, caplog, behind):
    world = World(tmp_path, retained=2, behind_commits=behind)
    damage(world.storage, world.files()[0])
    for copy in world.copies(4):
        copy.write_bytes(copy.read_bytes() + b"!")
    if behind is BehindCommits.REFUSE:
        with pytest.raises(CorruptStateError, match="checkpoint 4 cannot be used"):
            world.fail_over()
        assert world.job.supervisor.job.status is JobStatus.FAILED
        assert world.roots() == [], "a job that failed leaves no copies"
    else:
        world.fail_over()
        world.assert_restored(3)
        assert "falling back to checkpoint 3" in caplog.text


@every_kind
def test_on_other_hosts_the_slots_find_the_copies_themselves(tmp_path, caplog, kind):
    world = World(tmp_path, kind, one_host=False)
    world.damage_all()
    world.fail_over()
    world.assert_restored()
    assert "is used instead" in caplog.text
    assert output(world.job.run(take=7)) == expected()


@pytest.mark.parametrize("how", ["flipped", "missing"])
def test_on_other_hosts_a_slot_without_a_copy_says_so_before_anybody_goes_back(
    tmp_path, caplog, how
):
    options = {"one_host": False, "retained": 2, "behind_commits": BehindCommits.REPEAT}
    world = World(tmp_path, **options)
    world.damage_all(how)
    for copy in world.copies(4):
        copy.unlink()
    with pytest.raises(MissingCopyError, match="this host has no whole copy of it"):
        world.fail_over()
    assert "falling back" not in caplog.text
    if how == "missing":
        with pytest.raises(StorageError, match="is the storage mounted"):
            world.job.fail_over()
        world.job.clock.advance(10**9)
    world.job.fail_over()
    world.assert_restored(3)
    assert "falling back to checkpoint 3" in caplog.text


@every_kind
def test_newer_checkpoints_replace_copies_and_savepoints_do_not(tmp_path, kind):
    world = World(tmp_path, kind)
    for number in range(5, 8):
        world.job.run_epoch(take=3, checkpoint=True)
        assert world.newest.metadata.checkpoint_id == number
        world.assert_tidy()
    before = world.copies(7)
    world.job.runner.savepoint("memory://local-recovery/savepoint-1")
    world.job.run_epoch(take=3)
    assert world.copies(7) == before
    assert world.copies(8) == []
    world.damage_all()
    world.fail_over()
    world.assert_restored(7)


@every_kind
@pytest.mark.parametrize("fails", ["create", "open_write"])
def test_aborted_checkpoints_leave_no_copies(tmp_path, kind, fails):
    storage = FaultyStorage(MemoryStorage())
    world = World(tmp_path, kind, storage=storage, tolerable=5)
    for _ in range(3):
        storage.fail_next(fails)
        world.job.run_epoch(take=4, checkpoint=True)
        world.assert_tidy()
        world.job.run_epoch(take=4, checkpoint=True)
        world.assert_tidy()
    world.damage_all()
    world.fail_over()
    assert output(world.job.run()) == expected()


@every_kind
def test_copies_that_are_made_late_are_dropped_if_nobody_waits(tmp_path, kind):
    world = World(tmp_path, kind, tolerable=5)
    world.job.slots._settings = replace(world.job.slots._settings, deferred=True)
    world.job.run_epoch(take=4, checkpoint=True)
    world.job.clock.advance(10**7)
    world.job.runner.expire()
    world.job.run_async()
    world.assert_tidy()
    world.job.run_epoch(take=4, checkpoint=True)
    world.job.run_async()
    world.assert_tidy()


@pytest.mark.parametrize("end", [JobEnd.CANCELED, JobEnd.FAILED])
def test_the_end_of_a_job_removes_its_copies(tmp_path, end):
    world = World(tmp_path, dirs=("a", "b"))
    assert len(world.roots()) == 2
    world.job.end(end)
    assert world.roots() == []


def test_a_killed_driver_leaves_copies_that_the_next_start_removes(tmp_path):
    world = World(tmp_path)
    (root,) = world.roots()
    world.job.gone = True
    owner = root / "_owner"
    owner.write_text(owner.read_text().replace('"pid": ', '"pid": 99999999'))
    other = World(tmp_path)
    assert len(other.roots()) == 1
    assert root not in other.roots()


def test_directories_are_private_and_their_names_cannot_be_guessed(tmp_path):
    names = set()
    for _ in range(2):
        world = World(tmp_path)
        (root,) = world.roots()
        assert root.stat().st_mode & 0o777 == 0o700
        names.add(root.name)
        world.job.end(JobEnd.CANCELED)
    assert len(names) == 2
    assert all(len(name) >= 32 for name in names)


def test_a_directory_that_others_write_to_is_not_used(tmp_path, caplog):
    world = World(tmp_path)
    (root,) = world.roots()
    root.chmod(0o777)
    world.fail_over()
    world.assert_restored()
    assert "is not safe to use" in caplog.text
    assert output(world.job.run(take=7)) == expected()


def test_a_place_that_cannot_be_written_costs_a_warning_and_no_checkpoint(tmp_path, caplog):
    (tmp_path / "copies").write_text("a file")
    world = World(tmp_path)
    assert f"no local copies in {str(tmp_path / 'copies')!r}" in caplog.text
    assert world.newest.metadata.checkpoint_id == 4
    assert output(world.job.run(take=7)) == expected()


@contextmanager
def full_disk(monkeypatch):
    """Let every write to a copy fail, as a disk without space does."""

    def refuse(self, data):
        self._give_up(OSError(28, "No space left on device"))
        return len(data)

    with monkeypatch.context() as patched:
        patched.setattr(CopyStream, "write", refuse)
        yield


@every_kind
def test_a_full_disk_costs_copies_and_no_checkpoint(tmp_path, monkeypatch, caplog, kind):
    world = World(tmp_path, kind)
    with full_disk(monkeypatch):
        world.job.run_epoch(take=5, checkpoint=True)
    assert world.newest.metadata.checkpoint_id == 5
    world.fail_over()
    world.assert_restored(5)
    assert output(world.job.run(take=7)) == expected()


def test_without_local_recovery_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    harness = job("hashmap-incremental")
    harness.run_epoch(take=5, checkpoint=True)
    harness.kill_slot(0)
    harness.fail_over()
    assert list(tmp_path.iterdir()) == []
    assert (
        harness.supervisor.restoration.stand_ins.metadata(harness.runner.coordinator.completed[0])
        is None
    )


def test_copies_that_are_not_to_be_read_are_not(tmp_path):
    hooks = Watched()
    local = LocalRecovery(backup=True, dirs=(str(tmp_path),))
    harness = job("hashmap", local=local, hooks=hooks)
    harness.run_epoch(take=5, checkpoint=True)
    assert list(tmp_path.glob("*/chk-1/state-*"))
    harness.kill_slot(0)
    harness.fail_over()
    assert hooks.read
    newest = load_checkpoint(harness.options.storage, f"{harness.job_id}/chk-1")
    damage(harness.options.storage, f"{harness.job_id}/chk-1/{newest.files[0].path}")
    with pytest.raises(CorruptStateError):
        harness.fail_over()
