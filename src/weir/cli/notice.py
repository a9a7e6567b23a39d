"""A word on standard error about what takes long, for waits that nobody can look into."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

SILENT_S = 2.0
LINE_EVERY_S = 5.0


@contextmanager
def notice(text: str, silent_s: float = SILENT_S) -> Iterator[None]:
    """Print the text every few seconds while the block runs, but not in the first ones."""
    over = threading.Event()

    def show() -> None:
        pause_s = silent_s
        while not over.wait(pause_s):
            click.echo(text, err=True)
            pause_s = LINE_EVERY_S

    thread = threading.Thread(target=show, name="weir-notice", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
