"""`Function`: the base of all user functions, below the modules that declare their kinds."""

from __future__ import annotations

from abc import ABC

from weir.datastream._runtime_context import RuntimeContext


class Function(ABC):  # noqa: B024 - the abstract methods are those of each kind
    """Base of all user functions: the life cycle around the calls per record.

    Example:
        class Prefixed(MapFunction):
            def open(self, runtime_context):
                self.prefix = runtime_context.get_job_parameter("prefix", "")

            def map(self, value):
                return self.prefix + str(value)
    """

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - optional hook
        """Prepare: called once per subtask and attempt, before the first record."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Tidy up: called once after the last record, also when the job failed."""
