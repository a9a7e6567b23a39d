"""Disposal: what goes, what stays, what is refused, and what an interruption leaves."""

from __future__ import annotations

import json
import os
import socket
import zlib
from pathlib import Path

import pytest

from weir.checkpoint.metadata import (
    CheckpointMetadata,
    FileRecord,
    SourceLayout,
    SourcePositions,
    encode_metadata,
)
from weir.checkpoint.store import load_checkpoint, verify_files, write_metadata
from weir.errors import CorruptStateError, IncompatibleStateError, StorageError, UsageError
from weir.jobmanager.directory import JobEntry, publish
from weir.jobmanager.disposal import apply_disposal, dispose_savepoint, location_of
from weir.jobmanager.owner import claim
from weir.storage.local import LocalStorage
from weir.storage.processes import process_started
from weir.testing.faulty_storage import CrashMoment, FaultPlan, FaultyStorage, SimulatedCrash

OLD, NEW = "0" * 31 + "a", "0" * 31 + "b"


@pytest.fixture(autouse=True)
def _run_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path / "root"))


def put(storage, path, data=b"state"):
    storage.create(path, data)
    return data


def record(storage, directory, path, data=b"state"):
    full = os.path.normpath(f"{directory}/{path}")
    if not storage.exists(full):
        put(storage, full, data)
    return FileRecord(path, len(data), zlib.crc32(data), 0)


def savepoint(storage, directory="savepoint-aaaaaa-0123456789ab", **facts):
    own = record(storage, directory, "state-s0-a0-01")
    inline = FileRecord("state-s1-a0-02", 2, zlib.crc32(b"in"), 1, b"in")
    facts = {"job_id": OLD, "kind": "savepoint", "files": (own, inline), **facts}
    metadata = CheckpointMetadata(
        checkpoint_id=7, job_name="payments", timestamp_ms=0, epoch=3, **facts
    )
    write_metadata(storage, directory, metadata)
    return f"{storage.root}/{directory}"


def checkpoint(storage, number, *shared, job=OLD):
    """Make a checkpoint that has a file of its own and uses shared ones of the old job."""
    directory = f"{job}/chk-{number}"
    above = "../shared" if job == OLD else f"../../{OLD}/shared"
    files = [record(storage, directory, f"state-s0-a0-{number:02}")]
    files += [record(storage, directory, f"{above}/state-s0-a0-{name}") for name in shared]
    metadata = CheckpointMetadata(number, job, "job", 0, "checkpoint", 1, files=tuple(files))
    write_metadata(storage, directory, metadata)
    return f"{storage.root}/{directory}"


def announce(job=NEW, **facts):
    pid = os.getpid()
    publish(
        JobEntry(
            job_id=job,
            name="payments",
            pid=pid,
            process=process_started(pid),
            url="http://localhost:1",
            started_ms=0,
            **facts,
        )
    )


def files(storage):
    root = Path(storage.root)
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


@pytest.mark.parametrize("spelling", ["{}", "{}/", "{}/_metadata", "file://{}"])
def test_a_savepoint_goes_by_each_of_its_names(storage, spelling):
    path = savepoint(storage)
    other = savepoint(storage, "savepoint-aaaaaa-other")
    before = {p: p.read_bytes() for p in Path(other).iterdir()}
    dispose_savepoint(spelling.format(path))
    assert not Path(path).exists()
    assert {p: p.read_bytes() for p in Path(other).iterdir()} == before


def test_a_relative_path_names_a_savepoint_too(storage, monkeypatch):
    path = Path(savepoint(storage))
    monkeypatch.chdir(path.parent)
    dispose_savepoint(path.name)
    assert not path.exists()


def test_remains_of_torn_writes_go_with_the_savepoint(storage):
    path = savepoint(storage)
    (Path(path) / ".state-s0-a0-03.x.tmp").write_bytes(b"torn")
    put(storage, "savepoint-aaaaaa-0123456789ab/state-s0-a0-0e", b"acknowledged too late")
    dispose_savepoint(path)
    assert not Path(path).exists()


def test_files_that_do_not_belong_to_the_savepoint_stay_and_are_named(storage, caplog):
    path = savepoint(storage)
    (Path(path) / "notes.txt").write_text("mine")
    (Path(path) / "more").mkdir()
    (Path(path) / "more" / "_metadata").write_text("mine too")
    dispose_savepoint(path)
    assert sorted(p.name for p in Path(path).iterdir()) == ["more", "notes.txt"]
    assert (Path(path) / "more" / "_metadata").read_text() == "mine too"
    assert "['more', 'notes.txt'] in it did not belong to it and stay" in caplog.text


