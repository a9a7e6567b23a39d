"""Which epochs go through the driver, and how it hands frames to slots."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from pyarrow import flight

from weir.runtime.epoch import Epoch
from weir.runtime.frame import (
    FRAME_SCHEMA,
    REPORT_EDGE,
    Frame,
    frames_to_batch,
    pack_frames,
    size_of,
    unpack_frames,
)
from weir.runtime.report import SourceReport, SubtaskReport
from weir.slot.channel import ChannelError, read_frames
from weir.slot.messages import EndMarker, EpochCall, decode, encode
from weir.slot.spawn import Contact
from weir.spark.direct import (
    ALLOWANCE_MIN,
    PARTITIONS_MAX,
    RELAY_FACTOR,
    EpochTraffic,
    Relay,
    allowance,
    by_target,
    fits,
    is_direct,
)

MB = 1 << 20
TOKEN = b"t" * 32


def subtask_report(level, *, bytes_sent):
    return SubtaskReport(
        level=level,
        subtask=0,
        epoch=1,
        rows=[],
        bytes_sent=bytes_sent,
        records_in={},
        records_out={},
        entries=0,
        watermark=0,
        next_timer_ms=None,
        metrics={},
    )


@pytest.mark.parametrize(
    ("limit", "has_input", "before", "expected"),
    [
        (MB, False, None, True),
        (MB, False, EpochTraffic((9 * MB,)), True),
        (MB, True, None, False),
        (MB, True, EpochTraffic((100,), 50), True),
        (MB, True, EpochTraffic((MB + 1,)), False),
        (MB, True, EpochTraffic((100,), MB), False),
        (0, False, None, False),
        (0, True, EpochTraffic((0,)), False),
    ],
)
def test_an_epoch_is_direct_without_input_or_after_a_small_one(limit, has_input, before, expected):
    assert is_direct(limit, has_input=has_input, before=before) is expected


def test_what_fits_is_what_tasks_return():
    """Otherwise an epoch would be tried, found too large, and tried again the next time."""
    uneven = (allowance(MB, 3) + 1, 0, 0)
    assert sum(uneven) < MB
    assert not fits(EpochTraffic(uneven), MB)
    assert fits(EpochTraffic((allowance(MB, 3), 0, 0)), MB)


def test_many_partitions_do_not_fit():
    assert fits(EpochTraffic((1,) * PARTITIONS_MAX), MB)
    assert not fits(EpochTraffic((1,) * (PARTITIONS_MAX + 1)), MB)


def test_shares_are_even_but_not_too_small():
    assert allowance(MB, 0) == allowance(MB, 1) == MB
    assert allowance(MB, 4) == MB // 4
    assert allowance(MB, 1000) == ALLOWANCE_MIN
    assert allowance(100, 1000) == 100


def test_what_an_epoch_moved_is_the_sum_of_its_reports():
    sources = [SourceReport(n, 1, 8, sent) for n, sent in enumerate((3, 4))]
    subtasks = [subtask_report(level, bytes_sent=10 * level) for level in (1, 2)]
    assert EpochTraffic.of(sources, subtasks) == EpochTraffic((3, 4), 30)


def test_frames_go_to_their_targets_in_order():
    frames = [Frame(n % 3, 0, n, b"") for n in range(7)]
    parts = by_target(frames, 3)
    assert [[f.origin for f in part] for part in parts] == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.parametrize("target", [-1, 2])
def test_frames_for_nobody_are_refused(target):
    with pytest.raises(RuntimeError, match=f"subtask {target} of a level that has 2"):
        by_target([Frame(target, 0, 0, b"")], 2)


def test_frames_travel_as_one_value():
    frames = [Frame(1, 2, 1 << 40, b"abc"), Frame(0, REPORT_EDGE, 0, pa.py_buffer(b"xy"))]
    assert unpack_frames(pack_frames(frames)) == [
        Frame(1, 2, 1 << 40, b"abc"),
        Frame(0, REPORT_EDGE, 0, b"xy"),
    ]
    assert size_of(frames) == 3


class Slot(flight.FlightServerBase):
    """Answers a call with the frames that a function makes of it and of its input."""

    def __init__(self, location, work):
        super().__init__(location)
        self._work = work
        self.calls = []
        self.reports = []

    def do_exchange(self, context, descriptor, reader, writer):
        call = decode(descriptor.command[len(TOKEN) :], EpochCall)
        both = [
            (edge, origin)
            for batch in read_frames(reader, "input")
            for edge, origin in zip(*(batch.column(n).to_pylist() for n in (1, 2)), strict=True)
        ]
        received = [origin for edge, origin in both if edge != REPORT_EDGE]
        reports = [origin for edge, origin in both if edge == REPORT_EDGE]
        self.calls.append((call.level, received))
        self.reports += [(call.level, origin) for origin in reports]
        out = self._work(call, received)
        out += [Frame(0, REPORT_EDGE, origin, b"passed on") for origin in reports]
        writer.begin(FRAME_SCHEMA)
        writer.write_batch(frames_to_batch(out, int))
        writer.write_metadata(encode(EndMarker(len(out))))


class Driver(flight.FlightServerBase):
    """Takes note of failures."""

    def __init__(self, location):
        super().__init__(location)
        self.told = []

    def do_action(self, context, action):
        self.told.append(action.type)
        return [b""]


@pytest.fixture
def world(tmp_path):
    """Two slots, the JobManager, and a relay between them."""
    made = World(tmp_path)
    yield made
    made.relay.close()
    for server in (*made.slots, made.driver):
        server.shutdown()


class World:
    def __init__(self, path):
        self.unwanted = threading.Event()
        self.driver = Driver(f"grpc+unix://{path}/jm")
        self.works = [self.hand_on, self.hand_on]
        self.slots = [Slot(f"grpc+unix://{path}/s{n}", self.work(n)) for n in range(2)]
        contact = Contact(f"grpc+unix://{path}/jm", TOKEN, "", 0, "", "", tcp=False)
        self.located = [f"grpc+unix://{path}/s{n}" for n in range(2)]
        self.relay = Relay((1, 2, 2), contact, 100, lambda: self.located, self.watch)

    def work(self, number):
        return lambda call, received: self.works[number](call, received)

    def hand_on(self, call, received):
        """Send everything to subtask 0 of the next level, and a report."""
        sent = [Frame(0, 1, origin, b"x" * 10) for origin in received if call.level == 1]
        return [*sent, Frame(0, REPORT_EDGE, call.level, b"report")]

    def watch(self):
        if self.unwanted.is_set():
            msg = "nobody wants it"
            raise ValueError(msg)

    def run(self, *targets):
        assert self.relay.connect()
        frames = [Frame(target, 0, n, b"") for n, target in enumerate(targets)]
        return self.relay.run(
            EpochCall(0, 0, Epoch(1)), [*frames, Frame(0, REPORT_EDGE, 9, b"source")]
        )


def test_every_subtask_of_every_level_is_called_and_all_reports_come_back(world):
    reports = world.run(1, 1)
    assert sorted(r.origin for r in reports) == [1, 1, 2, 2, 9]
    assert world.slots[0].calls == [(1, []), (2, [0, 1])]
    assert world.slots[1].calls == [(1, [0, 1]), (2, [])]


def test_reports_of_earlier_levels_go_through_the_slots(world):
    """There a barrier that overtakes rows finds them, and who calls the level again."""
    world.run(1, 1)
    assert sorted(world.slots[0].reports) == [(1, 9), (2, 1), (2, 1), (2, 9)]
    assert world.slots[1].reports == []


def test_slots_of_a_level_work_at_the_same_time(world):
    both = threading.Barrier(2)

    def meet(call, received):
        both.wait(10)
        return world.hand_on(call, received)

    world.works = [meet, meet]
    assert world.run(0) is not None


def test_a_level_that_sends_too_much_is_not_handed_on(world):
    count = 100 * RELAY_FACTOR // 10
    assert world.run(*[0] * count) is not None
    world.slots[0].calls.clear()
    assert world.run(*[0] * (count + 1)) is None
    assert [level for level, _ in world.slots[0].calls] == [1]
    assert world.run(0) is not None, "the connections still work"


def test_a_slot_that_fails_is_told_to_the_jobmanager(world):
    def fail(call, received):
        msg = "boom"
        raise flight.FlightServerError(msg)

    world.works[1] = fail
    with pytest.raises(ChannelError, match=r"s1: .*boom"):
        world.run(0)
    assert world.driver.told == ["failure"]


def test_who_waits_for_a_slot_can_be_woken(world):
    begun, over = threading.Event(), threading.Event()

    def hang(call, received):
        begun.set()
        over.wait(60)
        return []

    world.works[0] = hang
    threading.Thread(target=lambda: begun.wait(60) and world.unwanted.set()).start()
    with pytest.raises(ValueError, match="nobody wants it"):
        world.run(0)
    assert world.driver.told == [], "the slot has done nothing wrong"
    over.set()


def test_there_is_no_connection_while_a_slot_is_missing(world):
    world.located = None
    assert not world.relay.connect()
