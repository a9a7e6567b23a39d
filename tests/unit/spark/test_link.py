"""The link to the page of a job is shown to people, and to nobody else."""

from __future__ import annotations

import os
import sys

import pytest

from weir.spark.execution import _tell

LINK = "http://localhost:1/#/jobs/x?token=secret"


def test_a_terminal_shows_the_link_when_a_job_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, terminal = os.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        _tell(LINK)
        shown = os.read(screen, 1_000).decode()
    os.close(screen)
    assert shown.strip() == f"weir: the page of the job: {LINK}"


def test_a_log_does_not_get_the_token(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "log").open("w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        _tell(LINK)
    assert (tmp_path / "log").read_text() == ""
