"""Whose files these are: state is unpickled, so nobody else may have had a hand in it.

What a user other than this one and root owns, or can write to, may hold code of that user. The same
holds for all directories above, up to the root of the host, and for links on the way: there it
could have been exchanged. Only what the kernel itself guards is looked at: on a network file system
owners are what the server makes of them, and who may write is decided there.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_ROOT: Final = 0
_LINKS_MAX: Final = 40
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_MOUNTS: Final = "/proc/self/mountinfo"
_OVER_THE_NETWORK: Final = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre"),
        *("ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "smb3", "smbfs", "virtiofs"),
        "vboxsf",
    }
)


def first_foreign(root: str, files: Iterable[str], mounts: str = _MOUNTS) -> str | None:
    """Describe what lets another user decide what is read below a directory, if anything does.

    Files are named relative to `root`, an absolute path. Every directory, link and file on the way
    from `/` to them is judged, in the order in which the kernel goes. So whoever opens the same
    path later comes to what was judged here, unless this user or root changes it. Where something
    is not there, nobody else may be able to make it; only `root` itself may be missing anywhere.
    What is on another host according to `mounts` is passed over.
    """
    walk = _Walk(mounts)
    wrong = walk.wrong_with(root, may_appear=True)
    for file in files:
        if wrong is not None:
            break
        wrong = walk.wrong_with(f"{root}/{file}", may_appear=False)
    return wrong


class _Step(NamedTuple):
    """What is wrong with a name in a directory, and where it leads to if it is a link."""

    wrong: str | None
    target: str | None


class _Walk:
    """Goes along paths as the kernel does, and looks at every name once."""

    def __init__(self, mounts: str) -> None:
        self._mounts = mounts
        self._remote: Mapping[str, bool] = {}
        self._steps: dict[str, _Step] = {}

    def wrong_with(self, path: str, *, may_appear: bool) -> str | None:
        """Describe the first name on the way that another user has a hand in, if any.

        With `may_appear` nobody is going to read what is not there yet.
        """
        # `here` is free of links, so the directory above it is what its path says.
        here, left, links = "/", ["/", *path.split("/")][::-1], 0
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            place = os.path.dirname(here) if name == ".." else os.path.join(here, name)
            try:
                wrong, target = self._step(place)
            except (FileNotFoundError, NotADirectoryError):
                return None if may_appear else self._who_can_make(place)
            except OSError as error:
                return f"{place!r} cannot be looked at ({error.strerror})"
            if wrong is not None:
                return f"{place!r} {wrong}"
            if target is None:
                here = place
                continue
            links += 1
            if links > _LINKS_MAX:
                return f"{place!r} leads through more than {_LINKS_MAX} links"
            here = "/" if target.startswith("/") else here
            left += target.split("/")[::-1]
        return None

    def _step(self, place: str) -> _Step:
        if place not in self._steps:
            found = os.lstat(place)
            target = os.readlink(place) if stat.S_ISLNK(found.st_mode) else None
            wrong = _wrong_with(found)
            is_foreign = wrong is not None and not self._is_remote(place)
            self._steps[place] = _Step(wrong if is_foreign else None, target)
        return self._steps[place]

    def _who_can_make(self, place: str) -> str | None:
        """Say who else could put something where nothing is: in a sticky directory others can."""
        above = os.path.dirname(place)
        writers = _writers(os.lstat(above))
        if writers is None or self._is_remote(above):
            return None
        return f"{place!r} is not there: {writers} can make it"

    def _is_remote(self, place: str) -> bool:
        """Tell whether a place is on another host; where it is not, the walk is over."""
        if not _lies_on_remote(place, self._remote):
            # Read late: a share may have been mounted because of the look at what is on it.
            self._remote = _remote_mounts(self._mounts)
        return _lies_on_remote(place, self._remote)


def _remote_mounts(mounts: str) -> dict[str, bool]:
    """Return for every mount point whether it is of another host, as far as the kernel says so."""
    try:
        lines = Path(mounts).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        place = _OCTAL.sub(lambda digits: chr(int(digits[1], 8)), before.split(" ")[4])
        kind = after.split(" ")[0]
        found[place] = kind in _OVER_THE_NETWORK or kind.startswith("fuse")
    return found


def _lies_on_remote(place: str, remote: Mapping[str, bool]) -> bool:
    while place not in remote and place != "/":
        place = os.path.dirname(place)
    return remote.get(place, False)


def _wrong_with(found: os.stat_result) -> str | None:
    if found.st_uid not in (_ROOT, os.geteuid()):
        return f"belongs to user {_user(found.st_uid)}"
    if stat.S_ISLNK(found.st_mode):
        return None
    # In a sticky directory nobody can exchange what is not theirs.
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return None
    writers = _writers(found)
    mode = stat.S_IMODE(found.st_mode)
    return None if writers is None else f"has mode {mode:04o}: {writers} can write to it"


def _writers(found: os.stat_result) -> str | None:
    """Say who else may write to a file or directory, going by its mode."""
    if found.st_mode & stat.S_IWOTH:
        return "everybody"
    if found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid):
        return f"the group {_group(found.st_gid)}"
    return None


def _is_own_group(gid: int) -> bool:
    """Tell whether a group has no member but this user and root, as far as the host knows."""
    if gid == _ROOT:
        return True
    if gid != os.getegid():
        return False
    # The list of a group leaves out those who have it as their first one.
    members = {user.pw_name for user in pwd.getpwall() if user.pw_gid == gid}
    with contextlib.suppress(KeyError):
        members |= set(grp.getgrgid(gid).gr_mem)
    return members <= {_user(os.geteuid()), "root"}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
