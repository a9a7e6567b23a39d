"""What a program is told beside its own output: warnings once, and signs of life.

A sign of life says that something takes long. Nobody hears it unless who runs the program wants to:
the command `weir run` does, and a notebook.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

Signs: TypeAlias = Callable[[str], AbstractContextManager[None]]
_said: set[str] = set()
_signs: Signs | None = None
_lock = threading.Lock()


def warn_once(logger: logging.Logger, message: str) -> None:
    """Log a warning, unless this process has logged the same one before."""
    with _lock:
        if message in _said:
            return
        _said.add(message)
    logger.warning("%s", message)


def under_way(text: str) -> AbstractContextManager[None]:
    """Let who runs the program show that something is under way, as long as the block runs."""
    return nullcontext() if _signs is None else _signs(text)


@contextmanager
def signs_shown_by(signs: Signs) -> Iterator[None]:
    """Show signs of life in this way meanwhile."""
    global _signs
    before, _signs = _signs, signs
    try:
        yield
    finally:
        _signs = before
