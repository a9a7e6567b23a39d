"""The writer behind `FileSink`: hidden part files, renamed to their visible name on commit.

A part is written as `.<prefix>-<operator>-<job>-a<attempt>-s<subtask>-<n>.inprogress` in its bucket
and becomes `<prefix>-<uid>-s<subtask>-<n><suffix>`. The committable is the JSON object
`{"temp": path, "final": path, "size": bytes}`, so any subtask of any later attempt or job can
finish the rename. Invariant: a visible file is complete, durable and never written again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from weir.connector.bucket import BucketAssigner, BucketContext, check_bucket_id
from weir.connector.file_format import OpenPart, PartWriter
from weir.connector.file_system import FileSystem, close_quietly, storage_errors
from weir.connector.rolling import OutputFileConfig, RollingPolicy
from weir.connector.sink import SinkWriter, WriterContext
from weir.errors import CorruptStateError
from weir.ids import unique_suffix

# Size limits are checked between slices, so a part exceeds its limit by at most one slice.
SLICE_ROWS = 4096


@dataclass(frozen=True)
class FileLayout:
    """Where files go, when they close and what they are called."""

    base_path: str
    bucket_assigner: BucketAssigner
    rolling_policy: RollingPolicy
    names: OutputFileConfig
    check_interval_ms: int = 60_000


@dataclass
class _OpenPart:
    stream: BinaryIO
    writer: PartWriter
    temp: str
    final: str
    opened_ms: int
    written_ms: int


def temp_pattern(operator_id: str) -> re.Pattern[str]:
    """Return the pattern of an operator's hidden files; groups: job id, attempt."""
    return re.compile(
        rf"\..+-{re.escape(operator_id[:8])}-(.+)-a(\d+)-s\d+-\d+\.inprogress", re.DOTALL
    )


