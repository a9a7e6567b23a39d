"""The logs that Spark keeps for sources: reading them, cutting them at a position, checking them.

Spark gives its logs no checksums. A log that stays in the job's directory is therefore known by
size and crc32 of what it says up to the position, whatever files say it: Spark joins files and
deletes the old ones. Invariant: what is not a log, or not the one that was meant, is refused as
`CorruptStateError` before anybody goes by it; one wrong name makes Spark read a file twice.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from weir.errors import CorruptStateError

_COMPACT_INTERVAL: Final = 10
_COMPACT: Final = ".compact"
_LAST_OFFSET: Final = 2**63 - 1
NO_OFFSET: Final = "-"
_CHECK = re.compile(r"(0|[1-9][0-9]{0,18}) ([0-9a-f]{8})\Z")


@dataclass(frozen=True)
class LogCheck:
    """Size and crc32 of the lines of a log, each with a line feed."""

    size: int = 0
    crc32: int = 0

    def over(self, lines: Iterable[str]) -> LogCheck:
        """Return the check of a log that has these lines behind."""
        size, crc32 = self.size, self.crc32
        for line in lines:
            data = line.encode("utf-8", "surrogatepass") + b"\n"
            size, crc32 = size + len(data), zlib.crc32(data, crc32)
        return LogCheck(size, crc32)

    def text(self) -> str:
        """Return it as it stands in the positions."""
        return f"{self.size} {self.crc32:08x}"

    def require(self, text: str, log: str) -> None:
        """Refuse a log whose check is another one than the positions say.

        Raises:
            CorruptStateError: it is.
        """
        if _CHECK.match(text) is None:
            msg = f"{log}: its check is {text[:40]!r}, expected a size and a crc32"
            raise CorruptStateError(msg)
        if text != self.text():
            msg = (
                f"{log} is damaged: size and crc32 are {self.text()!r}, the checkpoint says "
                f"{text!r}; files would be read twice or not at all: restore another checkpoint"
            )
            raise CorruptStateError(msg)


class LogChecks:
    """The checks of the logs of a job, made as the logs grow: nothing is read again."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, LogCheck]] = {}

    def of(self, source: Path, offset: str) -> LogCheck:
        """Return the check of a source's log up to a position.

        Raises:
            CorruptStateError: the log is damaged.
        """
        last = file_log_offset(offset)
        if last is None:
            return check_of(source_log(source, offset))
        before, check = self._known.get(source, (last + 1, LogCheck()))
        added = None
        if before <= last:
            with _readable(source):
                added = _lines_between(source, before + 1, last)
        check = check_of(source_log(source, offset)) if added is None else check.over(added)
        self._known[source] = (last, check)
        return check


def check_of(log: Mapping[str, str]) -> LogCheck:
    """Return the check of a log's files: of the file source's lines, whatever files they are in."""
    versions = {_lines(text)[0] for text in log.values()}
    if all(map(_lists_files, log.values())) and len(versions) == 1:
        check = LogCheck().over(versions)
        for name in sorted(log, key=_number):
            check = check.over(_lines(log[name])[1:])
        return check
    return LogCheck().over(part for name in sorted(log) for part in (name, log[name]))


def source_log(source: Path, offset: str) -> dict[str, str]:
    """Return the files, by name, of the log that Spark keeps for a source, up to a position.

    Raises:
        CorruptStateError: they are damaged.
    """
    if not source.is_dir():
        return {}
    last = file_log_offset(offset)
    with _readable(source):
        if last is not None:
            return _file_log_until(source, last)
        files = {entry.name: _text(entry) for entry in _log_files(source)}
    if offset == NO_OFFSET and any(map(_lists_files, files.values())):
        return {}  # A file source without a position starts over: all must be listed anew.
    return files


def listed_files(log: Mapping[str, str]) -> set[str]:
    """Return the names of the files that a file source's log says were read.

    Raises:
        CorruptStateError: it is no log of a file source.
    """
    names = set()
    with _readable("a source"):
        for text in log.values():
            for line in _lines(text)[1:]:
                names.add(unquote(str(json.loads(line)["path"])).rsplit("/", 1)[-1])
    return names


