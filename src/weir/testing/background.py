"""Background work of backends, in tests: done when the test says so, on the test's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weir.errors import WeirError


class ManualBackground:
    """A `weir.backend.changelog.backend.BackgroundExecutor` whose work waits for `run`.

    With `inline` nothing waits: work is done where it is submitted.
    """

    def __init__(self, *, inline: bool = False) -> None:
        self.waiting: list[Callable[[], Any]] = []
        self.errors: list[Exception] = []
        self._inline = inline
        self._open = True

    def submit(self, work: Callable[[], Any], /) -> None:
        """Keep the work, or do it at once."""
        if self._open:
            self.waiting.append(work)
            if self._inline:
                self.run()

    def run(self) -> None:
        """Do all work that waits, in order; what it raises is kept in `errors`."""
        while self.waiting:
            work = self.waiting.pop(0)
            try:
                work()
            except (OSError, WeirError) as error:
                self.errors.append(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin nothing more."""
        self._open = False
        if cancel_futures:
            self.waiting.clear()