def test_a_retained_checkpoint_takes_the_shared_files_that_only_it_used(storage):
    checkpoint(storage, 4, "a1", "b2")
    path = checkpoint(storage, 5, "b2", "c3")
    dispose_savepoint(path)
    assert files(storage) == [
        f"{OLD}/chk-4/_metadata",
        f"{OLD}/chk-4/state-s0-a0-04",
        f"{OLD}/shared/state-s0-a0-a1",
        f"{OLD}/shared/state-s0-a0-b2",
    ]


def test_shared_files_that_a_later_job_uses_stay(storage):
    checkpoint(storage, 9, "c3", job=NEW)
    dispose_savepoint(checkpoint(storage, 5, "b2", "c3"))
    assert [f for f in files(storage) if "shared" in f] == [f"{OLD}/shared/state-s0-a0-c3"]


def test_a_checkpoint_of_a_later_job_takes_the_earlier_jobs_files_when_it_was_the_last(storage):
    dispose_savepoint(checkpoint(storage, 9, "c3", job=NEW))
    assert files(storage) == []


def test_shared_files_stay_when_a_checkpoint_beside_cannot_be_read(storage, caplog):
    checkpoint(storage, 4, "a1")
    header, _, body = storage.read(f"{OLD}/chk-4/_metadata").partition(b"\n")
    storage.delete(f"{OLD}/chk-4/_metadata")
    storage.create(f"{OLD}/chk-4/_metadata", b"weir-metadata 9" + header[15:] + b"\n" + body)
    path = checkpoint(storage, 5, "b2")
    dispose_savepoint(path)
    assert not Path(path).exists()
    assert storage.exists(f"{OLD}/shared/state-s0-a0-b2")
    assert "shared files of" in caplog.text


# ---- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "hint"),
    [
        (lambda root: None, "found nothing"),
        (lambda root: (root / "it").mkdir(parents=True), "found nothing"),
        (lambda root: put(LocalStorage(str(root)), "it"), "found a file"),
        (
            lambda root: put(LocalStorage(str(root)), "it/state-s0-a0-01"),
            "found ['state-s0-a0-01']",
        ),
        (lambda root: savepoint(LocalStorage(str(root)), "it/savepoint-1"), "such as savepoint-1"),
        (lambda root: savepoint(LocalStorage(str(root)), "it/chk-3"), "such as chk-3"),
    ],
    ids=["nothing", "empty", "file", "no metadata", "savepoints beneath", "checkpoints beneath"],
)
def test_a_path_without_a_savepoint_is_refused_with_what_lies_there(tmp_path, made, hint):
    made(tmp_path / "root")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="there is no checkpoint or savepoint at") as refusal:
        dispose_savepoint(str(tmp_path / "root" / "it"))
    assert hint in str(refusal.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_savepoint_of_a_newer_format_is_left_alone(storage):
    path = savepoint(storage)
    metadata = Path(path) / "_metadata"
    metadata.write_bytes(metadata.read_bytes().replace(b"weir-metadata 4", b"weir-metadata 5", 1))
    before = files(storage)
    with pytest.raises(IncompatibleStateError, match=r"its format is 5.* upgrade Weir"):
        dispose_savepoint(path)
    assert files(storage) == before


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b.replace(b"payments", b"PAYMENTS")]
)
def test_a_savepoint_with_damaged_metadata_is_left_to_hands(storage, damage):
    path = savepoint(storage)
    metadata = Path(path) / "_metadata"
    metadata.write_bytes(damage(metadata.read_bytes()))
    before = files(storage)
    with pytest.raises(CorruptStateError, match=r"delete the directory .*savepoint.* by hand"):
        dispose_savepoint(path)
    assert files(storage) == before


@pytest.mark.parametrize("spelling", ["{}", "file://{}/_metadata", "{}/../{name}/"])
def test_what_a_running_job_still_needs_is_refused(storage, spelling):
    path = savepoint(storage)
    announce(uses=(spelling.format(path, name=Path(path).name),))
    with pytest.raises(UsageError, match=rf"in use: the running job 'payments' \({NEW}\)"):
        dispose_savepoint(path)
    assert load_checkpoint(storage, Path(path).name)


def test_it_may_go_once_the_job_has_ended_or_needs_it_no_more(storage):
    path = savepoint(storage)
    announce(uses=())
    announce(OLD, uses=(path,), status="FINISHED")
    dispose_savepoint(path)
    assert not Path(path).exists()


