"""What an open page costs a job: records per second with and without somebody who watches.

A job on Spark counts per key, as fast as it can, with a checkpoint every second. Another process
asks its driver for everything that the page's view of a job asks for, as often as the page does.
Rounds with and without it take turns, and which one is first changes. The aim is at most 1 %.

A browser is not part of it: it is seldom on the driver's host.

Usage: python benchmarks/page.py [--rounds 8] [--seconds 10] [--warm-up 20] [--rows 200000]
       [--pages 1] [--smoke]
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

POLLS = (
    ("jobs/overview", 3.0),
    ("page", 3.0),
    ("jobs/{job}", 2.0),
    ("taskmanagers", 2.0),
    ("jobs/{job}/timeline", 2.0),
    (
        "jobs/{job}/metrics?get=numberOfCompletedCheckpoints,numberOfFailedCheckpoints,"
        "lastCheckpointDuration,lastCheckpointSize",
        3.0,
    ),
    ("jobs/{job}/sources", 3.0),
    ("jobs/{job}/checkpoints/state-sizes", 5.0),
)
"""What the page asks for while it shows a job, and the seconds between two times."""
EPOCHS_MIN = 5
PATIENCE_S = 60.0


def watch(pipe: Any, url: str, token: str, job: str, pages: int) -> None:
    """Ask as pages do whenever True comes, until False comes; None ends the process."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
    headers = {"Authorization": f"Bearer {token}"}
    asked = 0
    while pipe.recv():
        due = {n: time.monotonic() for n in range(len(POLLS) * pages)}
        while not pipe.poll(max(0.0, min(due.values()) - time.monotonic())):
            number = min(due, key=lambda n: due[n])
            path, seconds = POLLS[number % len(POLLS)]
            connection.request("GET", "/" + path.format(job=job), headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                msg = f"{path}: {answer.status} {answer.read().decode()}"
                raise SystemExit(msg)
            answer.read()
            asked += 1
            due[number] += seconds
        pipe.recv()
        pipe.send(asked)


@dataclass
class Epochs:
    """How many records were handled when; filled in by the job, once an epoch."""

    marks: list[tuple[float, int]] = field(default_factory=list)

    def follow(self, reports: Any) -> None:
        """Note every epoch from now on."""
        keep = reports.keep

        def noted(found: Iterable[Any]) -> None:
            told = list(found)
            keep(told)
            counted = sum(sum(r.records_in.values()) for r in told if r.level == 1)
            self.marks.append((time.perf_counter(), counted))

        reports.keep = noted

    def ended(self, since: float) -> int:
        """Return how many epochs have ended since then."""
        return sum(mark[0] >= since for mark in self.marks)

    def rate(self, since: float) -> float:
        """Return records per second between the first and the last epoch that ended since then."""
        found = [mark for mark in self.marks if mark[0] >= since]
        if len(found) < 2:
            msg = "a round had less than two epochs: give it more seconds"
            raise SystemExit(msg)
        (first, before), (last, after) = found[0], found[-1]
        return (after - before) / (last - first)


@dataclass
class Round:
    """One round: records per second, and the driver's processor time per second."""

    rate: float
    cpu: float


def program(rows: int, folder: Path) -> Any:
    """Start the job."""
    from weir.common import Configuration, Types
    from weir.connector.discard import DiscardingSink
    from weir.datastream import KeyedProcessFunction, StreamExecutionEnvironment
    from weir.datastream.state import ValueStateDescriptor

    class Count(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.count.update((self.count.value() or 0) + 1)
            yield self.count.value()

    settings = Configuration()
    settings.set_string("execution.checkpointing.interval", "1 s")
    settings.set_string("execution.checkpointing.dir", (folder / "checkpoints").as_uri())
    settings.set_string("rest.bind-port", "0")
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    frame = (
        env.get_spark()
        .readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .option("numPartitions", 2)
        .load()
    )
    keyed = env.from_dataframe(frame.selectExpr("value % 100000 as number")).key_by("number")
    keyed.process(Count(), Types.LONG()).uid("count").sink_to(DiscardingSink())
    return env.execute_async("page benchmark")


def measured(epochs: Epochs, seconds: float) -> Round:
    """Let the job run for a while, and on until some epochs have ended in it."""
    begun, cpu = time.perf_counter(), time.process_time()
    threading.Event().wait(seconds)
    while epochs.ended(begun) < EPOCHS_MIN and time.perf_counter() - begun < PATIENCE_S:
        threading.Event().wait(0.1)
    elapsed = time.perf_counter() - begun
    return Round(epochs.rate(begun), (time.process_time() - cpu) / elapsed)


def rounds(job: Any, pipe: Any, options: Any) -> tuple[list[Round], list[Round], int]:
    """Take turns; returns rounds without and with a page, and how many requests there were."""
    epochs = Epochs()
    epochs.follow(job.supervisor.reports)
    threading.Event().wait(options.warm_up)
    alone: list[Round] = []
    watched: list[Round] = []
    asked = 0
    for number in range(options.rounds):
        for with_page in (False, True) if number % 2 == 0 else (True, False):
            if with_page:
                pipe.send(True)
                watched.append(measured(epochs, options.seconds))
                pipe.send(False)
                asked = pipe.recv()
            else:
                alone.append(measured(epochs, options.seconds))
    return alone, watched, asked


def say(alone: list[Round], watched: list[Round], asked: int) -> None:
    """Print medians, and the ratio of rounds that stood beside each other."""
    ratios = [b.rate / a.rate - 1 for a, b in zip(alone, watched, strict=True)]
    without = statistics.median(each.rate for each in alone)
    beside = statistics.median(each.rate for each in watched)
    cpu = [statistics.median(each.cpu for each in found) for found in (alone, watched)]
    print(f"without a page  {without:12,.0f} records/s, driver {cpu[0]:.1%} of a processor")
    print(f"with a page     {beside:12,.0f} records/s, driver {cpu[1]:.1%} of a processor")
    print(
        f"difference      {statistics.median(ratios):+12.2%} of records/s (median of "
        f"{len(ratios)} pairs, {min(ratios):+.1%} to {max(ratios):+.1%}), driver "
        f"{cpu[1] - cpu[0]:+.2%} of a processor"
    )
    print(f"requests        {asked:12,}")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("rounds", 8), ("rows", 200_000), ("pages", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=20.0)
    parser.add_argument("--smoke", action="store_true", help="a few seconds, with small batches")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.rows, options.seconds, options.warm_up = 1, 2_000, 3.0, 2.0
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        job = program(options.rows, Path(directory))
        try:
            while job.supervisor.epoch_times.view().count < 3:
                threading.Event().wait(0.1)
            link = urlsplit(job.link)
            url, token = f"{link.scheme}://{link.netloc}", link.fragment.partition("token=")[2]
            pipe, other = context.Pipe()
            arguments = (other, url, token, job.job_id, options.pages)
            watcher = context.Process(target=watch, args=arguments, daemon=True)
            watcher.start()
            say(*rounds(job, pipe, options))
            pipe.send(None)
            watcher.join(10)
        finally:
            job.cancel()


if __name__ == "__main__":
    main()
