"""Kafka read by Spark's own connector, where a source asks for it.

There is no connector for Spark 4.3 to be had. That of 4.2 runs on it, with a part of 4.0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.brokers import refuse
from tests.kafka.topics import Topics
from tests.lakes import fetch_jars, kept, reason

from weir.common import WatermarkStrategy
from weir.common.serialization import SimpleStringSchema
from weir.datastream.connectors.kafka import KafkaSource
from weir.errors import UsageError

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]
PROGRAM = Path(__file__).parent / "programs" / "kafka_by_spark.py"
CONNECTOR, TOKENS = "4.2.0", "4.0.0"
_PARTS = (
    {
        "org.apache.spark": ("spark-sql-kafka-0-10_2.13", CONNECTOR),
        "org.apache.kafka": ("kafka-clients", "3.9.2"),
        "org.apache.commons": ("commons-pool2", "2.12.1"),
    },
    {"org.apache.spark": ("spark-token-provider-kafka-0-10_2.13", TOKENS)},
)


def connector() -> list[Path]:
    try:
        folders = [
            kept(f"spark-kafka-{CONNECTOR}-{n}", partial(fetch_jars, jars=part, alone=True))
            for n, part in enumerate(_PARTS)
        ]
    except (OSError, subprocess.SubprocessError) as error:
        refuse(f"Spark's Kafka connector cannot be fetched: {reason(error)}")
        raise
    return [jar for folder in folders for jar in sorted(folder.glob("*.jar"))]


def test_every_record_counts_once_through_a_kill_savepoints_and_the_own_reader(kafka, tmp_path):
    jars = ",".join(map(str, connector()))
    topic = Topics(kafka).new(2)
    path = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell",
        "SPARK_MASTER": "local[2]",
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM), kafka, topic, str(tmp_path)],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=350,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert sorted(found) == sorted(
        [f"{p}{key}", "k", "test", f"True-{p}-{5 * (n - 1) + key}", True, n]
        for p in range(2)
        for key in range(5)
        for n in range(1, 41)
    )


def test_a_spark_without_the_connector_says_what_brings_it(env, kafka):
    made = KafkaSource.builder().set_bootstrap_servers(kafka).set_topics("t")
    made.set_value_only_deserializer(SimpleStringSchema()).set_property("reader", "spark")
    env.from_source(made.build(), WatermarkStrategy.no_watermarks(), "in").print()
    with pytest.raises(
        UsageError, match=r"source 'Source: in': .*org\.apache\.spark:spark-sql-kafka-0-10"
    ):
        env.execute("refused")
