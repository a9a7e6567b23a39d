"""`JobExecutionResult`: what is left of a job that has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weir.common.job_id import JobID

__all__ = ["JobExecutionResult"]


@dataclass(frozen=True)
class JobExecutionResult:
    """Identity, run time and accumulators of a finished job.

    Example:
        stream.print()
        result = env.execute("payments")
        result.get_job_id(), result.get_net_runtime()
    """

    job_id: JobID
    net_runtime_ms: int = 0
    accumulators: dict[str, Any] = field(default_factory=dict)

    def get_job_id(self) -> JobID:
        """Return the job's id."""
        return self.job_id

    def is_job_execution_result(self) -> bool:
        """Return True: the job was executed here and has ended."""
        return True

    def get_net_runtime(self) -> int:
        """Return the run time in milliseconds."""
        return self.net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return one accumulator, None when there is none of that name."""
        return self.accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Return all accumulators."""
        return dict(self.accumulators)

    def __str__(self) -> str:
        """Say what ended and how long it ran."""
        return f"Job with JobID {self.job_id} has finished after {self.net_runtime_ms} ms."
