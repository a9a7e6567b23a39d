"""Targets for the state of windows and patterns: what an operator restores and goes on with.

The bytes are those of a snapshot whose checksums are right, with contents that no release wrote:
namespaces, sessions, triggers' state, timers, partial matches. An operator that is restored from
them refuses them by name, at the restore or when it comes to them, or takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from tests.fuzz.state_files import REFUSED, put_together, taken_apart
from tests.fuzz.target import NoInputError, Target
from tests.window_driver import MAX, Driver

from weir.cep import CEP, Pattern
from weir.common import Duration, Types
from weir.datastream import AggregateFunction, ProcessWindowFunction
from weir.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from weir.errors import WeirError
from weir.testing.backend_snapshot_conformance import source_of, write_file

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
ROWS = [("a", 1, 5), ("b", 2, 6), ("a", 3, 17), ("a", 4, 18), ("c", 5, 21)]
MORE = [("a", 6, 19), ("b", 7, 40), ("d", 8, 41)]
_encode, _decode = msgspec.msgpack.encode, msgspec.msgpack.decode
_NO_TREE = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)


class Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value[1])

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Numbers(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, [number for _, number in elements]


def _keyed(stream: Any) -> Any:
    return stream.key_by(lambda value: value[0], Types.STRING())


def _add(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


WINDOWS: list[Callable[[Any], Any]] = [
    lambda s: _keyed(s).window(TumblingEventTimeWindows.of(10)).process(Numbers()),
    lambda s: (
        _keyed(s).window(SlidingEventTimeWindows.of(20, 10)).allowed_lateness(15).reduce(_add)
    ),
    lambda s: (
        _keyed(s)
        .window(EventTimeSessionWindows.with_gap(9))
        .allowed_lateness(30)
        .aggregate(Sum(), accumulator_type=Types.LONG())
    ),
    lambda s: _keyed(s).count_window(3).process(Numbers()),
    lambda s: (
        _keyed(s)
        .window(GlobalWindows.create())
        .trigger(PurgingTrigger.of(CountTrigger.of(4)))
        .evictor(CountEvictor.of(2))
        .process(Numbers())
    ),
]


def _pattern(s: Any) -> Any:
    found = Pattern.begin("a").where(lambda e: e[1] % 2 == 1).one_or_more()
    found = found.followed_by("b").where(lambda e: e[1] % 2 == 0).within(Duration.of_millis(90))
    matches = CEP.pattern(_keyed(s), found)
    return matches.select(lambda match: [e[1] for e in match["a"]])


class _Programs:
    """Operators of several programs; bytes say which one, and what it is restored from."""

    def __init__(self, declared: list[Callable[[Any], Any]], kind: str) -> None:
        self._drivers = [Driver(declare, types=PAIR, kind=kind) for declare in declared]
        self._groups = self._drivers[0].op.key_groups

    def corpus(self) -> list[bytes]:
        found = []
        for number, driver in enumerate(self._drivers):
            driver.epoch(*ROWS).watermark(7)
            op = driver.op
            snapshot = op.backend.snapshot(1)
            tree = _decode(taken_apart(write_file(snapshot)))
            snapshot.release()
            found.append(_encode([number, *tree]))
        return found

    def run(self, data: bytes) -> None:
        try:
            number, *tree = _decode(data)
            driver = self._drivers[number % len(self._drivers)]
            source = _encode(tree)
        except _NO_TREE as error:
            raise NoInputError from error
        file = put_together(source)
        driver.results.clear()
        driver.ops.clear()
        driver._begin([source_of(file, self._groups)], 1)
        try:
            driver.op.watermark = 7
            driver.epoch(*MORE).watermark(25)
            driver.op.backend.snapshot(2).release()
            driver.watermark(MAX)
        finally:
            driver.close()


TARGETS = [
    Target(
        "window-state-repaired",
        "msgpack",
        lambda: _Programs(WINDOWS, "window").corpus(),
        lambda: _Programs(WINDOWS, "window").run,
        (*REFUSED, WeirError),
    ),
    Target(
        "pattern-state-repaired",
        "msgpack",
        lambda: _Programs([_pattern], "cep").corpus(),
        lambda: _Programs([_pattern], "cep").run,
        (*REFUSED, WeirError),
    ),
]
