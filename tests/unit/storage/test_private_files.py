"""Directories in a shared place: whose they are is looked at, and what is nobody's goes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from weir.errors import StorageError
from weir.storage.private_files import (
    keep_directory,
    new_directory,
    open_private,
    private_directory,
    remove_directory,
    remove_leftovers,
    scratch_directory,
    temporary_directory,
)
from weir.storage.processes import OWNER_NAME, note_process

SOMEBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_directory_is_made_for_its_user_alone_and_used_again(tmp_path: Path) -> None:
    made = private_directory(tmp_path / "above" / "d", "stop")
    (made / "kept").touch()
    assert mode(made) == 0o700
    assert private_directory(made, "stop") == made
    assert (made / "kept").exists()


def test_a_directory_that_others_can_read_is_narrowed_unless_somebody_chose_it(
    tmp_path: Path,
) -> None:
    made = tmp_path / "d"
    made.mkdir(mode=0o755)
    made.chmod(0o755)
    private_directory(made, "stop", narrow=False)
    assert mode(made) == 0o755
    private_directory(made, "stop")
    assert mode(made) == 0o700


@pytest.mark.parametrize("bits", [0o770, 0o702, 0o777, 0o1777, 0o720])
def test_a_directory_that_others_can_write_to_is_refused_with_what_was_found(
    tmp_path: Path, bits: int
) -> None:
    made = tmp_path / "d"
    made.mkdir()
    made.chmod(bits)
    with pytest.raises(StorageError, match=rf"d' is not safe.*mode {bits:04o}.*take another one"):
        private_directory(made, "take another one")
    assert mode(made) == bits


@as_root
def test_a_directory_of_somebody_else_is_refused_by_name(tmp_path: Path) -> None:
    made = tmp_path / "d"
    made.mkdir(mode=0o700)
    os.chown(made, SOMEBODY, SOMEBODY)
    with pytest.raises(StorageError, match=r"found a directory of user .*, expected a directory"):
        private_directory(made, "take another one")


@pytest.mark.parametrize("target", ["there", "nowhere", "file"])
def test_a_link_is_no_directory(tmp_path: Path, target: str) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "file").touch()
    (tmp_path / "d").symlink_to(tmp_path / target)
    with pytest.raises(StorageError, match="it is a link of user"):
        private_directory(tmp_path / "d", "take another one")
    assert not (tmp_path / "nowhere").exists()


def test_a_log_is_only_its_users_and_grows_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before ")
    path.chmod(0o666)
    for text in (b"first ", b"second"):
        opened = open_private(path)
        os.write(opened, text)
        os.close(opened)
    assert path.read_text() == "before first second"
    assert mode(path) == 0o600


def planted_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def planted_name(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def planted_pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("plant", [planted_link, planted_name, planted_pipe])
def test_a_log_that_leads_elsewhere_is_refused(tmp_path: Path, plant: object) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    victim.chmod(0o644)
    plant(tmp_path / "log", victim)
    with pytest.raises(StorageError, match="log"):
        open_private(tmp_path / "log")
    assert (victim.read_text(), mode(victim)) == ("mine", 0o644)


@as_root
def test_a_log_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    os.chown(tmp_path / "log", SOMEBODY, SOMEBODY)
    with pytest.raises(StorageError, match="not safe to write"):
        open_private(tmp_path / "log")


# ---- temporary directories and what killed processes leave ------------------------------------


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a temporary directory of the host that nobody else uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def dead(base: Path, name: str) -> Path:
    """Make a directory of a process that is gone."""
    made = base / name
    made.mkdir(mode=0o700)
    gone = subprocess.Popen(["true"])
    note_process(made, gone.pid)
    gone.wait()
    (made / "inside").mkdir()
    (made / "inside" / "file").write_text("left")
    return made


def test_a_temporary_directory_is_private_and_noted_as_this_processs(shared: Path) -> None:
    made = temporary_directory("weir-x-")
    assert made.parent == shared
    assert mode(made) == 0o700
    assert json.loads((made / OWNER_NAME).read_text())["pid"] == os.getpid()
    assert temporary_directory("weir-x-") != made
    assert made.exists()
    remove_directory(made)
    assert not made.exists()


def test_it_goes_when_its_process_ends(shared: Path) -> None:
    code = (
        "import os, sys; from weir.storage.private_files import temporary_directory\n"
        "print(temporary_directory('weir-x-'), flush=True)\n"
        "if os.fork() == 0: sys.exit()\n"
        "os.wait(); print(len(os.listdir(sys.argv[1])))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(shared)],
        env={**os.environ, "TMPDIR": str(shared)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert told.stdout.split()[-1] == "1", "a child that ends takes nothing away"
    assert list(shared.iterdir()) == []


def test_a_directory_for_a_while_goes_at_its_end_and_after_a_kill(shared: Path) -> None:
    with scratch_directory("weir-x-") as made:
        assert (made / OWNER_NAME).exists()
        assert mode(made) == 0o700
    assert not made.exists()
    program = (
        "import os, signal\n"
        "from weir.storage.private_files import scratch_directory\n"
        "with scratch_directory('weir-x-') as made:\n"
        "    (made / 'rows').touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "TMPDIR": str(shared)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    (left,) = shared.glob("weir-x-*")
    with scratch_directory("weir-x-"):
        assert not left.exists()


def test_a_directory_that_is_to_be_kept_is_nobodys_leftover(shared: Path) -> None:
    made = new_directory("weir-x-")
    keep_directory(made)
    assert remove_leftovers(shared, "weir-x-") == []
    assert made.exists()


def test_what_a_killed_process_left_goes_with_the_next_of_its_kind(shared: Path) -> None:
    left, other = dead(shared, "weir-x-left"), dead(shared, "weir-y-left")
    made = new_directory("weir-x-")
    assert not left.exists()
    assert other.exists()
    assert made.exists()


def test_what_may_be_in_use_or_is_not_ours_stays(shared: Path) -> None:
    used, unknown, open_to_all = (dead(shared, f"weir-x-{i}") for i in range(3))
    note_process(used)
    (unknown / OWNER_NAME).unlink()
    open_to_all.chmod(0o755)
    (shared / "weir-x-file").touch()
    (shared / "weir-x-link").symlink_to(dead(shared, "elsewhere"))
    assert remove_leftovers(shared, "weir-x-") == []
    stay = ["elsewhere", "weir-x-0", "weir-x-1", "weir-x-2", "weir-x-file", "weir-x-link"]
    assert sorted(os.listdir(shared)) == stay


@pytest.mark.parametrize(
    "facts", [{"host": "elsewhere"}, {"namespace": "pid:[1]"}, {"pid": "no number"}, None]
)
def test_who_cannot_be_asked_counts_as_alive(shared: Path, facts: dict[str, str] | None) -> None:
    left = dead(shared, "weir-x-left")
    noted = json.loads((left / OWNER_NAME).read_text())
    (left / OWNER_NAME).write_text("{" if facts is None else json.dumps({**noted, **facts}))
    assert remove_leftovers(shared, "weir-x-") == []


@as_root
def test_directories_of_somebody_else_are_not_cleaned_up(shared: Path) -> None:
    left = dead(shared, "weir-x-left")
    os.chown(left, SOMEBODY, SOMEBODY)
    assert remove_leftovers(shared, "weir-x-") == []


def test_a_path_for_sockets_is_short_also_where_the_temporary_directory_is_not(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = shared / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    made = temporary_directory("weir-x-", longest=84)
    assert len(str(made)) <= 84
    remove_directory(made)
