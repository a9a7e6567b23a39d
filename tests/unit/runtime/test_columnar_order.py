"""Sorting by digits is sorting."""

from __future__ import annotations

import numpy as np
import pytest

from weir.runtime.columnar import stable_order


@pytest.mark.parametrize("count", [1, 2, 65_536, 65_537, 200_000])
def test_rows_come_by_key_and_keep_their_order_within_one(count: int) -> None:
    codes = np.random.default_rng(count).integers(0, count, 300_000)
    codes[-1] = count - 1
    assert (stable_order(codes, count) == np.argsort(codes, kind="stable")).all()


def test_no_rows_have_an_order_too() -> None:
    assert stable_order(np.array([], np.int64), 0).tolist() == []
