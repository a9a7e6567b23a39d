"""PyFlink's own examples for Kafka, as it ships them, with nothing but their imports changed.

They are those of the directory that `WEIR_PYFLINK_EXAMPLES` names, of the PyFlink of the
benchmarks, or of a wheel, which is fetched once, without what it depends on, into the user's cache.
`tests.pyflink_examples` runs all of its examples by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.environments import VENVS
from tests import brokers, pyflink_examples
from tests.kafka.topics import Topics
from tests.lakes import kept, reason
from tests.pyflink_examples import Case

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
CASES = [case for case in pyflink_examples.CASES if case.topic and case.reads_for_ever]
VERSION = "2.3.0"
_EXAMPLES = "pyflink/examples/datastream"
_FETCH_S = 120
# The examples are the same in all wheels, and nothing that was built is run.
_WHEEL = ("--only-binary=:all:", "--python-version=3.11", "--platform=manylinux2014_x86_64")


def _fetch(made: Path) -> None:
    folder = made.with_name("wheel")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", f"--dest={folder}"]
    command += [*_WHEEL, f"apache-flink=={VERSION}"]
    subprocess.run(command, check=True, capture_output=True, timeout=_FETCH_S)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{_EXAMPLES}/")]
        archive.extractall(made, names)


@pytest.fixture(scope="module")
def examples() -> Path:
    """The examples of a PyFlink that is there, or of one that is fetched for them."""
    named = os.environ.get("WEIR_PYFLINK_EXAMPLES")
    if named:
        return Path(named)
    installed = sorted(VENVS.glob(f"pyflink/lib/python*/site-packages/{_EXAMPLES}"))
    if installed:
        return installed[-1]
    try:
        return kept(f"pyflink-examples-{VERSION}", _fetch) / _EXAMPLES
    except (OSError, subprocess.SubprocessError) as error:
        brokers.refuse(f"PyFlink's examples cannot be fetched: {reason(error)}")
        raise


@pytest.fixture(scope="module")
def topics(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """A broker of its own: the examples name their topics."""
    with brokers.own("kafka", tmp_path_factory.mktemp("kafka")) as broker:
        made = Topics(broker.address)
        for case in CASES:
            made.new(name=case.topic)
        yield made


@pytest.mark.parametrize("case", CASES, ids=lambda case: Path(case.path).stem)
def test_an_example_of_pyflink_for_kafka_prints_what_pyflink_prints(
    case: Case, examples: Path, topics: Topics, tmp_path: Path
) -> None:
    if not (examples / case.path).exists():
        pytest.skip(f"this version of PyFlink has no {case.path}")
    found = pyflink_examples.run(case, examples, tmp_path, topics)
    assert found.result == "as PyFlink"
