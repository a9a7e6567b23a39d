"""The sample of the configuration file works as it is, and so does every example in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.checkpoint.settings import Retention
from weir.config import file
from weir.config.effective import Settings
from weir.jobmanager.settings import JobSettings

SAMPLE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "weir-conf.yaml"


def test_the_sample_works_as_it_is(caplog):
    layer = file.read_file(SAMPLE)
    settings = JobSettings.of([layer])
    assert caplog.records == []
    assert settings.checkpoint.interval_ms == 30_000
    assert settings.checkpoint.retention is Retention.RETAIN_ON_CANCELLATION
    assert settings.checkpoint.num_retained == 3
    assert settings.savepoint_dir == "file:///var/lib/weir/savepoints"


def examples():
    return [line[2:] for line in SAMPLE.read_text("utf-8").splitlines() if line.startswith("#:")]


def test_all_examples_together_are_known_and_valid(caplog):
    text = SAMPLE.read_text("utf-8").replace("#:", "")
    layer = file.parse(text, "the sample")
    assert len(layer) == 6 + len(examples())
    assert Settings([layer]).validate() == []
    JobSettings.of([layer])
    assert "without effect" not in caplog.text


@pytest.mark.parametrize("line", examples())
def test_each_example_works_alone(line):
    layer = file.parse(line, "the example")
    assert len(layer) == 1
    JobSettings.of([layer])