def test_a_checkpoint_of_a_running_job_is_refused_and_its_savepoint_is_not(storage):
    path, mine = checkpoint(storage, 5, "b2"), savepoint(storage)
    announce(OLD)
    with pytest.raises(UsageError, match="is a checkpoint of the running job 'payments'"):
        dispose_savepoint(path)
    assert verify_files(storage, f"{OLD}/chk-5", load_checkpoint(storage, f"{OLD}/chk-5")) == []
    dispose_savepoint(mine)


def test_a_checkpoint_of_a_job_that_may_run_on_another_host_is_refused(storage):
    path = checkpoint(storage, 5, "b2")
    job = Path(path).parent
    claim(job)
    owner = json.loads((job / "_owner").read_text())
    (job / "_owner").write_text(json.dumps({**owner, "host": socket.gethostname() + "-other"}))
    with pytest.raises(UsageError, match=r"may still run.*delete .*_owner"):
        dispose_savepoint(path)
    (job / "_owner").unlink()
    dispose_savepoint(path)
    assert not Path(path).exists()


def test_two_spellings_of_one_place_are_one_location(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    spellings = ["real/sp", "real/sp/_metadata", "link/sp", "real/./sp/"]
    found = {location_of(f"{tmp_path}/{s}") for s in spellings}
    assert found | {location_of(f"file://{tmp_path}/real/sp")} == {f"{tmp_path}/real/sp"}
    assert location_of(f"{tmp_path}/real/sp2") not in found


# ---- metadata that somebody else wrote, and links ----------------------------------------------


def planted(root, *names, own=("state-s0-a0-01",)):
    """Make a checkpoint directory as a stranger would: valid metadata, names of his choice."""
    directory = Path(root) / OLD / "chk-1"
    directory.mkdir(parents=True)
    wanted = (*own, *names)
    records = tuple(FileRecord(f"placeholder-{n}", 1, 0, 0) for n in range(len(wanted)))
    metadata = CheckpointMetadata(1, OLD, "job", 0, "checkpoint", 1, files=records)
    # The encoder would refuse some of the names.
    header, _, body = encode_metadata(metadata).partition(b"\n")
    for number, name in enumerate(wanted):
        body = body.replace(b'"placeholder-%d"' % number, json.dumps(name).encode())
    version = header.split(b" ")[1]
    head = b"weir-metadata %s %08x %d\n" % (version, zlib.crc32(body), len(body))
    (directory / "_metadata").write_bytes(head + body)
    return directory


@pytest.fixture
def victim(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "authorized_keys").write_text("mine")
    (home / "state-s0-a0-0a").write_text("mine")
    yield home
    assert (home / "authorized_keys").read_text() == "mine"
    assert (home / "state-s0-a0-0a").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("../shared/authorized_keys", CorruptStateError),
        ("../shared/state-s0-a0-0a", StorageError),
    ],
)
def test_a_link_in_place_of_the_shared_files_leads_nowhere(tmp_path, victim, name, error):
    directory = planted(tmp_path / "evil", name)
    (directory.parent / "shared").symlink_to(victim)
    with pytest.raises(error, match=r"is a link|none of a checkpoint"):
        dispose_savepoint(str(directory))
    assert (directory / "_metadata").exists(), "nothing was deleted"


def test_a_link_in_place_of_another_jobs_directory_leads_nowhere(tmp_path, victim):
    directory = planted(tmp_path / "evil", f"../../{NEW}/shared/state-s0-a0-0a")
    (victim / "shared").symlink_to(victim)
    (tmp_path / "evil" / NEW).symlink_to(victim)
    with pytest.raises(StorageError, match="is a link"):
        dispose_savepoint(str(directory))
    assert (directory / "_metadata").exists()


@pytest.mark.parametrize(
    "name",
    [
        "authorized_keys",
        "../../home/authorized_keys",
        "../../home/state-s0-a0-0a",
        "../state-s0-a0-0a",
        "../shared/../../../home/authorized_keys",
        "/etc/passwd",
        "../shared/state-s0-a0-0a/x",
        "sub/state-s0-a0-0a",
        "state-s0-a0-0a\n",
    ],
)
def test_names_that_no_checkpoint_has_refuse_the_whole(tmp_path, victim, name):
    directory = planted(tmp_path / "evil", name)
    with pytest.raises(
        CorruptStateError, match=r"names the file .* nothing was deleted|is no path of a state file"
    ):
        dispose_savepoint(str(directory))
    assert (directory / "_metadata").exists()


@pytest.mark.parametrize("spool", ["../home", "..", "other", "spool-0/../..", "spool-0/", "."])
def test_only_directories_named_like_spools_go_as_such(storage, tmp_path, victim, spool):
    layout = (SourceLayout("u", 0, spool=spool),)
    path = Path(savepoint(storage, sources=SourcePositions(layout=layout)))
    (path / "other").mkdir()
    (path / "other" / "file").touch()
    (path / "spool-0").symlink_to(victim)
    dispose_savepoint(str(path))
    assert (path / "other" / "file").exists()


