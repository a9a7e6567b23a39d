"""What an open page costs a job: records per second with and without somebody who watches.

A job on Spark counts per key, as fast as it can, with a checkpoint every second. Another process
asks its driver for everything that the page's view of a job asks for, as often as ten pages do: one
page costs less than rounds of a shared machine differ by chance, a tenth of what ten cost can be
told from that. Pages that disturb each other count as dearer than they are. The aim is at most 1 %
for one page.

Rounds with and without pages take turns, and which is first changes from pair to pair, so that a
machine that becomes slower harms both. The result is the median of the pairs, and the interval that
holds the true median in 19 of 20 runs, whatever the shape of the noise. A run whose interval lies
on both sides of the aim has decided nothing, and says so.

A browser is not part of it: it is seldom on the driver's host. The process that asks is, which a
machine with few processors notices, and so is in the result. It takes about four minutes.

Usage: python benchmarks/page.py [--rounds 12] [--seconds 8] [--warm-up 20] [--rows 100000]
       [--pages 10] [--smoke]
"""

from __future__ import annotations

import argparse
import http.client
import math
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
SPREAD = 0.6180339887
"""Multiples of it, without what is before the point, lie evenly between 0 and 1."""
EPOCHS_MIN = 5
PATIENCE_S = 60.0
AIM = 0.01
DOUBT = 0.05
"""How often the true median may lie outside of the interval."""


def watch(pipe: Any, url: str, token: str, job: str, pages: int) -> None:
    """Ask as pages do whenever True comes, until False comes; None ends the process.

    Pages were not opened all at the same moment: requests are spread from the first second on, so
    that a short round has as many of them as its seconds should have.
    """
    address = urlsplit(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
    headers = {"Authorization": f"Bearer {token}"}
    asked = 0
    while pipe.recv():
        polls = range(len(POLLS) * pages)
        begun = time.monotonic()
        due = {n: begun + POLLS[n % len(POLLS)][1] * ((n * SPREAD) % 1.0) for n in polls}
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
    """One round: records per second, the driver's processor time per second, and its seconds."""

    rate: float
    cpu: float
    seconds: float


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
    return Round(epochs.rate(begun), (time.process_time() - cpu) / elapsed, elapsed)


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


def interval(values: list[float]) -> tuple[float, float]:
    """Return what holds the true median, but for `DOUBT`; all of them where they are too few.

    Each value is above the true median by the toss of a coin, whatever the noise looks like: so
    many of the lowest and highest are left out as coins allow.
    """
    ordered, count = sorted(values), len(values)
    left_out, chance = 0, 0.0
    while left_out < (count - 1) // 2:
        chance += math.comb(count, left_out) / 2**count
        if chance > DOUBT / 2:
            break
        left_out += 1
    edge = max(0, left_out - 1)
    return ordered[edge], ordered[count - 1 - edge]


def verdict(low: float, high: float, pairs: int) -> str:
    """Say what a run has decided about the aim, given the cost of one page."""
    if 2 / 2**pairs > DOUBT:
        return f"not decided: {pairs} pairs are too few for an interval"
    if high <= AIM:
        return f"the aim of {AIM:.0%} is met"
    if low > AIM:
        return f"the aim of {AIM:.0%} is missed"
    return f"not decided: the machine is too noisy for {AIM:.0%}, or it needs more --rounds"


def say(alone: list[Round], watched: list[Round], asked: int, pages: int) -> None:
    """Print medians, and what rounds that stood beside each other say about one page."""
    costs = [1 - b.rate / a.rate for a, b in zip(alone, watched, strict=True)]
    for name, found in (("without a page", alone), (f"with {pages} pages", watched)):
        rates = sorted(each.rate for each in found)
        cpu = statistics.median(each.cpu for each in found)
        print(
            f"{name:15} {statistics.median(rates):12,.0f} records/s (rounds {rates[0]:,.0f} to "
            f"{rates[-1]:,.0f}), driver {cpu:.1%} of a processor"
        )
    low, high = interval(costs)
    middle = statistics.median(costs)
    print(
        f"cost of {pages:<7} {middle:12.2%} of records/s, {low:.2%} to {high:.2%} "
        f"(median of {len(costs)} pairs, and its 95 % interval)"
    )
    print(
        f"cost of one     {middle / pages:12.2%} of records/s, {low / pages:.2%} to "
        f"{high / pages:.2%}: {verdict(low / pages, high / pages, len(costs))}"
    )
    wanted = sum(each.seconds for each in watched) * pages * sum(1 / s for _, s in POLLS)
    print(f"requests        {asked:12,} of {wanted:,.0f} that so many pages send")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("rounds", 12), ("rows", 100_000), ("pages", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=8.0)
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
            say(*rounds(job, pipe, options), options.pages)
            pipe.send(None)
            watcher.join(10)
        finally:
            job.cancel()


if __name__ == "__main__":
    main()
