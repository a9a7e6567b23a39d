"""Small epochs are handled in several parts and sent in several frames, as large ones are."""

import pytest

from weir.runtime import gather, subtask


@pytest.fixture(autouse=True)
def parts_of_few_records(monkeypatch):
    monkeypatch.setattr(subtask, "PART_ROWS", 3)
    monkeypatch.setattr(gather, "FRAME_ROWS", 7)
