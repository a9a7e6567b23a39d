"""Workload k: Kafka, the least value per key, Kafka; rows a second, and latency at 1,000 rows/s.

A checkpoint every second, values of 100 bytes, two subtasks, two partitions, on a broker beside
it, which this program starts. What is measured is seen from outside, alike for all:

* Rows a second: how far a topic is committed is asked ten times a second. CPU seconds are those of
  the contender's processes in the steady part, without the broker.
* Latency: a row carries the time of its sending; a reader of committed records subtracts it from
  its own. The first rows warm up.

Then the contender is killed. What a measurement of rows a second left behind is read and compared
with a recount: a wrong result has no figures. Contenders take turns: in a round each has one
measurement, then it is the turn of the next measurement, and every round begins with another one.

Usage: python -m benchmarks.kafka_ends [--contenders weir,flink-java,pyflink,bytewax,tws]
       [--modes EXACTLY_ONCE,AT_LEAST_ONCE] [--measures speed,latency] [--rounds 3] [--rows N]
       [--seconds N] [--smoke] [--output FOLDER | --page FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from benchmarks import environments
from benchmarks.__main__ import machine, selected
from benchmarks.contenders.kafka_rows import numbers
from benchmarks.kafka_contenders import CONTENDERS, MODES, Contender, prepare, versions
from benchmarks.kafka_report import (
    LATENCY,
    RATE,
    SPEED,
    Figures,
    Mark,
    Setting,
    line,
    of_json,
    render,
    steady_part,
    summary,
    to_json,
)
from benchmarks.kafka_topics import KEYS, Topics, WrongValueError, expected, send
from weir.clock import SystemClock
from weir.demo.kafka_server import VERSION, KafkaServer, require_kafka

MEASURES = (SPEED, LATENCY)
SMOKE_ROWS = 3_000
POLL_S = 0.1
QUIET_S = 2.5
LIMIT_S = 300.0
_MARK = "WEIR_BENCHMARK_RUN"
_TICKS = os.sysconf("SC_CLK_TCK")


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
                    *("-m", f"benchmarks.contenders.{contender.module}", json.dumps(told)),
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
        return ticks / _TICKS

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

    @contextlib.contextmanager
    def _running(
        self, figures: Figures, topic: str, rows_per_batch: int
    ) -> Iterator[tuple[Running, str]]:
        """Start a contender; in the end it is killed, and nothing is left of it but its output."""
        folder = Path(tempfile.mkdtemp(dir=self._work))
        output = self._topics.new()
        told = {
            "address": self._topics.address,
            "input": topic,
            "output": output,
            "folder": str(folder),
            "mode": figures.mode,
            "jars": self._jars[figures.contender],
            "rows_per_batch": rows_per_batch,
            "bundle_ms": "500" if rows_per_batch > RATE else "10",
        }
        running = Running(CONTENDERS[figures.contender], told)
        try:
            yield running, output
        finally:
            running.kill()
            shutil.rmtree(folder, ignore_errors=True)

    def speed(self, figures: Figures, count: int) -> None:
        """Measure rows a second and rows a CPU second."""
        topic = self._topics.filled(count)
        figures.rows = count
        with self._running(figures, topic, max(100_000, count // 5)) as (running, output):
            marks = self._watch(running, output, count)
        if self._topics.read(output) != expected(count):
            figures.error = "wrong result"
        elif (steady := steady_part(marks, count)) is not None:
            figures.set_speed(*steady)
        self._topics.drop(output)

    def _watch(self, running: Running, output: str, count: int) -> list[Mark]:
        """Return every change of what can be seen, until nothing changes any more."""
        marks = [Mark(time.monotonic(), 0, 0.0)]
        deadline = time.monotonic() + LIMIT_S
        while True:
            running.check()
            now, rows = time.monotonic(), self._topics.visible(output)
            if rows > marks[-1].rows:
                marks.append(Mark(now, rows, running.cpu_seconds()))
            if rows >= count and now - marks[-1].seconds > QUIET_S:
                return marks
            if now > deadline:
                msg = f"{rows} of {count} rows after {LIMIT_S:.0f} s"
                raise RuntimeError(msg)
            time.sleep(POLL_S)

    def latency(self, figures: Figures, seconds: int) -> None:
        """Measure how long rows take at a fixed rate; the first rows warm up."""
        topic = self._topics.new()
        with self._running(figures, topic, RATE) as (running, output), self._sending(topic):
            consumer = self._topics.consumer(output)
            begun = self._first(running, consumer) + max(6.0, seconds / 2)
            taken: list[float] = []
            used = 0.0
            while (now := time.monotonic()) < begun + seconds:
                running.check()
                message = consumer.poll(0.05)
                arrived = time.time()
                if now > begun:
                    used = used or running.cpu_seconds()
                    if message is not None and message.error() is None:
                        sent = numbers(message.value().decode(), 2)[1] / 1e6
                        taken.append((arrived - sent) * 1000)
            used = running.cpu_seconds() - used
            consumer.close()
        figures.set_latency(taken, used / seconds)
        for name in (topic, output):
            self._topics.drop(name)

    def _first(self, running: Running, consumer: Any) -> float:
        """Return when the first row came out."""
        begun = time.monotonic()
        while (now := time.monotonic()) < begun + LIMIT_S:
            running.check()
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                return now
        msg = f"no row came out within {LIMIT_S:.0f} s"
        raise RuntimeError(msg)

    @contextlib.contextmanager
    def _sending(self, topic: str) -> Iterator[None]:
        over = threading.Event()
        sender = threading.Thread(target=self._send, args=(topic, over), daemon=True)
        sender.start()
        try:
            yield
        finally:
            over.set()
            sender.join()

    def _send(self, topic: str, over: threading.Event) -> None:
        """Send rows at the rate, each with the time of its sending."""
        producer, begun, sent = self._topics.producer(linger_ms=1), time.monotonic(), 0
        while not over.wait(0.005):
            due = int((time.monotonic() - begun) * RATE)
            for count in range(sent, due):
                send(producer, topic, (count % KEYS, int(time.time() * 1e6)))
            sent = due
        producer.flush()


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka_ends")
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--measures", default=f"{SPEED},{LATENCY}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, help="instead of each contender's number")
    parser.add_argument("--seconds", type=int, default=12, help="of each latency, warm-up apart")
    parser.add_argument("--smoke", action="store_true", help="few rows, results only")
    parser.add_argument("--output", type=Path, help="a folder for KAFKA.md and kafka.json")
    parser.add_argument("--page", type=Path, help="only write KAFKA.md beside this kafka.json")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.rows, options.measures = 1, SMOKE_ROWS, SPEED
    for name, known in (("contenders", CONTENDERS), ("modes", MODES), ("measures", MEASURES)):
        wanted = selected(getattr(options, name), set(known), name)
        setattr(options, name, [found for found in known if found in wanted])
    return options


def planned(options: argparse.Namespace) -> Iterator[Figures]:
    """Return the runs in their order, each with its figures still to be found."""
    chosen = [CONTENDERS[name] for name in options.contenders]
    for number in range(options.rounds):
        first = number % len(chosen)
        for mode in options.modes:
            for measure in options.measures:
                for contender in chosen[first:] + chosen[:first]:
                    if mode in contender.modes[: 1 if options.smoke else None]:
                        yield Figures(contender.name, mode, measure, number + 1)


def measured(bench: Bench, figures: Figures, options: argparse.Namespace) -> None:
    """Find the figures of one run, or why there are none."""
    try:
        if figures.measure == SPEED:
            bench.speed(figures, options.rows or CONTENDERS[figures.contender].rows)
        else:
            bench.latency(figures, options.seconds)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        figures.error = str(error)
    except (KafkaException, WrongValueError) as error:
        figures.error = f"{type(error).__name__}: {error}"


def run(options: argparse.Namespace) -> list[Figures]:
    """Measure what was asked for, and write it after every run: an interrupted one leaves that."""
    setting, jars, missing = setting_of(options), {}, {}
    for name in options.contenders:
        try:
            jars[name] = prepare(CONTENDERS[name])
            setting.versions[name] = versions(CONTENDERS[name])
        except environments.Unavailable as reason:  # noqa: PERF203 - others can be had
            missing[name] = str(reason)
    found: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as work:
        folder = Path(work, "kafka")
        folder.mkdir()
        server = KafkaServer(folder, SystemClock(), require_kafka(say))
        server.start()
        try:
            bench = Bench(server.address, Path(work), jars)
            for figures in planned(options):
                figures.error = missing.get(figures.contender)
                if figures.error is None:
                    measured(bench, figures, options)
                found.append(figures)
                say(line(figures, timed=not options.smoke))
                write(found, setting, options.output)
        finally:
            server.kill()
    write(found, replace(setting, complete=True), options.output)
    return found


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


def setting_of(options: argparse.Namespace) -> Setting:
    """Return the circumstances of a run that begins now."""
    words = sys.argv[1:]
    if "--output" in words:
        place = words.index("--output")
        words = words[:place] + words[place + 2 :]
    command = f"python -m benchmarks.kafka_ends {shlex.join(words)}".strip()
    facts = machine() | {"Kafka": VERSION}
    return Setting(
        command, datetime.date.today().isoformat(), options.rounds, options.seconds, machine=facts
    )


def write(runs: list[Figures], setting: Setting, folder: Path | None) -> None:
    """Write page and figures."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kafka.json").write_text(json.dumps(to_json(runs, setting), indent=1) + "\n")
        (folder / "KAFKA.md").write_text(render(runs, setting))


def main() -> int:
    """Measure what was asked for; print it, and write it."""
    # Whoever ends this ends the contender that is running, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options = arguments()
    if options.page is not None:
        runs, setting = of_json(json.loads(options.page.read_text()))
        options.page.with_name("KAFKA.md").write_text(render(runs, setting))
        return 0
    runs = run(options)
    if not options.smoke:
        summary(runs, say)
    return 1 if any(figures.error for figures in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
