"""Lists of local directories in settings: absolute paths or `file:` URIs."""

from __future__ import annotations

import re

from weir.errors import UsageError

_URI = re.compile(r"(^|[,;|:\s])file:(?://[^/,;|:]*)?(?=/)", re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z][\w+.-]*)://")
_SEPARATORS = re.compile(r"[,;|:]")


def local_directories(text: str, key: str) -> tuple[str, ...]:
    """Return the directories that a text lists, separated by ',', ':', ';' or '|'.

    Raises:
        UsageError: one is not local, or relative: where a process works is chance.
    """
    plain = _URI.sub(r"\1", text)
    if _SCHEME.search(plain):
        msg = (
            f"{key} names {text!r}, expected directories of the host: absolute paths or file: URIs"
        )
        raise UsageError(msg)
    found = [part.strip() for part in _SEPARATORS.split(plain)]
    paths = tuple(path.rstrip("/") or "/" for path in found if path)
    for path in paths:
        if not path.startswith("/"):
            msg = f"{key} names {path!r}, expected absolute paths"
            raise UsageError(msg)
    return paths
