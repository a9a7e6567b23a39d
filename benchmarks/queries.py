"""What look-ups cost a busy slot, and how long they take.

Three processes, as in a job: a slot, which applies the same epoch again and again, a count per key;
this one, which serves queries as a driver does; and a client, which looks single keys up by
`QueryableStateClient.get_kv_state`, one after the other at a given rate, whether answers have come
or not: a look-up takes from when it is due until its answer is there. The slot never rests; there
are turns of half a second with look-ups, without, and with a process that uses as much of a core as
driver and client do, and asks nothing: two cores may be halves of one, or share its caches. Three
such turns, each time in another order, have ratios: a machine that others share changes its speed
from second to second. Results are medians of these, with their 95 % intervals. Then the slot idles,
and only look-ups are timed. The aims are 95 % of the records at 1,000 look-ups a second, and 20 ms
for 99 of 100 look-ups.

Usage: python -m benchmarks.queries [--rate 1000] [--triples 60]
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
from collections import deque
from concurrent.futures import Future
from itertools import pairwise, permutations
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
EDGE_S = 0.05
"""What was asked in the turn before may still be answered."""
CALM = 0.01
"""What other guests may take of the machine in a turn that counts as undisturbed: a tick."""
PULSE_S = 0.004
LOOK_UPS, NOTHING, NEIGHBOUR = KINDS = ("beside look-ups", "without look-ups", "beside another")


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
    """Looks keys up at a rate, in the turns for it; how long each took, from when it was due."""

    def __init__(self, client: QueryableStateClient, options: Any) -> None:
        """Know what to ask."""
        self._client = client
        self._pause = 1 / options.rate
        self._keys = options.keys
        self._chance = random.Random(7)
        self._descriptor = ValueStateDescriptor("count", Types.LONG())
        self._wait = threading.Event().wait
        self.taken: list[float] = []

    def look(self, due: float) -> Future[None]:
        """Look a key up."""
        key = self._chance.randrange(self._keys)
        done: Future[None] = Future()

        def ended(found: Any, error: BaseException | None) -> None:
            self.taken.append(time.monotonic() - due)
            if error is None and not found.value():
                error = SystemExit(f"key {key} was not found")
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        future = self._client.get_kv_state(JOB, "counts", key, Types.LONG(), self._descriptor)
        future.when_complete(ended)
        return done

    def ask(self, begin: float, end: float) -> None:
        """Ask from one moment to another, and wait for all answers."""
        asked, due = deque[Future[None]](), begin
        while due < end:
            self._wait(max(0.0, due - time.monotonic()))
            asked.append(self.look(due))
            # What is kept is gone through by the garbage collector again and again.
            while asked and asked[0].done():
                asked.popleft().result()
            due += self._pause
        for one in asked:
            one.result(30)


def burn(begin: float, end: float, share: float) -> None:
    """Use a share of a core, in pulses as short as those of look-ups."""
    wait, due = threading.Event().wait, begin
    while due < end:
        wait(max(0.0, due - time.monotonic()))
        while time.monotonic() < due + share * PULSE_S:
            pass
        due += PULSE_S


def client_process(pipe: Any, port: int, options: Any) -> None:
    """For every turn that comes, as begin, end and share, ask, or use the share.

    For turns in which it asked, tell all times, and what others took of the machine meanwhile.

    It stands for programs elsewhere, so it is kept on one core, where it cannot stop the slot.
    """
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    client = QueryableStateClient("127.0.0.1", port, token=SECRET)
    asking = Asking(client, options)
    for _ in range(20):
        asking.look(time.monotonic()).result(30)  # what is made with the first is no part of it
    asking.taken.clear()
    wait = threading.Event().wait
    pipe.send("ready")
    while (told := pipe.recv()) is not None:
        turns = []
        for begin, end, share in told:
            if share:
                burn(begin, end, share)
            else:
                wait(max(0.0, begin - time.monotonic()))
                before = stolen()
                asking.ask(begin, end)
                lost, passed = (a - b for a, b in zip(stolen(), before, strict=True))
                turns.append((asking.taken, lost / max(passed, 1)))
                asking.taken = []
        pipe.send(turns)
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
        ("triples", 60),
        ("records", 50_000),
        ("keys", 10_000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--smoke", action="store_true", help="a fraction of a second")
    options = parser.parse_args()
    if options.smoke:
        options.rate, options.triples = 100, 2
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


def kinds_of(triples: int) -> list[str]:
    """Return what happens in each turn: all three kinds in each triple, in all orders."""
    orders = list(permutations(KINDS))
    return [kind for number in range(triples) for kind in orders[number % len(orders)]]


def stolen() -> tuple[int, int]:
    """Return ticks that other guests of the host have taken from this machine, and all ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)


