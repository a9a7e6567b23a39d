"""The files of the page: read once, served by their exact names, never joined to a path.

They hold nothing secret, so they are served without a token: the page needs its script to ask for
one. What a page may load and where it may send anything is said by its security policy.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

ROOT: Final = "/static/"
_MEDIA: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Asset:
    """One file, plain and compressed; `tag` changes with its content."""

    data: bytes
    packed: bytes
    media: str
    tag: str


@functools.cache
def assets() -> Mapping[str, Asset]:
    """Return all files by the path of their URL; `/` is the page itself."""
    folder = Path(__file__).with_name("static")
    files = [path for path in folder.rglob("*") if path.suffix in _MEDIA]
    found = {ROOT + path.relative_to(folder).as_posix(): _asset(path) for path in files}
    found["/"] = found[f"{ROOT}index.html"]
    return found


def page_link(url: str, token: str | None, job_id: str | None = None) -> str:
    """Return the address of the page, of a job if one is given; the token is in its fragment.

    Browsers send a fragment to nobody.
    """
    where = "/" if job_id is None else f"/jobs/{job_id}"
    return f"{url}/#{where}{f'?token={quote(token)}' if token else ''}"


def _asset(file: Path) -> Asset:
    data = file.read_bytes()
    return Asset(
        data=data,
        packed=gzip.compress(data, mtime=0),
        media=_MEDIA[file.suffix],
        tag=f'"{hashlib.sha256(data).hexdigest()[:32]}"',
    )
