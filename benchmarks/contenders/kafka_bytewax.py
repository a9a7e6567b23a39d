"""Workload k in Bytewax with its Kafka connector: two processes, until they are killed.

Its sink is at least once: it waits for every batch to arrive, and writes those since the last
snapshot again after a failure. `bytewax.run` imports `flow` from here.

Usage: python -m benchmarks.contenders.kafka_bytewax SPECIFICATION (see `benchmarks/kafka_ends.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow

from benchmarks.contenders.bytewax_job import SNAPSHOT_SECONDS, free_ports
from benchmarks.contenders.kafka_rows import PARTITIONS, numbers, spec, text

_TOLD = "BENCHMARK_TASK"


def least(state: Any, row: Any) -> Any:
    """Every row with the least value of its key so far."""
    if state is None or row[1] < state:
        state = row[1]
    return state, (row[0], row[1], state)


def flow() -> Dataflow:
    """Return the dataflow; a key is a string in Bytewax."""
    told = spec(os.environ[_TOLD])
    made = Dataflow("k")
    read = op.input("input", made, KafkaSource([told["address"]], [told["input"]]))
    pairs = op.map("pair", read, lambda message: numbers(message.value.decode(), 2))
    keyed = op.key_on("key", pairs, lambda row: str(row[0]))
    found = op.stateful_map("least", keyed, least)
    lines = op.map("line", found, lambda pair: KafkaSinkMessage(None, text(*pair[1]).encode()))
    op.output("output", lines, KafkaSink([told["address"]], told["output"]))
    return made


def main(argument: str) -> None:
    """Start a process for each core, and wait: none of them ends by itself."""
    recovery = Path(spec(argument)["folder"], "recovery")
    recovery.mkdir()
    made = [sys.executable, "-m", "bytewax.recovery", str(recovery), str(PARTITIONS)]
    subprocess.run(made, check=True)
    addresses = ";".join(f"127.0.0.1:{port}" for port in free_ports(PARTITIONS))
    command = [sys.executable, "-m", "bytewax.run", f"{__spec__.name}:flow()"]
    command += ["-r", str(recovery), "-s", SNAPSHOT_SECONDS, "-b", "0", "-a", addresses]
    environment = os.environ | {_TOLD: argument}
    running = [
        subprocess.Popen([*command, "-i", str(worker)], env=environment)
        for worker in range(PARTITIONS)
    ]
    codes = [process.wait() for process in running]
    sys.exit(f"the workers ended with {codes}")


if __name__ == "__main__":
    main(sys.argv[1])
