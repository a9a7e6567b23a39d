"""The programs with windows give the expected rows, without Spark: as records and as columns."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.contenders import flink_programs, window_programs
from benchmarks.workloads.catalogue import ALL, CLOSING_KEY, Workload
from benchmarks.workloads.checksum import of_rows
from benchmarks.workloads.dataset import Size, expect, generate
from benchmarks.workloads.rows import BLOCK

from weir.common import Types
from weir.datastream import StreamExecutionEnvironment
from weir.testing.harness import JobHarness, collect

SIZE = Size(2, BLOCK, 110)
WINDOWED = [workload for workload in ALL if workload.is_windowed]


def rows_of(partitions: list[Any]) -> list[tuple[int, ...]]:
    return [row for part in partitions for row in zip(*(c.tolist() for c in part), strict=True)]


def program(workload: Workload) -> tuple[StreamExecutionEnvironment, int]:
    """Return a workload as Weir runs it when results are verified, with a handle to them."""
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([], Types.TUPLE([Types.LONG() for _ in workload.columns]))
    if workload.has_event_time:
        stream = flink_programs.with_time(stream, workload)
    results = flink_programs.build(workload, stream, None, lambda row: row[0], True)
    return env, collect(results)


@pytest.mark.parametrize("workload", WINDOWED, ids=lambda w: w.name)
def test_a_program_gives_what_is_expected(workload: Workload) -> None:
    env, handle = program(workload)
    job = JobHarness(env.build_graph(), parallelism=2).start()
    epochs = list(generate(workload, SIZE))
    for partitions in epochs:
        job.run_epoch(rows_of(partitions))
    job.finish()
    found = [tuple(row) for row in job.collected(handle) if row[0] != CLOSING_KEY]
    if shape := window_programs.SHAPES.get(workload.kind):
        found = [row for result in found for row in shape(result)]
    assert of_rows(found, workload.groups) == expect(workload, SIZE, iter(epochs))[0]


def test_a_timed_run_in_processing_time_has_the_trigger_of_its_windows() -> None:
    workload = next(w for w in WINDOWED if w.kind == "processing-time")
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([], Types.TUPLE([Types.LONG() for _ in workload.columns]))
    timed = flink_programs.build(workload, stream, None, lambda row: row[0], False)
    (edge,) = timed.edges
    assert type(edge.source.options["window"].trigger).__name__ == "ProcessingTimeTrigger"
