"""An engine that runs nothing: it keeps what was submitted and answers with what it is given."""

from __future__ import annotations

from weir.common import Configuration, JobExecutionResult, JobStatus
from weir.common.completable_future import CompletableFuture
from weir.common.job_id import JobID
from weir.errors import JobCancellationError
from weir.graph.transformation import StreamGraph

JOB_ID = JobID("0123456789abcdef0123456789abcdef")


class RecordingEngine:
    """Keeps every submission; its jobs have ended, or run until they are cancelled."""

    def __init__(self, records=(), status=JobStatus.FINISHED):
        self.records = list(records)
        self.status = status
        self.submitted: list[tuple[StreamGraph, Configuration]] = []
        self.collected: list[int] = []

    def submit(self, graph, configuration):
        self.submitted.append((graph, configuration))
        return self

    def get_job_id(self):
        return JOB_ID

    def get_job_status(self):
        return CompletableFuture.completed(self.status)

    def cancel(self):
        self.status = JobStatus.CANCELED
        return CompletableFuture.completed(None)

    def get_job_execution_result(self):
        if self.status is JobStatus.CANCELED:
            cancelled = CompletableFuture()
            cancelled.complete_exceptionally(JobCancellationError(f"job {JOB_ID} was cancelled"))
            return cancelled
        return CompletableFuture.completed(JobExecutionResult(JOB_ID, 5, {}))

    def collect_iterator(self, transformation_id):
        self.collected.append(transformation_id)
        yield from self.records
        self.get_job_execution_result().result()
