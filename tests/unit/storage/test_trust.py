"""Who else decides what is read at a path: every name on the way to it counts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from weir.storage.trust import first_foreign

NOBODY, NO_GROUP = 54_321, 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory two levels down, which nobody else can write to, with a file in it."""
    made = tmp_path / "team" / "savepoint"
    made.mkdir(parents=True)
    (made / "state").write_bytes(b"state")
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return made


def found(root: Path, *files: str) -> str | None:
    return first_foreign(str(root), files)


def test_what_only_this_user_can_write_is_nobody_elses(root: Path) -> None:
    assert found(root, "state") is None


@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_directory_in_which_others_can_rename_the_next_is_found(root: Path, above: int) -> None:
    place = (root, *root.parents)[above]
    place.chmod(0o777)
    assert found(root, "state") == f"{str(place)!r} has mode 0777: everybody can write to it"
    place.chmod(0o1777)
    assert found(root, "state") is None


@needs_root
@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_directory_of_another_user_on_the_way_is_found(root: Path, above: int) -> None:
    place = (root, *root.parents)[above]
    os.chown(place, NOBODY, -1)
    assert found(root, "state") == f"{str(place)!r} belongs to user {NOBODY}"


def test_links_are_followed_and_what_is_around_their_targets_counts(root: Path) -> None:
    here, there = root.parents[1] / "here", root.parents[1] / "there"
    here.mkdir(mode=0o755)
    there.mkdir(mode=0o755)
    (here / "relative").symlink_to("../there/absolute")
    (there / "absolute").symlink_to(root)
    assert found(here / "relative", "state") is None
    there.chmod(0o777)
    assert found(here / "relative", "state") == (
        f"{str(there)!r} has mode 0777: everybody can write to it"
    )
    there.chmod(0o755)
    root.parent.chmod(0o777)
    assert "team' has mode 0777" in str(found(here / "relative", "state"))


@needs_root
def test_a_link_of_another_user_is_found_although_it_leads_to_files_of_this_one(
    root: Path,
) -> None:
    link = root.parents[1] / "link"
    link.symlink_to(root)
    assert found(link, "state") is None
    os.chown(link, NOBODY, -1, follow_symlinks=False)
    assert found(link, "state") == f"{str(link)!r} belongs to user {NOBODY}"


def test_links_in_a_circle_lead_nowhere(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert "leads through more than 40 links" in str(found(root, "a"))


def test_what_is_not_there_is_nobody_elses_where_nobody_else_can_make_it(root: Path) -> None:
    assert found(root, "a/b", "state/c") is None
    assert found(root / "gone", "a/b") is None


def test_what_is_not_there_may_be_made_by_others_in_a_sticky_directory(root: Path) -> None:
    root.chmod(0o1777)
    assert found(root, "state") is None
    assert found(root, "a/b") == f"{str(root / 'a')!r} is not there: everybody can make it"
    assert found(root / "gone") is None, "nothing is read from it"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_what_cannot_be_looked_at_is_not_believed(root: Path) -> None:
    root.chmod(0o600)
    assert "cannot be looked at" in str(found(root, "state"))


@pytest.fixture
def group_of_many() -> Iterator[int]:
    """A group that several users have as their first one, and this process too for a while."""
    before = os.getegid()
    os.setegid(NO_GROUP)
    yield NO_GROUP
    os.setegid(before)


@needs_root
def test_a_group_is_shared_by_those_who_have_it_as_their_first(
    root: Path, group_of_many: int
) -> None:
    os.chown(root, -1, group_of_many)
    assert found(root, "state") is None
    root.chmod(0o775)
    assert "has mode 0775: the group" in str(found(root, "state"))


def test_file_systems_of_other_hosts_are_passed_over(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 0:20 / / rw,relatime - ext4 /dev/sda1 rw\n"
        f"31 22 0:27 / {tmp_path}/the\\040share rw shared:1 - nfs4 server:/export rw\n"
        f"32 31 0:28 / {tmp_path}/the\\040share/local rw - xfs /dev/sdb1 rw\n"
        f"33 22 0:29 / {tmp_path}/s3 rw - fuse.s3fs s3fs rw\n",
        "utf-8",
    )
    tmp_path.chmod(0o755)
    names = ("the share", "the share/x", "the share/local", "the shares", "s3", "data")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    wrong = {name for name in names if first_foreign(str(tmp_path / name), (), str(mounts))}
    assert wrong == {"the share/local", "the shares", "data"}
    assert first_foreign(str(tmp_path / "s3"), (), str(tmp_path / "missing")) is not None


def test_a_share_is_only_as_good_as_the_directories_in_which_it_is_mounted(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    share = tmp_path / "team" / "share"
    mounts.write_text(f"31 22 0:27 / {share} rw shared:1 - nfs4 server:/export rw\n", "utf-8")
    share.mkdir(parents=True)
    share.chmod(0o777)
    tmp_path.chmod(0o755)
    assert first_foreign(str(share), ["state"], str(mounts)) is None
    share.parent.chmod(0o777)
    assert "team' has mode 0777" in str(first_foreign(str(share), ["state"], str(mounts)))
