"""Every test that runs a program does so with whole frames and with parts of two records.

In parts of two records, numbers under integer keys are in flat arrays from the first one on.
"""

import pytest

from weir.backend.hashmap import backend, flat_table
from weir.runtime import gather, subtask


@pytest.fixture(autouse=True, params=["whole", "parts"])
def parts(request, monkeypatch):
    if request.param == "parts":
        monkeypatch.setattr(subtask, "PART_ROWS", 2)
        monkeypatch.setattr(gather, "FRAME_ROWS", 3)
        monkeypatch.setattr(backend, "FLAT_FROM", 0)
        monkeypatch.setattr(flat_table, "PART_MIN", 2)
