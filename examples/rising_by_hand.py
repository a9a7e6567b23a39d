"""Alerts about racks that become hot, written by hand: list state and event-time timers.

What `rising_temperature.py` says as a pattern: a reading above 90 degrees, then two in a row that
are warmer each, all within 30 seconds. Run it with `weir run examples/rising_by_hand.py`.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from weir.common import Duration, Types, WatermarkStrategy
from weir.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from weir.datastream.state import ListStateDescriptor

Reading: TypeAlias = tuple[Any, ...]

READINGS = [
    # rack, degrees, second
    (1, 91.0, 1),
    (2, 95.5, 1),
    (3, 97.0, 2),
    (1, 97.5, 6),
    (2, 90.0, 6),
    (1, 104.0, 11),
    (2, 101.0, 11),
    (1, 84.0, 16),
    (2, 102.0, 50),  # warmer, but too long after the one before
    (2, 103.0, 55),
    (2, 80.0, 60),
]
READING = Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.LONG()])
WARM, IN_A_ROW, WITHIN_SECONDS = 90, 3, 30


class Rising(KeyedProcessFunction[int, Reading, str]):
    """Keeps the last readings of a rack as long as each is warmer than the one before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.rise = runtime_context.get_list_state(ListStateDescriptor("rise", READING))

    def process_element(self, value: Reading, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        rise = list(self.rise.get())
        rise = [*rise, value][-IN_A_ROW:] if rise and value[1] > rise[-1][1] else [value]
        if self.is_alarming(rise):
            yield f"rack {value[0]} rises: {[degrees for _, degrees, _ in rise]}"
            self.rise.clear()
            return
        self.rise.update(rise)
        # No rise is longer than this: a rack that falls silent leaves no state behind.
        ctx.timer_service().register_event_time_timer((value[2] + WITHIN_SECONDS) * 1000)

    def is_alarming(self, rise: list[Reading]) -> bool:
        """Time is judged by the readings: timers may come later than they are due."""
        took = rise[-1][2] - rise[0][2]
        return len(rise) == IN_A_ROW and bool(rise[0][1] > WARM and took < WITHIN_SECONDS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        rise = list(self.rise.get())
        if rise and timestamp == (rise[-1][2] + WITHIN_SECONDS) * 1000:
            self.rise.clear()


def alerts(readings: DataStream[Reading]) -> DataStream[str]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    strategy = strategy.with_timestamp_assigner(lambda reading, _: reading[2] * 1000)
    return (
        readings.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda reading: reading[0], Types.LONG())
        .process(Rising(), Types.STRING())
        .uid("rising")
    )


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    alerts(env.from_collection(READINGS, READING)).print()
    env.execute("rising temperature by hand")


if __name__ == "__main__":
    main()
