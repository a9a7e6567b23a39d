"""Workload k in Weir and in PyFlink: the same text, from topic to topic, until it is killed.

Usage: python -m benchmarks.contenders.kafka_flink SPECIFICATION (see `benchmarks/kafka_ends.py`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.contenders.flink_api import (
    PYFLINK,
    Configuration,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
    record,
)
from benchmarks.contenders.flink_programs import Least
from benchmarks.contenders.kafka_rows import numbers, spec, text
from benchmarks.contenders.kafka_settings import TRANSACTION_MS, common, flink
from benchmarks.contenders.window_programs import LONG, longs

if PYFLINK:
    from pyflink.common.serialization import SimpleStringSchema
    from pyflink.datastream.connectors.base import DeliveryGuarantee
    from pyflink.datastream.connectors.kafka import (
        KafkaOffsetsInitializer,
        KafkaRecordSerializationSchema,
        KafkaSink,
        KafkaSource,
    )
else:
    from weir.common.serialization import SimpleStringSchema
    from weir.datastream.connectors.base import DeliveryGuarantee
    from weir.datastream.connectors.kafka import (
        KafkaOffsetsInitializer,
        KafkaRecordSerializationSchema,
        KafkaSink,
        KafkaSource,
    )


def settings(told: dict[str, Any]) -> dict[str, str]:
    """Return the configuration, in PyFlink with that of thread mode."""
    if not PYFLINK:
        return common(told)
    return {
        **common(told),
        **flink(),
        "python.execution-mode": "thread",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.bundle.size": "10000",
        "python.fn-execution.bundle.time": told["bundle_ms"],
        "python.state.cache-size": "1000000",
        "pipeline.jars": ";".join(Path(jar).as_uri() for jar in told["jars"]),
    }


def declare(env: Any, told: dict[str, Any]) -> None:
    """Declare the job."""
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(told["address"])
        .set_topics(told["input"])
        .set_group_id(told["output"])
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(told["output"])
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    guarantees = {
        "EXACTLY_ONCE": DeliveryGuarantee.EXACTLY_ONCE,
        "AT_LEAST_ONCE": DeliveryGuarantee.AT_LEAST_ONCE,
    }
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(told["address"])
        .set_record_serializer(serializer)
        .set_delivery_guarantee(guarantees[told["mode"]])
        .set_transactional_id_prefix(told["output"])
        .set_property("transaction.timeout.ms", TRANSACTION_MS)
        .build()
    )
    read = env.from_source(source, WatermarkStrategy.no_watermarks(), "input")
    pairs = read.map(lambda value: record(*numbers(value, 2)), longs(2))
    least = pairs.key_by(lambda row: row[0], LONG).flat_map(Least(), longs(3))
    least.map(lambda row: text(*row), Types.STRING()).sink_to(sink)


def main(told: dict[str, Any]) -> None:
    """Run until somebody kills this process."""
    if not PYFLINK:
        from benchmarks.contenders.on_spark import session

        session()
    configuration = Configuration()
    for key, value in settings(told).items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    declare(env, told)
    env.execute("k")


if __name__ == "__main__":
    main(spec(sys.argv[1]))
