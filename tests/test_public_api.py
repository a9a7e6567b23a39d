"""The public API changes on purpose only: `tests/public_api.txt` is what releases promise."""

from __future__ import annotations

import difflib

import pytest
from tests.docs.public_api import DOORS, LOCK, PAGE, Api, lines, modules, names_of, render

HOW = (
    "the public API is not what is written down; if that is meant, run\n"
    "    make docs\n"
    "and commit tests/public_api.txt and docs/reference/api.md with the change and a line in "
    "CHANGELOG.md"
)

# Modules that PyFlink has or had, from 1.13 to 2.x.
PYFLINK = {
    "weir.common": """
        completable_future config_options configuration constants execution_config execution_mode
        input_dependency_constraint io job_client job_execution_result job_id job_status
        restart_strategy serialization serializer time typeinfo types utils watermark_strategy
    """,
    "weir.datastream": """
        async_data_stream async_retry_predicates async_retry_strategies checkpoint_config
        checkpoint_storage checkpointing_mode connectors data_stream execution_mode
        externalized_checkpoint_retention formats functions output_tag slot_sharing_group state
        state_backend stream_execution_environment time_characteristic time_domain timerservice
        utils window
    """,
    "weir.datastream.connectors": """
        base cassandra dynamic_kafka elasticsearch file_system hybrid_source jdbc kafka kinesis
        number_seq pulsar rabbitmq
    """,
    "weir.datastream.formats": "avro csv json orc parquet",
}


@pytest.fixture(scope="module")
def api() -> Api:
    return Api.of(modules())


def test_names_and_parameters_are_those_that_were_written_down(api: Api) -> None:
    promised = LOCK.read_text("utf-8").splitlines()
    changes = difflib.unified_diff(promised, lines(api), "promised", "found", lineterm="", n=0)
    assert "\n".join(changes) == "", HOW


def test_the_page_about_the_api_says_the_same(api: Api) -> None:
    assert PAGE.read_text("utf-8") == render(api), HOW


def test_public_modules_have_the_paths_of_pyflink(api: Api) -> None:
    known = {f"{package}.{name}" for package in PYFLINK for name in PYFLINK[package].split()}
    found = {module.__name__ for module in api.modules}
    assert sorted(found - known - set(DOORS) - {"weir.common", "weir.datastream"}) == []


def test_every_public_name_exists_and_is_explained(api: Api) -> None:
    unexplained = [
        f"{module.__name__}.{name}"
        for module in api.modules
        for name in names_of(module)
        if callable(getattr(module, name)) and not getattr(module, name).__doc__
    ]
    assert unexplained == []
