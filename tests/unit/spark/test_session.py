"""What a session needs before it is started."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from weir.errors import UsageError
from weir.spark.session import _socket_dir, get_spark


def test_threads_that_are_not_pinned_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(UsageError, match="PYSPARK_PIN_THREAD is off: unset it"):
        get_spark()


def test_sockets_have_a_path_that_is_short_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert len(_socket_dir()) + 43 <= 104
