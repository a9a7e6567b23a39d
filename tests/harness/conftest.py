"""Every test that runs a program does so with whole frames and with strides of two records.

In strides of two records, numbers under integer keys are in flat arrays from the first one on.
"""

import pytest
from tests.examples import STRIDES

from weir.backend.hashmap import backend, flat_table
from weir.runtime import gather, subtask


@pytest.fixture(autouse=True, params=STRIDES)
def strides(request, monkeypatch):
    if request.param == "strides":
        monkeypatch.setattr(subtask, "STRIDE_ROWS", 2)
        monkeypatch.setattr(gather, "FRAME_ROWS", 3)
        monkeypatch.setattr(backend, "FLAT_FROM", 0)
        monkeypatch.setattr(flat_table, "STRIDE_MIN", 2)
