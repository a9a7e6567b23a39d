"""One Spark session for the tests that can share it."""

from __future__ import annotations

import os

import pytest
from tests.spark.feeding import Feed


@pytest.fixture(scope="session")
def spark():
    os.environ["SPARK_MASTER"] = "local[2]"
    from weir.spark.session import get_spark

    session = get_spark("weir tests")
    yield session
    session.stop()


@pytest.fixture
def env(spark, tmp_path):
    """An environment with two subtasks whose logs and checkpoints lie in the test's directory."""
    from weir.common import Configuration
    from weir.datastream import StreamExecutionEnvironment

    configuration = Configuration()
    configuration.set_string("weir.log.dir", str(tmp_path / "logs"))
    made = StreamExecutionEnvironment.get_execution_environment(configuration)
    made.set_parallelism(2)
    return made


@pytest.fixture
def feed(tmp_path, monkeypatch):
    """Directories of a job that is fed file by file; commands of this process find its jobs."""
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    made = Feed(tmp_path)
    made.add()
    return made