def test_a_link_in_the_place_of_a_spool_goes_and_what_it_names_stays(storage, victim):
    layout = (SourceLayout("u", 0, spool="spool-0"),)
    path = Path(savepoint(storage, sources=SourcePositions(layout=layout)))
    (path / "spool-0").symlink_to(victim)
    dispose_savepoint(str(path))
    assert not path.exists()


def test_a_link_to_a_savepoint_is_not_the_savepoint(storage, tmp_path):
    path = savepoint(storage)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(StorageError, match=r"is a link.*name the directory itself"):
        dispose_savepoint(str(tmp_path / "link"))
    (tmp_path / "above").symlink_to(storage.root)
    dispose_savepoint(str(tmp_path / "above" / Path(path).name))
    assert not Path(path).exists()


def test_a_hidden_file_of_somebody_stays_too(storage):
    path = Path(savepoint(storage))
    (path / ".profile").write_text("mine")
    dispose_savepoint(str(path))
    assert [p.name for p in path.iterdir()] == [".profile"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("part", [".", "chk-1", "shared"])
def test_directories_of_another_user_are_not_for_this_one_to_clean(tmp_path, part):
    directory = planted(tmp_path / "evil", "../shared/state-s0-a0-0a")
    shared = directory.parent / "shared"
    shared.mkdir()
    (shared / "state-s0-a0-0a").write_text("x")
    os.chown(directory.parent / part, 65534, 65534)
    with pytest.raises(StorageError, match="belongs to user 65534, expected 0"):
        dispose_savepoint(str(directory))
    assert (shared / "state-s0-a0-0a").exists()
    assert (directory / "_metadata").exists()


# ---- interruptions -----------------------------------------------------------------------------


def calls_of(storage, directory):
    counting = FaultyStorage(storage)
    apply_disposal(counting, directory, load_checkpoint(storage, directory))
    return len(counting.trace)


def world(root):
    storage = LocalStorage(str(root))
    checkpoint(storage, 4, "a1", "b2")
    return storage, checkpoint(storage, 5, "b2", "c3")


@pytest.mark.parametrize("moment", list(CrashMoment))
def test_a_disposal_that_was_interrupted_anywhere_can_be_repeated(tmp_path, moment):
    storage, _ = world(tmp_path / "count")
    points = calls_of(storage, f"{OLD}/chk-5")
    kept = files(storage)
    for point in range(1, points + 1):
        storage, path = world(tmp_path / str(point))
        faulty = FaultyStorage(storage, FaultPlan(crash_at=point, moment=moment))
        metadata = load_checkpoint(storage, f"{OLD}/chk-5")
        with pytest.raises(SimulatedCrash):
            apply_disposal(faulty, f"{OLD}/chk-5", metadata)
        if list(Path(path).glob("*")):
            dispose_savepoint(path)
        assert files(storage) == kept, f"interrupted at call {point}"


def test_from_the_first_deletion_on_there_is_no_savepoint(storage):
    path = savepoint(storage)
    name = Path(path).name
    faulty = FaultyStorage(storage)
    apply_disposal(faulty, name, load_checkpoint(storage, name))
    deletions = [c.path for c in faulty.trace if c.operation.startswith("delete")]
    assert deletions[0] == f"{name}/_metadata"


def test_a_storage_that_refuses_to_delete_is_told_and_the_disposal_repeated(storage):
    path = savepoint(storage)
    name = Path(path).name
    faulty = FaultyStorage(storage)
    faulty.fail_next("delete")
    with pytest.raises(StorageError, match="refused on purpose"):
        apply_disposal(faulty, name, load_checkpoint(storage, name))
    dispose_savepoint(path)
    assert files(storage) == []


def test_a_full_disk_does_not_keep_a_savepoint_from_going(storage):
    path = savepoint(storage)
    name = Path(path).name
    faulty = FaultyStorage(storage)
    faulty.fail_next("create")
    apply_disposal(faulty, name, load_checkpoint(storage, name))
    assert not Path(path).exists()


def test_the_note_of_a_disposal_holds_what_was_to_go(storage):
    path = savepoint(storage)
    name = Path(path).name
    metadata = load_checkpoint(storage, name)
    plan = FaultPlan(crash_at=3, moment=CrashMoment.AFTER)
    with pytest.raises(SimulatedCrash):
        apply_disposal(FaultyStorage(storage, plan), name, metadata)
    assert storage.read(f"{name}/_disposing") == encode_metadata(metadata)