def rates_of(ends: list[float], begin: float, records: int, turns: int) -> list[float | None]:
    """Return records/s of the epochs that lie in each turn, behind its first moments."""
    found: list[list[float]] = [[] for _ in range(turns)]
    for low, high in pairwise(ends):
        turn = int((low - begin) // TURN_S)
        first, last = begin + turn * TURN_S + EDGE_S, begin + (turn + 1) * TURN_S
        if 0 <= turn < turns and first <= low and high <= last:
            found[turn].append(records / (high - low))
    return [statistics.harmonic_mean(one) if one else None for one in found]


def ratios_of(rates: list[float | None], kinds: list[str], above: str, below: str) -> list[float]:
    """Return for every triple of turns the ratio of two kinds."""
    ratios = []
    for first in range(0, len(kinds), len(KINDS)):
        own = dict(zip(kinds[first:], rates[first : first + len(KINDS)], strict=False))
        one, other = own.get(above), own.get(below)
        if one and other:
            ratios.append(one / other)
    return ratios


def told(ratios: list[float]) -> str:
    """Return the median and its interval."""
    low, high = interval(ratios)
    middle = statistics.median(ratios)
    return f"{middle:12.3f}, median of {len(ratios)}; its 95 % interval is {low:.3f} to {high:.3f}"


def tell_look_ups(name: str, turns: list[tuple[list[float], float]]) -> None:
    """Print how long look-ups took in all turns, and in those that nobody else disturbed."""
    every = [one for taken, _ in turns for one in taken]
    print(f"{name:18} {len(every) / len(turns) / TURN_S:12,.0f} a second, {times(every)}")
    calm = [taken for taken, lost in turns if lost <= CALM]
    own = [one for taken in calm for one in taken]
    found = times(own) if own else "none"
    print(f"  in calm turns    {len(calm):12,} of {len(turns)}: {found}")


def share_of(slot: Any, client: Any, client_process: int, seconds: float) -> tuple[float, float]:
    """Return how much of a core driver and client use beside a busy slot."""
    processes = (os.getpid(), client_process)
    begin = time.monotonic() + 0.1
    slot.send(begin + seconds)
    before = [cpu_seconds(process) for process in processes]
    client.send([(begin, begin + seconds, 0.0)])
    client.recv()
    used = [(cpu_seconds(p) - b) / seconds for p, b in zip(processes, before, strict=True)]
    slot.recv()
    return used[0], used[1]


def measure(slot: Any, client: Any, client_process: int, options: Any) -> None:
    """Let turns of all kinds follow each other."""
    slot.send(time.monotonic() + 1)
    slot.recv()  # the first epochs are slower
    driver, asker = share_of(slot, client, client_process, min(5.0, options.triples))
    kinds = kinds_of(options.triples)
    begin = time.monotonic() + 0.5
    turns = [(begin + n * TURN_S, begin + (n + 1) * TURN_S) for n in range(len(kinds))]
    shares = {LOOK_UPS: 0.0, NEIGHBOUR: max(driver + asker, 0.001)}
    client.send(
        [(*turn, shares[kind]) for turn, kind in zip(turns, kinds, strict=True) if kind in shares]
    )
    slot.send(turns[-1][1])
    before = stolen()
    ends, asked = slot.recv(), client.recv()
    lost, passed = (after - first for after, first in zip(stolen(), before, strict=True))
    rates = rates_of(ends, begin, options.records, len(kinds))
    for kind in KINDS:
        own = [rate for rate, other in zip(rates, kinds, strict=True) if rate and other == kind]
        print(f"{kind:18} {statistics.median(own):12,.0f} records/s")
    print(f"ratio              {told(ratios_of(rates, kinds, LOOK_UPS, NOTHING))}")
    print(f"of a neighbour     {told(ratios_of(rates, kinds, NEIGHBOUR, NOTHING))}")
    print(f"beside a neighbour {told(ratios_of(rates, kinds, LOOK_UPS, NEIGHBOUR))}")
    tell_look_ups("look-ups", asked)
    print(f"driver, client     {driver:12.3f}, {asker:.3f} of a core meanwhile")
    print(f"taken by others    {lost / max(passed, 1):12.3f} of the machine, by other guests of it")
    begin = time.monotonic()
    end = begin + min(30.0, options.triples / 2)
    count = max(1, int((end - begin) / TURN_S))
    client.send([(begin + n * TURN_S, begin + (n + 1) * TURN_S, 0.0) for n in range(count)])
    tell_look_ups("of an idle slot", client.recv())


if __name__ == "__main__":
    main()
