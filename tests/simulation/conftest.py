"""Small epochs are handled in several strides and sent in several frames, as large ones are.

And states of a few numbers move into flat arrays, as large ones do.
"""

import logging
import tempfile
from collections.abc import Iterator

import pytest
from tests.databases import MEMORY

from weir.backend.hashmap import backend, flat_table
from weir.runtime import gather, subtask


@pytest.fixture(autouse=True)
def strides_of_few_records(monkeypatch):
    monkeypatch.setattr(subtask, "STRIDE_ROWS", 3)
    monkeypatch.setattr(gather, "FRAME_ROWS", 7)
    monkeypatch.setattr(backend, "FLAT_FROM", 2)
    monkeypatch.setattr(flat_table, "STRIDE_MIN", 2)


@pytest.fixture(autouse=True)
def few_traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local copies are in memory, and nobody keeps what thousands of jobs log."""
    monkeypatch.setattr(tempfile, "tempdir", MEMORY)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
