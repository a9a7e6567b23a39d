"""Orders joined with their payments by time, and customers looked up with async I/O.

An order and a payment of the same number are a pair if the payment comes within a minute. For every
pair the customer's name is asked for; many questions are under way at a time. Run it with
`weir run examples/paid_orders.py`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from weir.common import Duration, Time, TypeInformation, Types, WatermarkStrategy
from weir.datastream import (
    AsyncDataStream,
    AsyncFunction,
    KeyedStream,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)

Record: TypeAlias = tuple[Any, ...]

ORDERS = [("o1", 7, 10_000), ("o2", 8, 20_000), ("o3", 9, 30_000)]  # number, customer, time
PAYMENTS = [("o3", 90_000), ("o1", 12_000), ("o2", 95_000)]  # number, time
NAMES = {7: "Ann", 8: "Bob", 9: "Eve"}


class Paid(ProcessJoinFunction):
    def process_element(
        self, order: Record, payment: Record, ctx: ProcessJoinFunction.Context
    ) -> Iterator[tuple[str, int, int]]:
        yield order[0], order[1], ctx.get_right_timestamp() - ctx.get_left_timestamp()


class WithName(AsyncFunction[tuple[str, int, int], str]):
    async def async_invoke(self, value: tuple[str, int, int]) -> list[str]:
        number, customer, took_ms = value
        await asyncio.sleep(0.01)  # a client that can be awaited stands here
        return [f"{NAMES[customer]} paid {number} after {took_ms} ms"]


def timed(
    env: StreamExecutionEnvironment,
    records: Sequence[Record],
    record_type: TypeInformation[Record],
) -> KeyedStream[Record, str]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    strategy = strategy.with_timestamp_assigner(lambda record, _: record[-1])
    stream = env.from_collection(records, record_type).assign_timestamps_and_watermarks(strategy)
    return stream.key_by(lambda record: record[0], Types.STRING())


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    text, number = Types.STRING(), Types.LONG()
    orders = timed(env, ORDERS, Types.TUPLE([text, number, number]))
    payments = timed(env, PAYMENTS, Types.TUPLE([text, number]))
    paid = (
        orders.interval_join(payments)
        .between(Time.seconds(0), Time.minutes(1))
        .process(Paid(), Types.TUPLE([text, number, number]))
        .uid("paid")
    )
    AsyncDataStream.unordered_wait(paid, WithName(), Time.seconds(30), output_type=text).print()
    env.execute("paid orders")


if __name__ == "__main__":
    main()
