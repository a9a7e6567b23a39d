"""Workload k by Spark's `transformWithState` and Spark's Kafka connector, until it is killed.

That connector's sink is at least once. Checkpoints are those of every micro-batch; one begins a
second after the one before at the earliest.

Usage: python -m benchmarks.contenders.kafka_spark SPECIFICATION (see `benchmarks/kafka_ends.py`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.contenders.kafka_rows import PARTITIONS, VALUE_BYTES, spec

OUTPUT = "key bigint, value bigint, least bigint"


def session(told: dict[str, Any]) -> Any:
    """Return a plain session with the connector's jars."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    logs = Path(__file__).with_name("log4j2.properties")
    builder = SparkSession.builder.master("local[2]").appName("k")
    builder = builder.config("spark.jars", ",".join(told["jars"]))
    builder = builder.config("spark.driver.memory", "4g")
    builder = builder.config("spark.ui.enabled", "false")
    options = f"-Dlog4j2.configurationFile=file:{logs}"
    return builder.config("spark.driver.extraJavaOptions", options).getOrCreate()


def main(told: dict[str, Any]) -> None:
    """Run until somebody kills this process."""
    spark = session(told)
    from benchmarks.contenders import spark_state

    for key, value in spark_state.SETTINGS.items():
        spark.conf.set(key, value)
    spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    servers = {"kafka.bootstrap.servers": told["address"]}
    reader = spark.readStream.format("kafka").options(**servers)
    reader = reader.option("subscribe", told["input"]).option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", told["rows_per_batch"])
    parts = "split(cast(value as string), ',')"
    frame = reader.load().selectExpr(
        f"cast({parts}[0] as bigint) as key", f"cast({parts}[1] as bigint) as value"
    )
    least = spark_state.apply("tws-row", "least", frame)
    line = f"rpad(concat(key, ',', value, ',', least, ','), {VALUE_BYTES}, 'x') as value"
    writer = least.selectExpr(line).writeStream.format("kafka").options(**servers)
    writer = writer.option("topic", told["output"]).outputMode("append")
    writer = writer.option("checkpointLocation", str(Path(told["folder"], "checkpoints")))
    pause = "1 second" if told["rows_per_batch"] > 1_000 else "0 seconds"
    writer.trigger(processingTime=pause).start().awaitTermination()


if __name__ == "__main__":
    main(spec(sys.argv[1]))
