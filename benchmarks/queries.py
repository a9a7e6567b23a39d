"""What look-ups cost a busy slot, and how long they take.

Three processes, as in a job: a slot, which applies the same epoch again and again, a count per key;
this one, which serves queries as a driver does; and a client, whose threads look single keys up by
`QueryableStateClient.get_kv_state`, at a given rate in all. Rounds with and without look-ups
alternate, and each pair has a ratio. Then the slot idles, and only look-ups are timed. The aims are
95 % of the records at 1,000 look-ups a second, and 20 ms for 99 of 100 look-ups.

Usage: python benchmarks/queries.py [--rate 1000] [--threads 8] [--seconds 5] [--rounds 5]
       [--records 50000] [--keys 10000] [--smoke]
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

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
    """Serve look-ups; for every number of seconds that comes, apply epochs and tell records/s."""
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
    while (seconds := pipe.recv()) is not None:
        done, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            number += 1
            call = EpochCall(slot.attempt, level, Epoch(number, None, False))
            service.run(call, service.take_in(iter(as_incoming(frames))))
            done += records
        pipe.send(done / (time.perf_counter() - begun))
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
    """Threads that look keys up at a rate, and how long each took."""

    def __init__(self, look: Callable[[int], None], options: Any) -> None:
        """Start them."""
        self._look = look
        self._pause = options.threads / options.rate
        self._keys = options.keys
        self._over = threading.Event()
        self.taken: list[float] = []
        self.threads = [
            threading.Thread(target=self._ask, args=(seed,), daemon=True)
            for seed in range(options.threads)
        ]
        self._begun = time.perf_counter()
        for thread in self.threads:
            thread.start()

    def _ask(self, seed: int) -> None:
        chance, due = random.Random(seed), time.perf_counter()
        due += chance.random() * self._pause
        while not self._over.wait(max(0.0, due - time.perf_counter())):
            begun = time.perf_counter()
            self._look(chance.randrange(self._keys))
            self.taken.append(time.perf_counter() - begun)
            due += self._pause

    def stop(self) -> float:
        """End; returns look-ups a second."""
        self._over.set()
        for thread in self.threads:
            thread.join()
        return len(self.taken) / (time.perf_counter() - self._begun)


def client_process(pipe: Any, port: int, options: Any) -> None:
    """For every number of seconds that comes, look keys up so long; tell the rate and all times."""
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
    while (seconds := pipe.recv()) is not None:
        asking = Asking(look, options)
        threading.Event().wait(seconds)
        pipe.send((asking.stop(), asking.taken))
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
        ("seconds", 5),
        ("rounds", 5),
        ("records", 50_000),
        ("keys", 10_000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--smoke", action="store_true", help="a fraction of a second")
    options = parser.parse_args()
    if options.smoke:
        options.rate, options.seconds, options.rounds = 100, 1, 1
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
            measure(slot_pipe, client_pipe, options)
        finally:
            for pipe, process in ((client_pipe, client), (slot_pipe, slot)):
                pipe.send(None)
                process.join(10)
            server.close()


def measure(slot: Any, client: Any, options: Any) -> None:
    """Alternate between rounds with and without look-ups."""
    alone, asked, rates, busy = [], [], [], []

    def without() -> None:
        slot.send(options.seconds)
        alone.append(slot.recv())

    def beside() -> None:
        slot.send(options.seconds)
        client.send(options.seconds)
        asked.append(slot.recv())
        rate, taken = client.recv()
        rates.append(rate)
        busy.extend(taken)

    slot.send(min(1, options.seconds))
    slot.recv()  # the first epochs are slower
    for number in range(options.rounds):
        for one in (without, beside) if number % 2 == 0 else (beside, without):
            one()
    ratios = [b / a for a, b in zip(alone, asked, strict=True)]
    print(f"without look-ups   {statistics.median(alone):12,.0f} records/s")
    print(f"beside look-ups    {statistics.median(asked):12,.0f} records/s")
    print(
        f"ratio              {statistics.median(ratios):12.3f}, median of {options.rounds} pairs "
        f"of rounds, {min(ratios):.3f} to {max(ratios):.3f}"
    )
    print(f"look-ups           {statistics.median(rates):12,.0f} a second, {times(busy)}")
    client.send(options.seconds)
    rate, taken = client.recv()
    print(f"of an idle slot    {rate:12,.0f} a second, {times(taken)}")


if __name__ == "__main__":
    main()