class FileSinkWriter(SinkWriter):
    """Writes one subtask's records into part files, exactly once."""

    def __init__(
        self,
        context: WriterContext,
        layout: FileLayout,
        open_part: OpenPart,
        file_system: FileSystem,
    ) -> None:
        """Touch nothing yet: directories and files appear with the first record."""
        self._context = context
        self._layout = layout
        self._open_part = open_part
        self._fs = file_system
        self._clock = context.clock
        self._uid = unique_suffix(16)
        self._counter = 0
        self._open: dict[str, _OpenPart] = {}
        self._closed: list[bytes] = []
        self._directories: set[str] = set()
        self._last_check_ms = context.clock.now_ms()

    def write_batch(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Append records to the part files of their buckets, rolling where the policy says."""
        if not values:
            return
        now = self._clock.now_ms()
        self._roll_by_time(now)
        context = BucketContext(now, self.current_watermark)
        bucket = self._layout.bucket_assigner.batch_bucket_id(context)
        if bucket is not None:
            self._append(check_bucket_id(bucket), values, now)
            return
        for name, members in self._group(values, timestamps, now).items():
            self._append(name, members, now)

    def _group(
        self, values: list[Any], timestamps: list[int | None] | None, now: int
    ) -> dict[str, list[Any]]:
        get_bucket_id = self._layout.bucket_assigner.get_bucket_id
        watermark = self.current_watermark
        groups: dict[str, list[Any]] = {}
        for index, value in enumerate(values):
            time = timestamps[index] if timestamps is not None else None
            bucket = get_bucket_id(value, BucketContext(now, watermark, time))
            members = groups.get(bucket)
            if members is None:
                groups[check_bucket_id(bucket)] = [value]
            else:
                members.append(value)
        return groups

    def _append(self, bucket: str, values: list[Any], now: int) -> None:
        policy = self._layout.rolling_policy
        bounded = policy.part_size_bytes is not None and len(values) > SLICE_ROWS
        for chunk in _slices(values) if bounded else (values,):
            part = self._open.get(bucket) or self._start(bucket, now)
            with storage_errors("write", part.temp):
                part.writer.write(chunk)
            part.written_ms = now
            if policy.is_full(part.writer.size_bytes()):
                self._finish(bucket)

    def _start(self, bucket: str, now: int) -> _OpenPart:
        directory = os.path.join(self._layout.base_path, bucket) if bucket else self._base
        self._fs.make_directory(directory)
        names, me = self._layout.names, self._context
        prefix, subtask = names.part_prefix, me.subtask
        owner = f"{me.operator_id[:8]}-{me.job_id}-a{me.attempt}"
        while True:
            number, self._counter = self._counter, self._counter + 1
            temp = os.path.join(directory, f".{prefix}-{owner}-s{subtask}-{number}.inprogress")
            try:
                stream = self._fs.create(temp)
            except FileExistsError:
                continue
            break
        final = os.path.join(
            directory, f"{prefix}-{self._uid}-s{subtask}-{number}{names.part_suffix}"
        )
        try:
            with storage_errors("write", temp):
                writer = self._open_part(stream)
        except BaseException:
            close_quietly(stream)
            self._fs.remove(temp)
            raise
        part = _OpenPart(stream, writer, temp, final, now, now)
        self._open[bucket] = part
        return part

    @property
    def _base(self) -> str:
        return self._layout.base_path

    def _roll_by_time(self, now: int) -> None:
        if now - self._last_check_ms < self._layout.check_interval_ms:
            return
        self._last_check_ms = now
        policy = self._layout.rolling_policy
        for bucket, part in list(self._open.items()):
            if policy.is_due(now - part.opened_ms, now - part.written_ms):
                self._finish(bucket)

    def _finish(self, bucket: str) -> None:
        part = self._open[bucket]
        with storage_errors("write", part.temp):
            part.writer.finish()
        self._fs.sync(part.stream)
        size = part.stream.tell()
        part.stream.close()
        del self._open[bucket]
        self._directories.add(os.path.dirname(part.temp))
        self._closed.append(
            json.dumps({"temp": part.temp, "final": part.final, "size": size}).encode()
        )

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        """Close and sync every part file; the names stay hidden."""
        for bucket in list(self._open):
            self._finish(bucket)
        for directory in sorted(self._directories):
            self._fs.sync_directory(directory)
        self._directories.clear()
        prepared, self._closed = self._closed, []
        return prepared

    def commit(self, committables: list[bytes]) -> None:
        """Rename part files to their visible names; finished ones are left alone."""
        directories = set()
        for committable in committables:
            entry = decode_committable(committable)
            self._publish(entry["temp"], entry["final"], entry["size"])
            directories.add(os.path.dirname(entry["final"]))
        for directory in sorted(directories):
            self._fs.sync_directory(directory)

    def _publish(self, temp: str, final: str, size: int) -> None:
        found = self._fs.size(temp)
        if found is not None and found != size:
            message = (
                f"part file {temp!r} has {found} bytes, its checkpoint recorded {size}; "
                "restore another checkpoint or bring the file back"
            )
            raise CorruptStateError(message)
        if found is not None:
            try:
                self._fs.rename(temp, final)
            except FileNotFoundError:
                # A job forked from the same savepoint may have been first.
                found = None
            else:
                return
        published = self._fs.size(final)
        if published != size:
            state = "is missing" if published is None else f"has {published} bytes"
            message = (
                f"part file {final!r} {state}, its checkpoint recorded {size} bytes, and the "
                f"hidden file {temp!r} is gone too; bring it back or restore another checkpoint"
            )
            raise CorruptStateError(message)

    def discard_leftovers(self, keep: list[bytes]) -> None:
        """Remove hidden part files of earlier attempts and of the lineage."""
        kept = {decode_committable(committable)["temp"] for committable in keep}
        pattern = temp_pattern(self._context.operator_id)
        me = self._context
        for path in list(self._fs.walk(self._base)):
            match = pattern.fullmatch(os.path.basename(path))
            if match is None or path in kept:
                continue
            job, attempt = match[1], int(match[2])
            if job in me.lineage or (job == me.job_id and attempt < me.attempt):
                self._fs.remove(path)

    def abort(self) -> None:
        """Remove the part files that no checkpoint knows."""
        for bucket in list(self._open):
            part = self._open.pop(bucket)
            part.writer.abandon()
            close_quietly(part.stream)
            self._fs.remove(part.temp)
        for committable in self._closed:
            self._fs.remove(decode_committable(committable)["temp"])
        self._closed.clear()


def decode_committable(committable: bytes) -> dict[str, Any]:
    """Return a committable's JSON object; `CorruptStateError` if it is not one."""
    try:
        entry = json.loads(committable)
    except ValueError as error:
        message = f"sink committable {committable!r} is not JSON; restore another checkpoint"
        raise CorruptStateError(message) from error
    if not isinstance(entry, dict) or not {"temp", "final", "size"} <= entry.keys():
        message = f"sink committable {committable!r} lacks temp, final or size"
        raise CorruptStateError(message)
    return entry


def _slices(values: list[Any]) -> Iterator[list[Any]]:
    return (values[start : start + SLICE_ROWS] for start in range(0, len(values), SLICE_ROWS))
