"""Alerts about racks that become hot, and about racks that fall silent: patterns on a stream.

Run it with `weir run examples/rising_temperature.py`. Rack 1 rises in three readings. Rack 2 cools
down in between. Racks 2 and 3 are warm and then say nothing for half a minute. The first of the
two patterns is written by hand in `rising_by_hand.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from weir.cep import CEP, AfterMatchSkipStrategy, Pattern
from weir.common import Duration, Types, WatermarkStrategy
from weir.datastream import DataStream, KeyedStream, StreamExecutionEnvironment

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
    (2, 80.0, 60),
]


def warm(reading: Reading) -> bool:
    return bool(reading[1] > 90)


def warmer(reading: Reading, context: Any) -> bool:
    """Compare with the readings that the partial match has so far."""
    before = context.get_events_for_pattern("rising") or context.get_events_for_pattern("warm")
    return bool(reading[1] > before[-1][1])


def alert(match: Mapping[str, Sequence[Reading]]) -> str:
    degrees = [reading[1] for readings in match.values() for reading in readings]
    return f"rack {match['warm'][0][0]} rises: {degrees}"


pattern = (
    Pattern.begin("warm", AfterMatchSkipStrategy.skip_past_last_event())
    .where(warm)
    .next("rising")
    .where(warmer)
    .times(2)
    .consecutive()
    .within(Duration.of_seconds(30))
)
quiet = (
    Pattern.begin("warm")
    .where(warm)
    .not_followed_by("any")
    .within(Duration.of_seconds(30))
)  # fmt: skip

types = Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.LONG()])


def by_rack(readings: DataStream[Reading]) -> KeyedStream[Reading, int]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    strategy = strategy.with_timestamp_assigner(lambda reading, _: reading[2] * 1000)
    return readings.assign_timestamps_and_watermarks(strategy) \
        .key_by(lambda reading: reading[0], Types.LONG())  # fmt: skip


def alerts(readings: DataStream[Reading]) -> DataStream[Any]:
    return CEP.pattern(by_rack(readings), pattern).select(alert, Types.STRING()).uid("rising")


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    readings = env.from_collection(READINGS, types)
    alerts(readings).print()
    CEP.pattern(by_rack(readings), quiet) \
        .select(lambda match: f"rack {match['warm'][0][0]} is silent", Types.STRING()) \
        .print()  # fmt: skip
    env.execute("rising temperature")


if __name__ == "__main__":
    main()
