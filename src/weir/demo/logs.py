"""Where the demo's logs go, so that the screen stays readable."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Send the driver's own log to a file."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("weir")
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.propagate, logger.level = before
        logger.removeHandler(handler)
        handler.close()


@contextmanager
def errors_to(path: Path) -> Iterator[None]:
    """Let a JVM that starts meanwhile inherit a file as its standard error."""
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
