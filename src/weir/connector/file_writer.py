"""The writer behind `FileSink`: hidden part files, renamed to their visible name on commit.

A part is written as `.<prefix>-<operator>-<job>-a<attempt>-s<subtask>-<n>.inprogress` in its bucket
and becomes `<prefix>-<uid>-s<subtask>-c<checkpoint>-<n><suffix>`. The first 16 digits of the uid
tell job and operator, and the checkpoint is the first that its records can be in: that is how
output of newer checkpoints than the restored one is found again. The committable is the JSON object
`{"temp": path, "final": path, "size": bytes}`, so any subtask of any later attempt or job can
finish the rename; `weir.connector.compacting_writer` adds to it. Invariant: a visible file is
complete, durable and never written again.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from weir.connector.bucket import BucketAssigner, BucketContext, check_bucket_id
from weir.connector.compaction import Compaction
from weir.connector.file_format import OpenPart, PartWriter
from weir.connector.file_system import FileSystem, close_quietly, storage_errors
from weir.connector.rolling import OutputFileConfig, RollingPolicy
from weir.connector.sink import SinkWriter, WriterContext, blame
from weir.errors import CorruptStateError, StorageError
from weir.ids import murmur3_128, unique_suffix

MISSING_FILES = "numMissingFiles"
"""The counter of files that were gone when a restored checkpoint was to be committed again."""
log = logging.getLogger("weir.sink")
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
    compaction: Compaction | None = None


@dataclass
class _OpenPart:
    stream: BinaryIO
    writer: PartWriter
    temp: str
    number: int
    opened_ms: int
    written_ms: int


def temp_pattern(operator_id: str) -> re.Pattern[str]:
    """Return the pattern of an operator's hidden files; groups: job id, attempt."""
    return re.compile(
        rf"\..+-{re.escape(operator_id[:8])}-(.+)-a(\d+)-s\d+-\d+\.inprogress", re.DOTALL
    )


def owner_digits(job_id: str, operator_id: str) -> str:
    """Return the digits in the names of the files that an operator of a job made visible."""
    return murmur3_128(f"{job_id}-{operator_id}".encode()).hex()[:16]


@dataclass(frozen=True)
class ClosedPart:
    """A hidden file that is whole."""

    temp: str
    number: int
    size: int


