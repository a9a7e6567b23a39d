"""Workload k in Flink Java: becomes the process of `KafkaLeast`, with Flink's own JVM options.

Usage: python -m benchmarks.contenders.kafka_java SPECIFICATION (see `benchmarks/kafka_ends.py`), in
PyFlink's environment, which has Flink's jars.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.contenders.kafka_rows import spec
from benchmarks.contenders.kafka_settings import TRANSACTION_MS, common, flink


def command(told: dict[str, Any]) -> list[str]:
    """Return how to start it; the jars are classes, connector and all of Flink's."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    logs = Path(__file__).with_name("log4j2.properties")
    jars = told["jars"]
    settings = [f"{key}={value}" for key, value in {**common(told), **flink()}.items()]
    return [
        *(str(java), *os.environ["JVM_ARGS"].split(), *_options(Path(jars[-1]).parents[1])),
        *(f"-Dlog4j2.configurationFile={logs.as_uri()}", "-cp", os.pathsep.join(jars)),
        *("KafkaLeast", told["address"], told["input"], told["output"], told["mode"]),
        *(TRANSACTION_MS, *settings),
    ]


def _options(home: Path) -> list[str]:
    """Return what Flink's own configuration gives its JVMs: modules that it looks into."""
    text = (home / "conf" / "config.yaml").read_text()
    return re.findall(r"--add-(?:opens|exports)=\S+", text)


if __name__ == "__main__":
    words = command(spec(sys.argv[1]))
    os.execv(words[0], words)
