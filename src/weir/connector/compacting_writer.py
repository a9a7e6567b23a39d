"""The writer of a `FileSink` that joins files before they become visible.

A file that waits is a committable with `waits`, the number of checkpoints it has been part of. It
is handed back by the commit of each, and given to the next. A joined file is a committable with
`parts`, the hidden files that it was made of: they go when it has become visible.

Invariant: a hidden file is in the last completed checkpoint, or everything in it is, in a joined
file; so a crash at any moment finds each record in exactly one file that will become visible.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from weir.connector.compaction import Compaction, Waiting
from weir.connector.file_format import OpenPart
from weir.connector.file_system import FileSystem, storage_errors
from weir.connector.file_writer import (
    ClosedPart,
    FileLayout,
    FileSinkWriter,
    decode_committable,
)
from weir.connector.sink import WriterContext
from weir.errors import CorruptStateError, UsageError


class CompactingWriter(FileSinkWriter):
    """Writes one subtask's records into part files, and joins those; exactly once."""

    def __init__(
        self,
        context: WriterContext,
        layout: FileLayout,
        open_part: OpenPart,
        file_system: FileSystem,
        *,
        columns: Any,
        compaction: Compaction,
    ) -> None:
        """Touch nothing yet."""
        super().__init__(context, layout, open_part, file_system, columns=columns)
        self._compaction = compaction
        self._waiting: list[Waiting] = []
        self._is_last = False

    def finish(self) -> None:
        """Let nothing wait beyond the next checkpoint: it is the last."""
        self._is_last = True

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        """Close the open files, and join what has waited long enough."""
        closed = [_waiting(decode_committable(c)) for c in super().prepare(checkpoint_id)]
        waiting, self._waiting = [*self._waiting, *closed], []
        made: list[dict[str, Any]] = []
        done: set[str] = set()
        for group in self._compaction.groups(waiting, last=self._is_last):
            made.append(self._joined(group, checkpoint_id))
            done.update(each.temp for each in group)
        left = [{**_plain(each), "waits": each.waits} for each in waiting if each.temp not in done]
        return [json.dumps(entry).encode() for entry in [*made, *left]]

    def _joined(self, group: list[Waiting], checkpoint_id: int) -> dict[str, Any]:
        """Return the committable of files that become one; a single one stays as it is."""
        if len(group) == 1:
            return _plain(group[0])
        directory = group[0].bucket
        stream, temp, number = self._create_hidden(directory)
        with ExitStack() as stack:
            stack.callback(stream.close)
            parts = []
            for each in group:
                part = self._fs.open(each.temp)
                stack.callback(part.close)
                parts.append(part)
            with storage_errors("write", temp):
                self._compaction.join(parts, stream)
            self._fs.sync(stream)
            size = stream.tell()
        self._fs.sync_directory(directory)
        final = self._final(ClosedPart(temp, number, size), checkpoint_id)
        parts_of = [each.temp for each in group]
        return {"temp": temp, "final": final, "size": size, "parts": parts_of}

    def _publish_all(self, committables: list[bytes], *, restored: bool) -> None:
        """Make files visible, remove what they were made of, and take back what has to wait."""
        entries = [(decode_committable(c), c) for c in committables]
        parts = [part for entry, _ in entries for part in _parts(entry)]
        now = [c for entry, c in entries if "waits" not in entry or self._is_last]
        super()._publish_all(now, restored=restored)
        for part in parts:
            self._fs.remove(part)
        for directory in sorted(set(map(os.path.dirname, parts))):
            self._fs.sync_directory(directory)
        for entry, _ in entries:
            if "waits" in entry and not self._is_last:
                self._wait(_waiting(entry), restored=restored)

    def _wait(self, file: Waiting, *, restored: bool) -> None:
        if self._fs.size(file.temp) == file.size:
            self._waiting.append(replace(file, waits=file.waits + 1))
        else:
            # It was made visible by a job that waits for nothing, or it is gone.
            self._publish(file.temp, file.final, file.size, restored=restored)

    def take_back(self, keep: list[bytes], checkpoint_id: int) -> None:
        """Refuse: the files that older checkpoints wait for were joined and are gone."""
        msg = "a FileSink that joins files cannot take back what it has committed"
        raise UsageError(msg)


def _plain(file: Waiting) -> dict[str, Any]:
    return {"temp": file.temp, "final": file.final, "size": file.size}


def _waiting(entry: dict[str, Any]) -> Waiting:
    waits = entry.get("waits", 0)
    if type(waits) is not int:
        msg = f"sink committable {entry!r} does not say how long it waits"
        raise CorruptStateError(msg)
    return Waiting(entry["temp"], entry["final"], entry["size"], waits)


def _parts(entry: dict[str, Any]) -> list[str]:
    parts = entry.get("parts", [])
    # They are removed: only what this sink hides in the bucket of the file can be meant.
    bucket = os.path.dirname(entry["temp"])
    if type(parts) is not list or not all(_is_hidden(part, bucket) for part in parts):
        msg = f"sink committable {entry!r} does not say what it was made of"
        raise CorruptStateError(msg)
    return parts


def _is_hidden(part: Any, bucket: str) -> bool:
    if type(part) is not str:
        return False
    directory, name = os.path.split(part)
    return directory == bucket and name.startswith(".")
