"""Daily active users of every site: who came is kept for a day, and then expires.

The set of a site's users is a map state with a time to live by event time, so a job that works off
a backlog forgets as one that is on time. Run it with `weir run examples/daily_users.py`. Every
visit is an epoch of its own here, so that the watermark moves between them.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from weir.common import Configuration, Time, Types, WatermarkStrategy
from weir.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from weir.datastream.state import MapStateDescriptor, StateTtlConfig, ValueStateDescriptor

Visit: TypeAlias = tuple[Any, ...]

HOUR_MS = 3_600_000
DAY_HOURS = 24
VISITS = [
    # site, user, hour
    ("shop", "ann", 1),
    ("shop", "bob", 2),
    ("shop", "ann", 9),  # again on the first day
    ("blog", "ann", 20),
    ("shop", "ann", 25),  # the second day
    ("shop", "eve", 30),
    ("shop", "bob", 50),  # the third
]
VISIT = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])
COUNTED = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])


class DailyUsers(KeyedProcessFunction[str, Visit, tuple[str, int, int]]):
    """Counts the users of a site, each once a day."""

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = StateTtlConfig.new_builder(Time.days(1)).use_event_time().build()
        seen = MapStateDescriptor("seen", Types.STRING(), Types.LONG())
        seen.enable_time_to_live(ttl)
        count = ValueStateDescriptor("count", Types.TUPLE([Types.LONG(), Types.LONG()]))
        count.enable_time_to_live(ttl)
        self.seen = runtime_context.get_map_state(seen)
        self.count = runtime_context.get_state(count)

    def process_element(
        self, value: Visit, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, int, int]]:
        site, user, hour = value
        day = hour // DAY_HOURS
        # A day of the calendar is at most as long as the time to live: nothing expires too early.
        if self.seen.get(user) == day:
            return
        self.seen.put(user, day)
        last_day, users = self.count.value() or (day, 0)
        users = users + 1 if last_day == day else 1
        self.count.update((day, users))
        yield site, day + 1, users


def daily(visits: DataStream[Visit]) -> DataStream[tuple[str, int, int]]:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda visit, _: visit[2] * HOUR_MS)
    return (
        visits.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda visit: visit[0], Types.STRING())
        .process(DailyUsers(), COUNTED)
        .uid("daily users")
    )


def main() -> None:
    config = Configuration()
    config.set_string("weir.source.batch-rows", "1")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    daily(env.from_collection(VISITS, VISIT)).print()
    env.execute("daily users")


if __name__ == "__main__":
    main()