def file_log_offset(offset: str) -> int | None:
    """Return the log offset of a file source, None for any other source.

    Raises:
        CorruptStateError: it is one of a file source, and no number.
    """
    try:
        parsed = json.loads(offset)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict) or set(parsed) != {"logOffset"}:
        return None
    number = parsed["logOffset"]
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _LAST_OFFSET:
        msg = f"the position {offset[:100]!r} of a file source names no entry of its log"
        raise CorruptStateError(msg)
    return number


@contextmanager
def _readable(source: Path | str) -> Iterator[None]:
    """Let whatever reading a damaged log comes across say that it is damaged."""
    try:
        yield
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        msg = (
            f"the log of {str(source)!r} is not as Spark writes it: {type(error).__name__}: "
            f"{error}; restore another checkpoint"
        )
        raise CorruptStateError(msg) from error


def _text(path: Path) -> str:
    return path.read_bytes().decode()


def _lines(text: str) -> list[str]:
    """Return the lines as Spark sees them: a name may have what Python takes for an end of one."""
    return text.removesuffix("\n").split("\n")


def _lists_files(text: str) -> bool:
    """Tell whether a source's log entry is one of the file source."""
    for line in _lines(text)[1:2]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(entry, dict) and {"path", "batchId"} <= set(entry)
    return False


def _log_files(directory: Path) -> list[Path]:
    return [p for p in directory.iterdir() if p.is_file() and not p.name.startswith(".")]


def _number(name: str) -> int:
    digits = name.removesuffix(_COMPACT)
    return int(digits) if digits.isdecimal() else -1


def _batch(line: str) -> int:
    number: Any = json.loads(line)["batchId"]
    if not isinstance(number, int) or isinstance(number, bool):
        msg = f"its batch is {number!r}"
        raise TypeError(msg)
    return number


def _entries(path: Path, version: str | None) -> tuple[str, list[str]]:
    """Return version and entries of one file; all files of a log have the same version."""
    first, *lines = _lines(_text(path))
    if not first.startswith("v") or version not in (None, first):
        wanted = "v1" if version is None else version
        msg = (
            f"{str(path)!r} is not a source log of Spark: it begins with {first[:40]!r}, "
            f"expected {wanted!r}"
        )
        raise CorruptStateError(msg)
    return first, lines


def _file_log(directory: Path) -> tuple[str, dict[int, list[str]]]:
    """Return version and entries, by batch, of a file source's log, compact files resolved."""
    entries: dict[int, list[str]] = {}
    version = None
    for path in sorted(_log_files(directory), key=lambda path: _number(path.name)):
        version, lines = _entries(path, version)
        by_batch: dict[int, list[str]] = {}
        for line in lines:
            by_batch.setdefault(_batch(line), []).append(line)
        entries.update(by_batch)
    return version or "v1", entries


def _file_log_until(source: Path, last: int) -> dict[str, str]:
    """Return a log that ends at `last`, compacted where Spark expects a compact file."""
    version, entries = _file_log(source)
    compact = (last + 1) // _COMPACT_INTERVAL * _COMPACT_INTERVAL - 1
    files = {}
    if compact >= 0:
        lines = [line for n in sorted(entries) if n <= compact for line in entries[n]]
        files[f"{compact}{_COMPACT}"] = "\n".join([version, *lines])
    for number in range(compact + 1, last + 1):
        if number not in entries:
            msg = f"the source log {str(source)!r} lacks batch {number}"
            raise CorruptStateError(msg)
        files[str(number)] = "\n".join([version, *entries[number]])
    return files


def _lines_between(source: Path, first: int, last: int) -> list[str] | None:
    """Return the entries of some batches; None if Spark has put them elsewhere meanwhile."""
    found: list[str] = []
    for number in range(first, last + 1):
        path = source / str(number)
        if not path.exists():
            path = source / f"{number}{_COMPACT}"
        try:
            _, lines = _entries(path, None)
        except FileNotFoundError:
            return None
        # All that came before is in a compact file, too: only its end is parsed.
        begin = len(lines)
        while begin and _batch(lines[begin - 1]) >= number:
            begin -= 1
        found += lines[begin:]
    return found
