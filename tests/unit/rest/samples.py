"""A job in the middle of its life: operators, slots, failures, checkpoints of every outcome."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.jobmanager.history import CheckpointEntry, HistoryView, RestoredEntry, SubtaskEntry
from weir.jobmanager.operations import (
    ExceptionView,
    JobView,
    SlotView,
    SubtaskView,
    VertexView,
)
from weir.jobmanager.queries import Answer, Facts, KeyRange, StateView, Terms
from weir.testing.manual_job import ManualJob

START = 1_700_000_000_000
JOB_ID = "0123456789abcdef" * 2
SOURCE, COUNT = "a" * 32, "b" * 32


def sample_view() -> JobView:
    source = VertexView(SOURCE, None, "Source: Collection", "source", 0, 2, 128, (), 0, 50)
    count = VertexView(
        COUNT,
        "count",
        'Count "words"\\',
        "process",
        1,
        2,
        128,
        ((SOURCE, "HASH"),),
        50,
        40,
        subtasks=(SubtaskView(0, 30, 20, 1000), SubtaskView(1, 20, 20)),
        states=("total",),
    )
    return JobView(
        job_id=JOB_ID,
        name='words "today"\n',
        status="RUNNING",
        start_ms=START,
        now_ms=START + 60_000,
        attempt=1,
        parallelism=2,
        epoch=17,
        vertices=(source, count),
        slots=(
            SlotView(0, "host-a", 4711, True, 12, "", 3, 1000, 5_000_000, 2_000, 1_500),
            SlotView(1, "host-a", None, False, 40),
        ),
        exceptions=(ExceptionView(START + 5000, "UserFunctionError", "the machine broke", 0),),
        configuration={"parallelism.default": "2", "execution.checkpointing.interval": "1 s"},
        checkpoint_settings=CheckpointSettings(
            interval_ms=1000, tolerable_failures=3, retention=Retention.RETAIN_ON_CANCELLATION
        ),
        checkpoint_dir="file:///checkpoints",
        savepoint_dir="file:///savepoints",
    )


def sample_history() -> HistoryView:
    acks = {
        i: SubtaskEntry(
            i,
            START + 2000 + 10 * i,
            sync_ms=1.5,
            async_ms=20.0,
            written=100,
            size=300,
            operators={COUNT: 90},
            in_flight_bytes=7 * i,
            in_flight_records=i,
            reused=200,
            state_sizes={COUNT: {"total": 250}},
        )
        for i in range(2)
    }
    pending = CheckpointEntry(4, START + 50_000, 2, acks={0: acks[0]})
    failed = CheckpointEntry(
        3,
        START + 4000,
        2,
        status="FAILED",
        duration_ms=500,
        failure="the disk is full",
        failure_ms=START + 4500,
    )
    savepoint = CheckpointEntry(
        2,
        START + 3000,
        2,
        is_savepoint=True,
        savepoint_format="CANONICAL",
        status="COMPLETED",
        acks=acks,
        duration_ms=80,
        path="file:///savepoints/savepoint-012345-aaaaaaaaaaaa",
    )
    first = CheckpointEntry(
        1,
        START + 1000,
        2,
        status="COMPLETED",
        overtook=True,
        acks=acks,
        duration_ms=40,
        path="file:///checkpoints/chk-1",
        discarded=True,
    )
    restored = RestoredEntry(1, START + 6000, False, "file:///checkpoints/chk-1")
    return HistoryView(9, 6, 2, 1, restored, (pending, failed, savepoint, first))


class SampleQueries:
    """One state, "counts", of two keys."""

    rows_by_key: ClassVar[dict[str, int]] = {"a": 1, "b": 2}

    def states(self) -> list[StateView]:
        types = {"key": "STRING", "value": "LONG"}
        columns = ("key", "value")
        return [StateView("counts", "count", "counts", "ValueState", types, columns, False, False)]

    def key(self, state: str, value: Any, *, text: bool = False) -> Any:
        return value

    def get(self, state: str, keys: Sequence[Any], terms: Terms, namespace: Any = None) -> Answer:
        found = [(key, self.rows_by_key[key]) for key in keys if key in self.rows_by_key]
        table = pa.table({"key": [k for k, _ in found], "value": [v for _, v in found]})
        return Answer(Facts(terms.level, 1, 2, 17, 0), table)

    def scan(self, state: str, wanted: KeyRange, terms: Terms) -> Answer:
        return self.get(state, list(self.rows_by_key), terms)

    def stream(
        self, state: str, terms: Terms, wanted: KeyRange | None = None
    ) -> tuple[Any, Iterator[Any]]:
        table = self.scan(state, KeyRange(), terms).table
        return table.schema, iter(table.to_batches())

    def rows(self, answer: Answer) -> list[dict[str, Any]]:
        return answer.table.to_pylist()


def sample_job(*, autocomplete: bool = True) -> ManualJob:
    job = ManualJob(view=sample_view(), autocomplete=autocomplete)
    job.checkpoints = sample_history()
    job.queries = SampleQueries()
    return job