class FileSinkWriter(SinkWriter):
    """Writes one subtask's records into part files, exactly once."""

    def __init__(
        self,
        context: WriterContext,
        layout: FileLayout,
        open_part: OpenPart,
        file_system: FileSystem,
        *,
        columns: Any = None,
    ) -> None:
        """Touch nothing yet: directories and files appear with the first record.

        `columns` is the Arrow schema of batches that parts take as they are, None for none.
        """
        self._columns = columns
        self._context = context
        self._layout = layout
        self._open_part = open_part
        self._fs = file_system
        self._clock = context.clock
        self._uid = owner_digits(context.job_id, context.operator_id) + unique_suffix(8)
        self._counter = 0
        self._open: dict[str, _OpenPart] = {}
        self._closed: list[ClosedPart] = []
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

    def write_columns(self, batch: Any) -> bool:
        """Append a batch, if parts take such and all of its records are of one bucket."""
        if self._columns is None or not batch.schema.equals(self._columns):
            return False
        now = self._clock.now_ms()
        context = BucketContext(now, self.current_watermark)
        bucket = self._layout.bucket_assigner.batch_bucket_id(context)
        if bucket is None:
            return False
        self._roll_by_time(now)
        if batch.num_rows:
            self._append_columns(check_bucket_id(bucket), batch, now)
        return True

    def _append_columns(self, bucket: str, batch: Any, now: int) -> None:
        policy = self._layout.rolling_policy
        rows = batch.num_rows if policy.part_size_bytes is None else SLICE_ROWS
        for start in range(0, batch.num_rows, rows):
            part = self._open.get(bucket) or self._start(bucket, now)
            with storage_errors("write", part.temp):
                part.writer.write_columns(batch.slice(start, rows))
            part.written_ms = now
            if policy.is_full(part.writer.size_bytes()):
                self._finish(bucket)

    def _group(
        self, values: list[Any], timestamps: list[int | None] | None, now: int
    ) -> dict[str, list[Any]]:
        get_bucket_id = self._layout.bucket_assigner.get_bucket_id
        watermark = self.current_watermark
        groups: dict[str, list[Any]] = {}
        value: Any = None
        try:
            for index, value in enumerate(values):
                time = timestamps[index] if timestamps is not None else None
                bucket = get_bucket_id(value, BucketContext(now, watermark, time))
                members = groups.get(bucket)
                if members is None:
                    groups[check_bucket_id(bucket)] = [value]
                else:
                    members.append(value)
        except BaseException as error:
            blame(error, value)
            raise
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
        stream, temp, number = self._create_hidden(directory)
        try:
            with storage_errors("write", temp):
                writer = self._open_part(stream)
        except BaseException:
            close_quietly(stream)
            self._fs.remove(temp)
            raise
        part = _OpenPart(stream, writer, temp, number, opened_ms=now, written_ms=now)
        self._open[bucket] = part
        return part

    def _create_hidden(self, directory: str) -> tuple[BinaryIO, str, int]:
        """Create a hidden file that nobody else has; its path and number come with it."""
        me, prefix = self._context, self._layout.names.part_prefix
        owner = f"{me.operator_id[:8]}-{me.job_id}-a{me.attempt}"
        while True:
            number, self._counter = self._counter, self._counter + 1
            temp = os.path.join(directory, f".{prefix}-{owner}-s{me.subtask}-{number}.inprogress")
            try:
                return self._fs.create(temp), temp, number
            except FileExistsError:
                continue

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
        self._closed.append(ClosedPart(part.temp, part.number, size))

    def prepare(self, checkpoint_id: int) -> list[bytes]:
        """Close and sync every part file; the names stay hidden."""
        for bucket in list(self._open):
            self._finish(bucket)
        for directory in sorted(self._directories):
            self._fs.sync_directory(directory)
        self._directories.clear()
        closed, self._closed = self._closed, []
        return [
            json.dumps(
                {"temp": p.temp, "final": self._final(p, checkpoint_id), "size": p.size}
            ).encode()
            for p in closed
        ]

    def _final(self, part: ClosedPart, checkpoint_id: int) -> str:
        names = self._layout.names
        mine = f"{self._uid}-s{self._context.subtask}-c{checkpoint_id}-{part.number}"
        name = f"{names.part_prefix}-{mine}{names.part_suffix}"
        return os.path.join(os.path.dirname(part.temp), name)

    def commit(self, committables: list[bytes]) -> None:
        """Rename part files to their visible names; finished ones are left alone."""
        self._publish_all(committables, restored=False)

    def restore(self, committables: list[bytes]) -> None:
        """Do the same for a restored checkpoint; readers may have taken files away meanwhile."""
        self._publish_all(committables, restored=True)

    def _publish_all(self, committables: list[bytes], *, restored: bool) -> None:
        directories = set()
        for committable in committables:
            entry = decode_committable(committable)
            final = entry["final"]
            if self._publish(entry["temp"], final, entry["size"], restored=restored):
                directories.add(os.path.dirname(final))
        for directory in sorted(directories):
            self._fs.sync_directory(directory)

    def _publish(self, temp: str, final: str, size: int, *, restored: bool) -> bool:
        """Make one file visible; False if it was visible before and is there no more."""
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
                return True
        published = self._fs.size(final)
        if published is None and restored:
            self._check_base(final)
            self._context.metrics.counter(MISSING_FILES).inc()
            log.warning(
                "part file %r of %d bytes is not there any more, nor is its hidden file %r: it was "
                "committed before, and a reader has moved or deleted it; going on without it",
                final,
                size,
                temp,
            )
            return False
        if published != size:
            state = "is missing" if published is None else f"has {published} bytes"
            message = (
                f"part file {final!r} {state}, its checkpoint recorded {size} bytes, and the "
                f"hidden file {temp!r} is gone too; bring it back or restore another checkpoint"
            )
            raise CorruptStateError(message)
        return True

    def _check_base(self, final: str) -> None:
        """Refuse to believe that a file was taken away when the whole directory is not there."""
        if not final.startswith(os.path.join(self._base, "")):
            return
        try:
            self._fs.sync_directory(self._base)
        except FileNotFoundError as error:
            message = (
                f"the directory {self._base!r} is not there, in which part file {final!r} is "
                "expected: mount it, or make it if a reader removed it"
            )
            raise StorageError(message) from error

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

    def take_back(self, keep: list[bytes], checkpoint_id: int) -> None:
        """Remove visible files of newer checkpoints, of this job and of the lineage."""
        # Hidden files go first: from here on nobody can make one of them visible any more.
        self.discard_leftovers(keep)
        pattern = self._visible_pattern()
        taken = [
            path
            for path in self._fs.walk(self._base)
            if (match := pattern.fullmatch(os.path.basename(path)))
            and int(match[1]) > checkpoint_id
        ]
        for path in taken:
            log.warning("taking back %r, committed after checkpoint %s", path, checkpoint_id)
            self._fs.remove(path)
        for directory in sorted(set(map(os.path.dirname, taken))):
            self._fs.sync_directory(directory)

    def _visible_pattern(self) -> re.Pattern[str]:
        """Return the pattern of what this job and its lineage made visible; group: checkpoint."""
        me, names = self._context, self._layout.names
        owners = "|".join(owner_digits(job, me.operator_id) for job in (me.job_id, *me.lineage))
        mine = rf"(?:{owners})[0-9a-f]{{8}}-s\d+-c(\d+)-\d+"
        return re.compile(f"{re.escape(names.part_prefix)}-{mine}{re.escape(names.part_suffix)}")

    def abort(self) -> None:
        """Remove the part files that no checkpoint knows."""
        for bucket in list(self._open):
            part = self._open.pop(bucket)
            part.writer.abandon()
            close_quietly(part.stream)
            self._fs.remove(part.temp)
        for closed in self._closed:
            self._fs.remove(closed.temp)
        self._closed.clear()


def decode_committable(committable: bytes) -> dict[str, Any]:
    """Return a committable's JSON object; `CorruptStateError` if it is not one."""
    try:
        entry = json.loads(committable)
    except (ValueError, RecursionError) as error:
        message = f"sink committable {committable!r} is not JSON; restore another checkpoint"
        raise CorruptStateError(message) from error
    kinds = {"temp": str, "final": str, "size": int}
    if type(entry) is not dict or any(type(entry.get(k)) is not kinds[k] for k in kinds):
        message = f"sink committable {committable!r} lacks temp, final or size"
        raise CorruptStateError(message)
    if not all(can_be_path(entry[kind]) for kind in ("temp", "final")):
        message = f"sink committable {committable!r} names files that cannot be"
        raise CorruptStateError(message)
    return entry


def can_be_path(text: str) -> bool:
    """Tell whether a text could be the name of a file here."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _slices(values: list[Any]) -> Iterator[list[Any]]:
    return (values[start : start + SLICE_ROWS] for start in range(0, len(values), SLICE_ROWS))
