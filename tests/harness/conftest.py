"""Every test that runs a program does so with whole frames and with parts of two records."""

import pytest

from weir.runtime import gather, subtask


@pytest.fixture(autouse=True, params=["whole", "parts"])
def parts(request, monkeypatch):
    if request.param == "parts":
        monkeypatch.setattr(subtask, "PART_ROWS", 2)
        monkeypatch.setattr(gather, "FRAME_ROWS", 3)
