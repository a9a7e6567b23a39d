"""How the demonstration looks: a live table in a terminal, plain lines elsewhere, or silence."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

_MILESTONES = 4
_TITLES = ("Output against an independent recount", "Committed records against a recount")


def open_screen(*, quiet: bool) -> PlainScreen:
    """Return the screen that fits where standard output goes."""
    if quiet:
        return QuietScreen()
    return LiveScreen() if sys.stdout.isatty() else PlainScreen()


class PlainScreen:
    """One line for every event and every quarter of the rows; good for logs."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._passed = 0

    def __enter__(self) -> PlainScreen:
        """Begin to show."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""

    def say(self, text: str) -> None:
        """Tell what happens next, or what happened."""
        self.console.print(text)

    def show(self, figures: Any) -> None:
        """Show the running job when it has come further by a quarter than ever before."""
        passed = _MILESTONES * figures.rows // max(1, figures.rows_total)
        if passed <= self._passed:
            return
        self._passed = passed
        self.console.print("  ".join(f"{name} {value}" for name, value in _cells(figures)))

    def result(self, result: Any) -> None:
        """Show the recount and the figures of the whole run."""
        table = Table(title=_TITLES[result.broker is not None])
        comparison = result.comparison
        for name in ("expected", "got", "lost", "duplicated", "different"):
            table.add_column(name, justify="right")
        table.add_row(
            *(
                f"{count:,}"
                for count in (
                    comparison.expected,
                    comparison.got,
                    comparison.lost,
                    comparison.duplicated,
                    comparison.different,
                )
            )
        )
        self.console.print(table)
        if result.kill is not None and result.kill.recovery_ms is not None:
            seconds = result.kill.recovery_ms / 1000
            self.console.print(f"From the kill to the first epoch after it: {seconds:.1f} s")
        if result.broker is not None and result.broker.recovery_ms is not None:
            seconds = result.broker.recovery_ms / 1000
            self.console.print(
                f"From the broker's death to the first records after it: {seconds:.1f} s"
            )
        if result.move is not None and result.move.resume_ms is not None:
            move = result.move
            self.console.print(
                f"Savepoint of {move.savepoint_bytes / 1e6:.1f} MB, job stopped with it in "
                f"{move.stop_ms / 1000:.1f} s; from {move.parallelism_before} to "
                f"{move.parallelism} subtasks, first epoch {move.resume_ms / 1000:.1f} s after the "
                "start"
            )
        who = "The job" if result.move is None else "Both jobs"
        self.console.print(
            f"{who} ran {result.seconds:.1f} s and completed {result.figures.checkpoints} "
            "checkpoints."
        )


class QuietScreen(PlainScreen):
    """Shows nothing; for programs that read the result."""

    def say(self, text: str) -> None:
        """Ignore it."""

    def show(self, figures: Any) -> None:
        """Ignore it."""


class LiveScreen(PlainScreen):
    """A table that stays in its place while events scroll by above it."""

    def __init__(self) -> None:
        super().__init__()
        self._live = Live(console=self.console, refresh_per_second=8, transient=True)

    def __enter__(self) -> PlainScreen:
        """Begin to show."""
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        self._live.stop()

    def show(self, figures: Any) -> None:
        """Show the running job."""
        self._live.update(live_view(figures))


def live_view(figures: Any) -> Table:
    """Return the running job as a bar and a table of figures."""
    grid = Table.grid(padding=(0, 3))
    for name, value in _cells(figures):
        grid.add_row(f"[dim]{name}[/dim]", value)
    view = Table.grid()
    view.add_row(ProgressBar(total=figures.rows_total, completed=figures.rows, width=50))
    view.add_row(grid)
    return view


def _cells(figures: Any) -> list[tuple[str, str]]:
    percent = 100 * figures.rows // max(1, figures.rows_total)
    return [
        ("time", f"{figures.seconds:.0f}s"),
        ("rows", f"{figures.rows:,} ({percent}%)"),
        ("rows/s", f"{figures.rows_per_second:,}"),
        ("epoch", f"{figures.epoch}"),
        (
            "checkpoints",
            f"{figures.checkpoints} (last {figures.checkpoint_bytes / 1e6:.1f} MB, "
            f"{figures.checkpoint_ms} ms)",
        ),
        ("state", f"{figures.state_entries:,} entries"),
        ("slots", f"{figures.slots}"),
        ("attempt", f"{figures.attempt}"),
    ]
