"""Warnings that a program gets once: what it asks for is accepted and changes nothing here."""

from __future__ import annotations

import logging
import threading

_said: set[str] = set()
_lock = threading.Lock()


def warn_once(logger: logging.Logger, message: str) -> None:
    """Log a warning, unless this process has logged the same one before."""
    with _lock:
        if message in _said:
            return
        _said.add(message)
    logger.warning("%s", message)
