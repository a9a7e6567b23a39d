"""Whose files these are: state is unpickled, so nobody else may have had a hand in it.

What a user other than this one and root owns, or can write to, may hold code of that user. The same
holds for the directories above, in which it could have been exchanged. Only what the kernel itself
guards is looked at: on a network file system owners are what the server makes of them, and who may
write is decided there.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = 0
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_MOUNTS: Final = "/proc/self/mountinfo"
_OVER_THE_NETWORK: Final = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre"),
        *("ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "smb3", "smbfs", "virtiofs"),
        "vboxsf",
    }
)


def first_foreign(root: str, files: Iterable[str]) -> str | None:
    """Describe the first file below a directory that another user could have written, if any.

    Files are named relative to `root`, which is looked at, too, and all directories between. What
    is not there is passed over.
    """
    if is_over_the_network(root):
        return None
    for path in _with_directories(root, files):
        try:
            found = os.stat(path)
        except OSError:
            continue
        wrong = _wrong_with(found)
        if wrong is not None:
            return f"{path!r} {wrong}"
    return None


def is_over_the_network(path: str, mounts: str = _MOUNTS) -> bool:
    """Tell whether a path lies on a file system of another host, as far as the kernel says so."""
    try:
        lines = Path(mounts).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    real, best, kind = os.path.realpath(path), "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        place = _OCTAL.sub(lambda found: chr(int(found[1], 8)), before.split(" ")[4])
        if len(place) >= len(best) and (real + "/").startswith(place.rstrip("/") + "/"):
            best, kind = place, after.split(" ")[0]
    return kind in _OVER_THE_NETWORK or kind.startswith("fuse")


def _with_directories(root: str, files: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for file in ("", *files):
        path = root
        for part in ("", *file.split("/")):
            path = os.path.normpath(os.path.join(path, part))
            if path not in seen:
                seen.add(path)
                yield path


def _wrong_with(found: os.stat_result) -> str | None:
    if found.st_uid not in (_ROOT, os.geteuid()):
        return f"belongs to user {_user(found.st_uid)}"
    # In a sticky directory nobody can exchange what is not theirs.
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return None
    mode = f"has mode {stat.S_IMODE(found.st_mode):04o}"
    if found.st_mode & stat.S_IWOTH:
        return f"{mode}: everybody can write to it"
    if found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid):
        return f"{mode}: the group {_group(found.st_gid)} can write to it"
    return None


def _is_own_group(gid: int) -> bool:
    """Tell whether a group has no member but this user and root, as far as the host knows."""
    if gid == _ROOT:
        return True
    if gid != os.getegid():
        return False
    try:
        members = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        return True
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
