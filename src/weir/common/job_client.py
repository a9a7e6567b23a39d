"""`JobClient`: the handle of a submitted job, which observes and steers it.

A protocol: engines fulfil it, and nothing that only needs the handle has to import an engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from weir.common.completable_future import CompletableFuture
from weir.common.job_id import JobID


class JobClient(Protocol):
    """Observes and steers one job; every method may be called from any thread.

    Example:
        def stop(job: JobClient):
            return job.stop_with_savepoint(False, "/savepoints").result()
    """

    def get_job_id(self) -> JobID:
        """Return the job's id."""

    def get_job_status(self) -> CompletableFuture:
        """Return the `JobStatus` of now."""

    def cancel(self) -> CompletableFuture:
        """Cancel the job; completes when it was told."""

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture:
        """Take a savepoint and stop; completes with the savepoint's path."""

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """Take a savepoint and go on; completes with the savepoint's path."""

    def get_accumulators(self) -> CompletableFuture:
        """Return the job's accumulators by name."""

    def get_job_execution_result(self) -> CompletableFuture:
        """Complete with the `JobExecutionResult` when the job ends, or with its error.

        That of a job that was cancelled is a `JobCancellationError`.
        """

    def collect_iterator(self, transformation_id: int) -> Iterator[Any]:
        """Return the records that reach a "collect" operator, in order of arrival.

        The iterator blocks for the next record, ends with the job, and raises the job's error, a
        `JobCancellationError` when it was cancelled.
        """
