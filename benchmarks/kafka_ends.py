"""Workload k: Kafka, the least value per key, Kafka; rows a second, and latency at 1,000 rows/s.

Exactly once, a checkpoint every second, values of 100 bytes, two subtasks, two partitions, on a
broker beside it, which this program starts. What is measured is seen from outside, alike for all:

* Rows a second: how far a topic is committed is asked ten times a second. The steady part begins
  when a quarter of the rows can be seen, and ends with the last change. CPU seconds are those of
  the contender's processes in that time, without the broker.
* Latency: a row carries the time of its sending; a reader of committed records subtracts it from
  its own. The first rows warm up.

Then the contender is killed. What a measurement of rows a second left behind is read and compared
with a recount: a wrong result has no figures.

Usage: python -m benchmarks.kafka_ends [--contenders weir,pyflink,tws] [--smoke] [--output FILE]
       [--rows N] [--seconds N]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks import environments
from benchmarks.contenders.kafka_rows import PARTITIONS, expected, numbers, text
from benchmarks.workloads.checksum import Checksum, of_rows
from weir.clock import SystemClock
from weir.demo.kafka_server import KafkaServer, require_kafka

SEED = 7
KEYS = 100_000
RATE = 1_000
WARM = 0.25
POLL_S = 0.1
QUIET_S = 3.0
LIMIT_S = 300.0
_MARK = "WEIR_BENCHMARK_RUN"
CONNECTORS = {
    # The newest whose API is that of Flink 2; it has everything inside.
    "pyflink": ("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2"),
    "tws": ("org.apache.spark", "spark-sql-kafka-0-10_2.13", None),
}


@dataclass(frozen=True)
class Contender:
    """One way to do it; slow ones get fewer rows."""

    name: str
    environment: str
    module: str
    rows: int
    modes: tuple[str, ...] = ("EXACTLY_ONCE", "AT_LEAST_ONCE")


CONTENDERS = {
    found.name: found
    for found in (
        Contender("weir", "weir", "benchmarks.contenders.kafka_flink", 3_000_000),
        Contender("pyflink", "pyflink", "benchmarks.contenders.kafka_flink", 200_000),
        Contender("tws", "spark", "benchmarks.contenders.kafka_spark", 200_000, ("AT_LEAST_ONCE",)),
    )
}


@dataclass
class Figures:
    """What one run found; `error` instead of figures where it failed or its result was wrong."""

    contender: str
    mode: str
    rows: int = 0
    rows_per_second: float | None = None
    rows_per_cpu_second: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    error: str | None = None


class Topics:
    """What this program does to the broker."""

    def __init__(self, address: str) -> None:
        """Connect."""
        self.address = address
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def new(self) -> str:
        """Make a topic."""
        name = f"k{uuid.uuid4().hex[:8]}"
        for future in self._admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            future.result()
        return name

    def producer(self) -> Any:
        """Return a client that sends every row once."""
        return Producer(
            {
                "bootstrap.servers": self.address,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
            }
        )

    def visible(self, topic: str) -> int:
        """Return how far the topic is committed, in all partitions together."""
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
        level = IsolationLevel.READ_COMMITTED
        try:
            futures = self._admin.list_offsets(asked, isolation_level=level)
            return sum(future.result().offset for future in futures.values())
        except KafkaException as error:
            if error.args[0].code() != KafkaError.FENCED_LEADER_EPOCH:
                raise
            # The client goes by leaders of before; a new one is asked the next time.
            self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            return 0

    def consumer(self, topic: str) -> Any:
        """Return a reader of all committed records."""
        made = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        made.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        return made

    def read(self, topic: str) -> Iterator[tuple[int, ...]]:
        """Return all committed records: key, value, least value."""
        consumer, ended = self.consumer(topic), set()
        while len(ended) < PARTITIONS:
            for message in consumer.consume(10_000, timeout=0.5):
                if message.error() is None:
                    yield numbers(message.value().decode(), 3)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                elif not message.error().retriable():
                    raise KafkaException(message.error())
        consumer.close()


def rows_of(count: int) -> Iterator[tuple[int, int]]:
    """Return seeded keys and values; fewer are the beginning of more."""
    made = 0
    while made < count:
        rng = np.random.default_rng([SEED, made])
        size = min(10_000, count - made)
        keys, values = rng.integers(0, KEYS, 10_000), rng.integers(0, 1_000_000_000, 10_000)
        yield from zip(keys[:size].tolist(), values[:size].tolist(), strict=True)
        made += size


def checksum(rows: Iterator[tuple[int, ...]]) -> Checksum:
    """Return what tells sets of output rows apart."""
    total = Checksum()
    while chunk := list(itertools.islice(rows, 100_000)):
        total += of_rows(chunk, ((0, 1, 2),))
    return total


def send(producer: Any, topic: str, row: tuple[int, int]) -> None:
    """Send a row to the partition of its key."""
    while True:
        try:
            producer.produce(topic, text(*row), partition=row[0] % PARTITIONS)
        except BufferError:
            producer.poll(0.05)
            continue
        producer.poll(0)
        return


class Running:
    """A contender's processes, which know each other by a variable, and are killed together."""

    def __init__(self, contender: Contender, told: dict[str, Any]) -> None:
        """Start it."""
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self._log = Path(told["folder"], "log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(environments.python_of(contender.environment)),
                    *("-m", contender.module, json.dumps(told)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=environments.ROOT,
                env=environments.variables(contender.environment) | {name: value},
                start_new_session=True,
            )

    def _all(self) -> list[Path]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append(process)
            except OSError:  # noqa: PERF203 - it has ended meanwhile
                continue
        return found

    def cpu_seconds(self) -> float:
        """Return what all processes and their ended children have used."""
        ticks = 0
        for process in self._all():
            try:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def check(self) -> None:
        """Raise what it said, if it has ended."""
        if self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").strip().splitlines() or ["no output"]
            msg = f"ended by itself: {lines[-1][:300]}"
            raise RuntimeError(msg)

    def kill(self) -> None:
        """Kill everything that it started; what starts meanwhile is killed in the next turn."""
        while found := self._all():
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process.name), signal.SIGKILL)
            self._process.poll()
            time.sleep(0.05)
        self._process.wait()


