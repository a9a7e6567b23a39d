"""What look-ups cost a busy slot, and how long they take.

Three processes, as in a job: a slot, which applies the same epoch again and again, a count per key;
this one, which serves queries as a driver does; and a client, whose threads look single keys up by
`QueryableStateClient.get_kv_state`, at a given rate in all, all on one core. The slot never rests;
for half a second there are look-ups, then for half a second none, and so on. Two such turns are a
pair, which has a ratio: a machine that others share changes its speed from second to second. The
result is the median of the pairs, with its 95 % interval. Then the slot idles, and only look-ups
are timed. The aims are 95 % of the records at 1,000 look-ups a second, and 20 ms for 99 of 100.

Usage: python -m benchmarks.queries [--rate 1000] [--threads 8] [--pairs 60]
       [--records 50000] [--keys 10000] [--smoke]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from benchmarks.page import interval
from weir.clock import SystemClock
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from weir.datastream.state import ValueStateDescriptor
from weir.graph.plan import compile_plan
from weir.queryable import QueryableStateClient
from weir.queryable.queries import StateQueries
from weir.queryable.server import QueryServer
from weir.queryable.settings import QuerySettings
from weir.runtime.epoch import Epoch
from weir.slot.channel import TOKEN_BYTES, Channel
from weir.slot.door import LookupWay
from weir.slot.lookup import LookupAnswer, LookupCall, SlotStates
from weir.slot.messages import EpochCall
from weir.slot.server import SlotServer
from weir.testing.harness import JobHarness, collect
from weir.testing.harness_slots import as_incoming

TOKEN = b"q" * TOKEN_BYTES
SECRET = "queries"
JOB = "0" * 32
TURN_S = 0.5


class Count(KeyedProcessFunction):
    """Counts, and emits nothing."""

    def open(self, runtime_context: Any) -> None:
        """Ask for the state."""
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.set_queryable("counts")
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Count a record."""
        self.count.update((self.count.value() or 0) + 1)
        return ()


class KeyOf:
    """The key of a record."""

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, number: int) -> int:
        """Return the key."""
        return number % self.keys


def program(records: int, keys: int) -> Any:
    """Return the graph of the job."""
    env = StreamExecutionEnvironment()
    numbers = env.from_sequence(1, records)
    collect(numbers.key_by(KeyOf(keys), Types.LONG()).process(Count()).uid("counting"))
    return env.build_graph()


def slot_process(pipe: Any, socket: str, records: int, keys: int) -> None:
    """Serve look-ups; for every moment that comes, apply epochs until then, and tell their ends."""
    job = JobHarness(program(records, keys), 1).start()
    network, sent = job.slots, []
    run = network.run

    def noted(subtask: int, level: int, epoch: Epoch, frames: list[Any]) -> list[Any]:
        sent.append((level, frames))
        return run(subtask, level, epoch, frames)

    network.run = noted  # type: ignore[method-assign]
    job.run_epoch()
    level, frames = sent[-1]
    slot = network.slots[0]
    service: Any = slot.service
    server = SlotServer(f"grpc+unix://{socket}", service, TOKEN, lambda reason: None)
    pipe.send("ready")
    number = job.epoch
    while (until := pipe.recv()) is not None:
        ends = [time.monotonic()]
        while ends[-1] < until:
            number += 1
            call = EpochCall(slot.attempt, level, Epoch(number, None, False))
            service.run(call, service.take_in(iter(as_incoming(frames))))
            ends.append(time.monotonic())
        pipe.send(ends)
    server.shutdown()


class DirectNetwork:
    """The one slot, by its socket; what queries need of a network."""

    def __init__(self, socket: str) -> None:
        """Connect."""
        self.registry = SimpleNamespace(attempt=0)
        self._channel = Channel(f"grpc+unix://{socket}", TOKEN)
        self._way = LookupWay(self._channel, TOKEN)
        self._encode = msgspec.msgpack.Encoder().encode
        self._states = msgspec.msgpack.Decoder(SlotStates).decode

    def states(self, patience_ms: int) -> list[SlotStates]:
        """Ask for the states."""
        return [self._states(self._channel.call("states", self._encode((0, patience_ms))))]

    def lookup(self, subtask: int, call: LookupCall) -> LookupAnswer:
        """Look up."""
        return self._way.ask(call, 5.0)


def query_server(socket: str, options: Any) -> QueryServer:
    """Serve queries about the slot, as a driver does."""
    plan = compile_plan(program(options.records, options.keys), 1)
    job: Any = SimpleNamespace(
        network=DirectNetwork(socket),
        plan=plan,
        ended=Future(),
        clock=SystemClock(),
        spec=SimpleNamespace(job_id=JOB),
        checkpoints=SimpleNamespace(coordinator=SimpleNamespace(completed=[])),
    )
    server = QueryServer(QuerySettings(ports=(0,), token=SECRET))
    server.register(JOB, StateQueries(job))
    return server


