"""Names of files as a pattern of Hadoop's."""

from __future__ import annotations

import pytest

from weir.spark.sources import glob_of


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["a.txt"], "{a.txt}"),
        (["a", "b c"], "{a,b c}"),
        (["a*?b"], r"{a\*\?b}"),
        (["{x},[y]^!"], r"{\{x\}\,\[y\]\^\!}"),
        (["a\\b"], r"{a\\b}"),
        (["wörd$(1)|+"], "{wörd$(1)|+}"),
    ],
)
def test_signs_of_patterns_stand_for_themselves(names, pattern):
    assert glob_of(names) == pattern