class Bench:
    """Measures contenders on one broker."""

    def __init__(self, address: str, work: Path, jars: dict[str, list[str]]) -> None:
        """Begin with no topic."""
        self._topics = Topics(address)
        self._work = work
        self._jars = jars

    def _start(
        self, contender: Contender, mode: str, topic: str, rows_per_batch: int
    ) -> tuple[Running, str, Path]:
        folder = Path(tempfile.mkdtemp(dir=self._work))
        output = self._topics.new()
        told = {
            "address": self._topics.address,
            "input": topic,
            "output": output,
            "folder": str(folder),
            "mode": mode,
            "jars": self._jars.get(contender.name, []),
            "rows_per_batch": rows_per_batch,
            "bundle_ms": "500" if rows_per_batch > 1_000 else "10",
        }
        return Running(contender, told), output, folder

    def throughput(self, contender: Contender, mode: str, count: int) -> Figures:
        """Measure rows a second and rows a CPU second."""
        topic, producer = self._topics.new(), self._topics.producer()
        for row in rows_of(count):
            send(producer, topic, row)
        producer.flush()
        figures = Figures(contender.name, mode, count)
        running, output, folder = self._start(contender, mode, topic, max(100_000, count // 5))
        try:
            begin, end = self._watch(running, output, count)
        finally:
            running.kill()
        shutil.rmtree(folder, ignore_errors=True)
        if checksum(self._topics.read(output)) != checksum(expected(rows_of(count))):
            figures.error = "wrong result"
            return figures
        if end[0] > begin[0]:
            figures.rows_per_second = (end[1] - begin[1]) / (end[0] - begin[0])
            figures.rows_per_cpu_second = (end[1] - begin[1]) / max(0.01, end[2] - begin[2])
        return figures

    def _watch(self, running: Running, output: str, count: int) -> tuple[Any, Any]:
        """Return time, rows and CPU seconds where the steady part begins and where it ends."""
        begin = last = (0.0, 0, 0.0)
        deadline = time.monotonic() + LIMIT_S
        while True:
            running.check()
            now, rows = time.monotonic(), self._topics.visible(output)
            if rows > last[1]:
                last = (now, rows, running.cpu_seconds())
                if begin[1] == 0 and rows >= WARM * count:
                    begin = last
            if rows >= count and now - last[0] > QUIET_S:
                return begin, last
            if now > deadline:
                msg = f"{rows} of {count} rows after {LIMIT_S:.0f} s"
                raise RuntimeError(msg)
            time.sleep(POLL_S)

    def latency(self, contender: Contender, mode: str, seconds: int) -> Figures:
        """Measure how long rows take at a fixed rate; the first rows warm up."""
        topic, warm = self._topics.new(), max(5, seconds // 2)
        running, output, folder = self._start(contender, mode, topic, RATE)
        consumer = self._topics.consumer(output)
        begun, over, sent = time.monotonic(), threading.Event(), [0]
        sender = threading.Thread(target=self._send, args=(topic, over, sent), daemon=True)
        sender.start()
        taken: list[float] = []
        first: float | None = None
        try:
            while first is None or time.monotonic() < first + warm + seconds:
                running.check()
                messages = consumer.consume(1_000, timeout=0.05)
                now = time.time()
                for message in messages:
                    if message.error() is None:
                        first = first or time.monotonic()
                        if time.monotonic() > first + warm:
                            sent_at = numbers(message.value().decode(), 2)[1] / 1e6
                            taken.append((now - sent_at) * 1000)
                if first is None and time.monotonic() > begun + LIMIT_S:
                    msg = f"no row came out within {LIMIT_S:.0f} s"
                    raise RuntimeError(msg)
        finally:
            over.set()
            sender.join()
            running.kill()
            consumer.close()
        shutil.rmtree(folder, ignore_errors=True)
        cuts = statistics.quantiles(taken, n=100)
        made = Figures(contender.name, f"{mode} latency", len(taken))
        made.p50_ms, made.p95_ms, made.p99_ms = cuts[49], cuts[94], cuts[98]
        return made

    def _send(self, topic: str, over: threading.Event, sent: list[int]) -> None:
        """Send rows at the rate, each with the time of its sending."""
        producer, begun = self._topics.producer(), time.monotonic()
        while not over.wait(0.005):
            due = int((time.monotonic() - begun) * RATE)
            for number in range(sent[0], due):
                send(producer, topic, (number % KEYS, int(time.time() * 1e6)))
            sent[0] = max(sent[0], due)
        producer.flush()


def jars_of(name: str) -> list[str]:
    """Return a contender's connector, fetched by Maven once; none where it needs none."""
    if name not in CONNECTORS:
        return []
    group, artifact, version = CONNECTORS[name]
    if version is None:
        python = str(environments.python_of(CONTENDERS[name].environment))
        asked = "import pyspark; print(pyspark.__version__)"
        version = subprocess.run(
            [python, "-c", asked], capture_output=True, text=True, check=True
        ).stdout.strip()
    folder: Path = environments.HERE / ".data" / f"{artifact}-{version}"
    if not folder.exists():
        half = Path(tempfile.mkdtemp(dir=_made(folder.parent)))
        pom = (
            "<project><modelVersion>4.0.0</modelVersion><groupId>weir</groupId>"
            "<artifactId>k</artifactId><version>1</version><dependencies><dependency>"
            f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency></dependencies></project>"
        )
        (half / "pom.xml").write_text(pom)
        subprocess.run(
            [
                *("mvn", "-q", "-B", "-f", str(half / "pom.xml"), "dependency:copy-dependencies"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={half}"),
            ],
            check=True,
        )
        half.rename(folder)
    # What Spark brings itself must not come twice.
    own = ("spark-", "kafka-", "commons-pool", "flink-")
    return sorted(str(jar) for jar in folder.glob("*.jar") if jar.name.startswith(own))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka_ends")
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--rows", type=int, help="instead of each contender's number")
    parser.add_argument("--seconds", type=int, default=30, help="of each latency, warm-up apart")
    parser.add_argument("--smoke", action="store_true", help="few rows, results only")
    parser.add_argument("--output", type=Path, help="where the figures go as JSON")
    options = parser.parse_args()
    unknown = set(options.contenders.split(",")) - set(CONTENDERS)
    if unknown:
        parser.error(f"unknown contenders {sorted(unknown)}, expected some of {list(CONTENDERS)}")
    return options


def runs(bench: Bench, contender: Contender, options: argparse.Namespace) -> Iterator[Figures]:
    """Measure one contender."""
    count = 3_000 if options.smoke else options.rows or contender.rows
    for mode in contender.modes[: 1 if options.smoke else None]:
        for measure, amount in ((bench.throughput, count), (bench.latency, options.seconds)):
            if options.smoke and measure == bench.latency:
                continue
            try:
                yield measure(contender, mode, amount)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                yield Figures(contender.name, mode, error=str(error))


def show(figures: Figures, smoke: bool) -> str:
    """Return a line."""
    head = f"{figures.contender:8} {figures.mode:22}"
    if figures.error:
        return f"{head} FAILED: {figures.error}"
    if smoke:
        return f"{head} right result"
    if figures.p50_ms is not None:
        return (
            f"{head} p50 {figures.p50_ms:8.0f} ms  p95 {figures.p95_ms:8.0f} ms  "
            f"p99 {figures.p99_ms:8.0f} ms"
        )
    if figures.rows_per_second is None:
        return f"{head} too few rows to be timed"
    return (
        f"{head} {figures.rows_per_second:10,.0f} rows/s  "
        f"{figures.rows_per_cpu_second:10,.0f} rows per CPU second"
    )


def main() -> int:
    """Measure what was asked for; print it, and write it."""
    options = arguments()
    chosen = [CONTENDERS[name] for name in options.contenders.split(",")]
    jars, found, missing = {}, [], {}
    for contender in chosen:
        why = environments.try_to_make(contender.environment)
        try:
            jars[contender.name] = [] if why else jars_of(contender.name)
        except (OSError, subprocess.SubprocessError) as error:
            why = f"its connector cannot be had: {error}"
        if why:
            missing[contender.name] = why
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as work:
        folder = Path(work, "kafka")
        folder.mkdir()
        server = KafkaServer(folder, SystemClock(), require_kafka(lambda said: print(said)))
        server.start()
        try:
            bench = Bench(server.address, Path(work), jars)
            for contender in chosen:
                if contender.name in missing:
                    found.append(Figures(contender.name, "", error=missing[contender.name]))
                    print(show(found[-1], options.smoke), flush=True)
                    continue
                for figures in runs(bench, contender, options):
                    found.append(figures)
                    print(show(figures, options.smoke), flush=True)
        finally:
            server.kill()
    if options.output:
        options.output.write_text(json.dumps([asdict(f) for f in found], indent=1) + "\n")
    return 1 if any(figures.error for figures in found) else 0


if __name__ == "__main__":
    sys.exit(main())