class Asking:
    """Threads that look keys up at a rate, in every turn but the odd ones; how long each took.

    Turns of `turn` seconds begin at `begin`. With a turn of 0 there is one, which lasts.
    """

    def __init__(
        self, look: Callable[[int], None], options: Any, begin: float, turn: float
    ) -> None:
        """Start them."""
        self._look = look
        self._pause = options.threads / options.rate
        self._keys = options.keys
        self._begin, self._turn = begin, turn
        self._over = threading.Event()
        self.taken: list[float] = []
        self.threads = [
            threading.Thread(target=self._ask, args=(seed,), daemon=True)
            for seed in range(options.threads)
        ]
        for thread in self.threads:
            thread.start()

    def _ask(self, seed: int) -> None:
        chance = random.Random(seed)
        due = self._begin + chance.random() * self._pause
        while not self._over.wait(max(0.0, due - time.monotonic())):
            number = int((due - self._begin) / self._turn) if self._turn else 0
            if number % 2:
                due += self._turn
                continue
            begun = time.monotonic()
            self._look(chance.randrange(self._keys))
            self.taken.append(time.monotonic() - begun)
            due += self._pause

    def stop(self) -> list[float]:
        """End; returns all times."""
        self._over.set()
        for thread in self.threads:
            thread.join()
        return self.taken


def client_process(pipe: Any, port: int, options: Any) -> None:
    """For every begin, end and length of turns that comes, look keys up; tell all times.

    It stands for programs elsewhere, so it is kept on one core, where it cannot stop the slot.
    """
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    descriptor = ValueStateDescriptor("count", Types.LONG())
    client = QueryableStateClient("127.0.0.1", port, token=SECRET)

    def look(key: int) -> None:
        found = client.get_kv_state(JOB, "counts", key, Types.LONG(), descriptor).result(30)
        if not found.value():
            msg = f"key {key} was not found"
            raise SystemExit(msg)

    for key in range(min(20, options.keys)):
        look(key)  # what is made with the first ones is not part of it
    pipe.send("ready")
    while (told := pipe.recv()) is not None:
        begin, end, turn = told
        asking = Asking(look, options, begin, turn)
        threading.Event().wait(end - time.monotonic())
        pipe.send(asking.stop())
    client.close()


def times(taken: list[float]) -> str:
    """Return median and 99th percentile."""
    cuts = statistics.quantiles(taken, n=100)
    return f"median {cuts[49] * 1000:.2f} ms, 99th percentile {cuts[98] * 1000:.2f} ms"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (
        ("rate", 1000),
        ("threads", 8),
        ("pairs", 60),
        ("records", 50_000),
        ("keys", 10_000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--smoke", action="store_true", help="a fraction of a second")
    options = parser.parse_args()
    if options.smoke:
        options.rate, options.pairs = 100, 2
        options.records, options.keys = 2000, 100
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        socket = str(Path(directory) / "s")
        slot_pipe, other = context.Pipe()
        slot = context.Process(
            target=slot_process, args=(other, socket, options.records, options.keys), daemon=True
        )
        slot.start()
        slot_pipe.recv()
        server = query_server(socket, options)
        client_pipe, other = context.Pipe()
        client = context.Process(
            target=client_process, args=(other, server.port, options), daemon=True
        )
        client.start()
        client_pipe.recv()
        try:
            measure(slot_pipe, client_pipe, client.pid or 0, options)
        finally:
            for pipe, process in ((client_pipe, client), (slot_pipe, slot)):
                pipe.send(None)
                process.join(10)
            server.close()


def cpu_seconds(process: int) -> float:
    """Return what a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def rates_of(ends: list[float], begin: float, records: int, turns: int) -> list[list[float]]:
    """Return records/s of the epochs that lie in each turn, one list for each turn."""
    found: list[list[float]] = [[] for _ in range(turns)]
    for low, high in pairwise(ends):
        turn = int((low - begin) // TURN_S)
        if 0 <= turn < turns and high <= begin + (turn + 1) * TURN_S:
            found[turn].append(records / (high - low))
    return found


def ratios_of(rates: list[list[float]]) -> list[float]:
    """Return for every pair of turns what is left of the records beside look-ups."""
    means = [statistics.harmonic_mean(one) if one else None for one in rates]
    pairs = zip(means[::2], means[1::2], strict=True)
    return [beside / alone for beside, alone in pairs if beside and alone]


def measure(slot: Any, client: Any, client_process: int, options: Any) -> None:
    """Let turns with and without look-ups follow each other."""
    slot.send(time.monotonic() + 1)
    slot.recv()  # the first epochs are slower
    turns = 2 * options.pairs
    begin = time.monotonic() + 0.5
    end = begin + turns * TURN_S
    processes = (os.getpid(), client_process)
    before = [cpu_seconds(process) for process in processes]
    client.send((begin, end, TURN_S))
    slot.send(end)
    ends, taken = slot.recv(), client.recv()
    used = [
        2 * (cpu_seconds(p) - b) / (end - begin) for p, b in zip(processes, before, strict=True)
    ]
    rates = rates_of(ends, begin, options.records, turns)
    ratios = ratios_of(rates)
    beside, alone = (
        statistics.median([rate for one in rates[first::2] for rate in one]) for first in (0, 1)
    )
    print(f"without look-ups   {alone:12,.0f} records/s")
    print(f"beside look-ups    {beside:12,.0f} records/s")
    low, high = interval(ratios)
    print(
        f"ratio              {statistics.median(ratios):12.3f}, median of {len(ratios)} pairs of "
        f"turns; its 95 % interval is {low:.3f} to {high:.3f}"
    )
    print(f"look-ups           {2 * len(taken) / (end - begin):12,.0f} a second, {times(taken)}")
    print(f"driver, client     {used[0]:12.3f}, {used[1]:.3f} of a core meanwhile")
    begin = time.monotonic()
    end = begin + min(5.0, options.pairs)
    client.send((begin, end, 0.0))
    taken = client.recv()
    print(f"of an idle slot    {len(taken) / (end - begin):12,.0f} a second, {times(taken)}")


if __name__ == "__main__":
    main()
