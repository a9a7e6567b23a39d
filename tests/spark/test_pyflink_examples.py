"""PyFlink's own examples for Kafka, as it ships them, with nothing but their imports changed.

They are those of a PyFlink that is installed: that of the benchmarks, or the directory that
`WEIR_PYFLINK_EXAMPLES` names. `tests.pyflink_examples` runs all of its examples by hand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.environments import VENVS
from tests import brokers, pyflink_examples
from tests.kafka.topics import Topics
from tests.pyflink_examples import Case

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
CASES = [case for case in pyflink_examples.CASES if case.topic and case.reads_for_ever]
_INSTALLED = "pyflink/lib/python*/site-packages/pyflink/examples/datastream"


@pytest.fixture(scope="module")
def examples() -> Path:
    """The examples of an installed PyFlink."""
    named = os.environ.get("WEIR_PYFLINK_EXAMPLES")
    found = [Path(named)] if named else sorted(VENVS.glob(_INSTALLED))
    if not found:
        pytest.skip(
            "no PyFlink is installed: 'make bench' installs one, and WEIR_PYFLINK_EXAMPLES names "
            "the directory pyflink/examples/datastream of another"
        )
    return found[-1]


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
