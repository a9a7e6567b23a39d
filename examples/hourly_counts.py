"""Visits counted by page and hour, in event time, with those that came too late beside them.

Run it with `weir run examples/hourly_counts.py`. Every visit is an epoch of its own here, so that
the watermark moves between them: the visit of 9:50 comes when its hour is over for good.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import Any, TypeAlias

from weir.common import Configuration, Duration, Types, WatermarkStrategy
from weir.common.watermark_strategy import TimestampAssigner
from weir.datastream import (
    DataStream,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from weir.datastream.window import TimeWindow, TumblingEventTimeWindows

Visit: TypeAlias = tuple[Any, ...]

VISITS = [
    ("/start", "09:05"),
    ("/help", "09:40"),
    ("/start", "09:55"),
    ("/start", "10:02"),
    ("/start", "09:58"),  # out of order, within the ten minutes
    ("/help", "10:30"),
    ("/start", "11:20"),
    ("/help", "09:50"),  # too late
]
VISIT = Types.TUPLE([Types.STRING(), Types.STRING()])
COUNTED = Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT()])
TOO_LATE = OutputTag("too-late", VISIT)


class MinuteOfDay(TimestampAssigner):
    def extract_timestamp(self, value: Visit, record_timestamp: int) -> int:
        hours, minutes = value[1].split(":")
        return (int(hours) * 60 + int(minutes)) * 60_000


class Count(ProcessWindowFunction[Visit, tuple[str, str, int], str, TimeWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context,
        elements: Iterable[Visit],
    ) -> Iterator[tuple[str, str, int]]:
        hour = datetime.fromtimestamp(context.window().start / 1000, timezone.utc)
        yield key, f"{hour:%H:%M}", sum(1 for _ in elements)


def hourly(visits: DataStream[Visit]) -> DataStream[tuple[str, str, int]]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(10))
    return visits.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(MinuteOfDay())
    ) \
        .key_by(lambda visit: visit[0], Types.STRING()) \
        .window(TumblingEventTimeWindows.of(Duration.of_hours(1))) \
        .side_output_late_data(TOO_LATE) \
        .process(Count(), COUNTED) \
        .uid("hourly")  # fmt: skip


def main() -> None:
    config = Configuration()
    config.set_string("weir.source.batch-rows", "1")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    counts = hourly(env.from_collection(VISITS, VISIT))
    counts.print()
    counts.get_side_output(TOO_LATE).print("too late")
    env.execute("hourly counts")


if __name__ == "__main__":
    main()
