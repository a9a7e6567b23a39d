"""Answers that the page needs beyond Flink's: how a job was over time; and logs and threads."""

from __future__ import annotations

import msgspec


class SlotSeries(msgspec.Struct, rename="kebab"):
    """One slot over time, a value for each point; null where there was no such slot."""

    subtask: int
    memory_bytes: list[int | None]
    cpu: list[float | None]
    busy: list[float | None]


class Series(msgspec.Struct, rename="kebab"):
    """A job over time: columns of one length. Rates are per second, times are milliseconds.

    A point stands for the `span` that ends at `at`. `epoch-duration` is the longest epoch in it,
    from reading on, which Spark, level 0, shuffles and slots share. `commit-duration` is how long
    the last commit took after its checkpoint, `latency` the longest time from reading to it. `lag`
    is how far the watermark was behind the clock.
    """

    at: list[int]
    span: list[int]
    records_in_rate: list[float]
    records_out_rate: list[float]
    epochs: list[int]
    epoch_duration: list[int | None]
    slot_duration: list[int | None]
    level_0_duration: list[int | None]
    spark_duration: list[int | None]
    shuffle_duration: list[int | None]
    commit_duration: list[int | None]
    latency: list[int | None]
    state_entries: list[int]
    state_size: list[int]
    lag: list[int | None]
    slots: list[SlotSeries]


class TimelineEvent(msgspec.Struct):
    """Something that happened: restart, rescale, savepoint, checkpoint failed, status."""

    at: int
    kind: str
    text: str


class Timeline(msgspec.Struct):
    """The last minutes, the whole life of the job in fewer points, and what happened."""

    recent: Series
    whole: Series
    events: list[TimelineEvent]


class SourceInfo(msgspec.Struct, rename="kebab"):
    """A source after its last batch; `behind` is how many rows or offsets wait, null if unknown."""

    description: str
    rows: int
    rows_per_second: float
    handled_per_second: float
    read_to: str | None
    latest: str | None
    behind: int | None


class Sources(msgspec.Struct):
    """The sources of a job, as far as its engine knows how far they are.

    `steps` are the milliseconds of the last batch in Spark, under the names of Spark's progress:
    `addBatch` is the epoch, `triggerExecution` everything.
    """

    sources: list[SourceInfo]
    steps: dict[str, int]


class Elsewhere(msgspec.Struct):
    """A job that another process serves; `link` leads to its page, with its token."""

    jid: str
    name: str
    state: str
    start_time: int = msgspec.field(name="start-time")
    link: str


class Page(msgspec.Struct):
    """What the page has to know of its server.

    A server of a host also knows jobs of other processes, and the programs of those that have
    ended, by id, which it can start again.
    """

    host: bool
    elsewhere: list[Elsewhere]
    programs: dict[str, str]


class LogInfo(msgspec.Struct):
    """A log: its size in bytes, and when it was written last, in milliseconds."""

    name: str
    size: int
    mtime: int


class Logs(msgspec.Struct):
    """Logs, the newest first."""

    logs: list[LogInfo]


class Flame(msgspec.Struct):
    """A call, how often it was seen, and the calls that it made."""

    name: str
    value: int
    children: list[Flame]


class FlameGraph(msgspec.Struct, rename="camel"):
    """Where threads were, as Flink tells it."""

    end_timestamp: int
    data: Flame


class ThreadInfo(msgspec.Struct, rename="camel"):
    """One thread, and where it is."""

    thread_name: str
    stringified_thread_info: str


class ThreadDump(msgspec.Struct, rename="camel"):
    """All threads of a process."""

    thread_infos: list[ThreadInfo]
