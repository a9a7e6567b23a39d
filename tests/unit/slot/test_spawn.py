"""Starting slots: where their logs and sockets go, and what is refused."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from weir.errors import StorageError
from weir.slot import spawn
from weir.slot.spawn import SOCKET_DIR_MAX, Contact, start_slot
from weir.storage.private_files import temporary_directory
from weir.storage.processes import noted_process_ended

JOB = "0123456789abcdef0123456789abcdef"
SOMEBODY = 65534


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a temporary directory of the host that nobody else uses; its path is short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


def contact(shared: Path, *, tcp: bool = False, log_dir: Path | None = None) -> Contact:
    return Contact(
        location=f"grpc+unix://{shared}/nobody",
        token=bytes(32),
        driver_host="localhost",
        driver_pid=os.getpid(),
        log_dir=str(log_dir or shared / "weir-logs-of-the-driver" / JOB),
        socket_dir=str(temporary_directory("weir-slots-", longest=SOCKET_DIR_MAX)),
        tcp=tcp,
        default_logs=log_dir is None,
    )


def ended(pid: int) -> None:
    """Wait for a slot that finds no driver."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        select.select([process], [], [], 60)
        os.close(process)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_logs_are_private_and_where_the_slots_own_user_has_them(shared: Path) -> None:
    ended(start_slot(contact(shared), 0, 3, "localhost"))
    log = shared / f"weir-logs-{os.getuid()}" / JOB / "slot-3-attempt-0.log"
    assert "slot 3 on" in log.read_text()
    assert [mode(path) for path in (log, log.parent, log.parent.parent)] == [0o600, 0o700, 0o700]


def test_a_directory_that_was_chosen_stays_as_it_is_and_the_jobs_is_private(shared: Path) -> None:
    chosen = shared / "logs"
    chosen.mkdir()
    chosen.chmod(0o777)
    ended(start_slot(contact(shared, log_dir=chosen / JOB), 0, 0, "localhost"))
    assert (mode(chosen), mode(chosen / JOB)) == (0o777, 0o700)


def test_a_link_in_place_of_a_log_is_refused_before_anything_starts(shared: Path) -> None:
    folder = shared / "logs" / JOB
    folder.mkdir(parents=True, mode=0o700)
    victim = shared / "victim"
    victim.write_text("mine")
    (folder / "slot-0-attempt-0.log").symlink_to(victim)
    with pytest.raises(StorageError, match="it is a link"):
        start_slot(contact(shared, log_dir=folder), 0, 0, "localhost")
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("plant", ["link", "open", "theirs"])
@pytest.mark.parametrize("which", ["logs", "logs of the job", "sockets"])
def test_a_directory_that_somebody_else_made_is_refused(
    shared: Path, plant: str, which: str
) -> None:
    given = contact(shared)
    usual = shared / f"weir-logs-{os.getuid()}"
    path = {"logs": usual, "logs of the job": usual / JOB, "sockets": Path(given.socket_dir)}[which]
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    if plant == "link":
        (shared / "other").mkdir()
        path.symlink_to(shared / "other")
    else:
        path.mkdir(mode=0o700)
        path.chmod(0o770 if plant == "open" else 0o700)
    if plant == "theirs":
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        os.chown(path, SOMEBODY, SOMEBODY)
    with pytest.raises(StorageError, match=path.name):
        start_slot(given, 0, 0, "localhost")


def test_on_a_cluster_every_slot_has_a_directory_of_its_own_that_goes_with_it(
    shared: Path,
) -> None:
    given = contact(shared, tcp=True)
    pid = start_slot(given, 0, 0, "localhost")
    for made in shared.glob("weir-slot-*"):
        assert mode(made) == 0o700
    ended(pid)
    assert list(shared.glob("weir-slot-*")) == []


def test_the_directory_of_a_killed_slot_goes_with_the_next_one(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = contact(shared, tcp=True)
    with monkeypatch.context() as patched:
        # A process that ends at once and tidies nothing up, as a killed one.
        patched.setattr(spawn.sys, "executable", "/bin/true")
        killed = start_slot(given, 0, 0, "localhost")
    ended(killed)
    (left,) = shared.glob("weir-slot-*")
    assert noted_process_ended(left)
    ended(start_slot(given, 0, 0, "localhost"))
    assert list(shared.glob("weir-slot-*")) == []


def test_a_log_directory_that_cannot_be_made_is_named(shared: Path) -> None:
    (shared / "file").write_text("not a directory")
    with pytest.raises(StorageError, match=r"file/logs"):
        start_slot(contact(shared, log_dir=shared / "file" / "logs"), 0, 1, "localhost")
