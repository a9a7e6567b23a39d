"""A job in a notebook: a small panel that changes while the job runs.

IPython is never imported here: a kernel has done so itself. A panel ends with its job, and shows
texts as texts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final

from weir.jobmanager.epoch_times import EpochTimesView
from weir.jobmanager.timeline import Point

EVERY_S: Final = 1.0
_WIDTH, _HEIGHT = 240, 40
_POINTS: Final = 120
Show = Callable[[str], None]


def sparkline(points: Sequence[Point]) -> str:
    """Return records per second of the last minutes as a small picture; "" without any."""
    shown = points[-_POINTS:]
    if len(shown) < 2:
        return ""
    rates = [point.records_in * 1000 / point.span_ms for point in shown]
    most = max(*rates, 1.0)
    step = _WIDTH / (len(rates) - 1)
    line = " ".join(
        f"{i * step:.1f},{_HEIGHT - 1 - rate / most * (_HEIGHT - 2):.1f}"
        for i, rate in enumerate(rates)
    )
    label = f"records per second, {rates[-1]:,.0f} now, {most:,.0f} at most"
    return (
        f'<div>{escape(label)}</div><svg width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{escape(label)}"><polyline points="{line}" fill="none" '
        'stroke="currentColor"/></svg>'
    )


def time_rows(epochs: EpochTimesView) -> list[tuple[str, object]]:
    """Return where the time of the last epoch went, and the last latency, as named values."""
    if not epochs.count:
        return []
    parts = epochs.parts
    split = (
        f"{parts.whole_ms} ms: Spark {parts.spark_ms}, level 0 {parts.level_0_ms}, "
        f"shuffles {parts.shuffle_ms}, slots {parts.slot_ms}"
    )
    latency = None if epochs.latency_ms is None else f"{epochs.latency_ms} ms to commit"
    return [("last epoch", split), ("latency", latency)]


def page_line(link: str | None) -> str:
    """Return a link to the page of a job; nothing but a web address becomes one."""
    if link is None or not link.startswith(("http://", "https://")):
        return ""
    return f'<div><a href="{escape(link)}" target="_blank" rel="noreferrer">its page</a></div>'


def follow(show: Show, html: Callable[[], str], over: threading.Event, every_s: float) -> None:
    """Show how a job is until it is over, and then once more."""
    while not over.wait(every_s):
        show(html())
    show(html())


def display_panel(kernel: Any, html: Callable[[], str], over: threading.Event) -> None:
    """Show a panel by a kernel's `IPython.display`, and keep it up to date in a thread."""
    handle = kernel.display({"text/html": html()}, raw=True, display_id=True)

    def show(text: str) -> None:
        handle.update({"text/html": text}, raw=True)

    threading.Thread(
        target=follow, args=(show, html, over, EVERY_S), name="weir-panel", daemon=True
    ).start()
