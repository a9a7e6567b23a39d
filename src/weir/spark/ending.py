"""How an execution attempt ends on purpose: with a savepoint, or to go on with other subtasks.

The attempt that carries it out takes one last barrier and lets no batch begin behind it, so that
nothing is done twice: what the barrier covers is exactly what has been done.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from weir.checkpoint.retention import CheckpointRef
from weir.graph.plan import JobPlan


@dataclass(eq=False)
class Ending:
    """One wish; `result` is what the person who asked waits for.

    With a `savepoint` (its URI) the job finishes, after all timers when it drains; with a `plan`
    it goes on with that plan. `reached` is the checkpoint that the attempt ended with.
    """

    savepoint: str | None = None
    native: bool = False
    drain: bool = False
    plan: JobPlan | None = None
    parallelism: int = 0
    result: Future[Any] = field(default_factory=Future)
    reached: CheckpointRef | None = None

    def fail(self, error: BaseException) -> None:
        """Tell the person who asked that it did not work out."""
        if not self.result.done():
            self.result.set_exception(error)

    def succeed(self, value: Any) -> None:
        """Tell the person who asked."""
        if not self.result.done():
            self.result.set_result(value)
