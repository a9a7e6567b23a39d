"""Events enriched by their own past: the last purchases of a customer, looked up in state.

A purchase is compared with the three before it and stored; a question is answered from what is
stored, without a database. Run it with `weir run examples/history_lookup.py`.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from weir.common import Types
from weir.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from weir.datastream.state import ListStateDescriptor, MapStateDescriptor

Event: TypeAlias = tuple[Any, ...]

KEPT = 3
EVENTS = [
    # customer, what, product, price
    ("ann", "buys", "tea", 4),
    ("ann", "buys", "pot", 20),
    ("bob", "buys", "ink", 7),
    ("bob", "asks", "tea", 0),
    ("ann", "buys", "tea", 6),
    ("ann", "buys", "cup", 90),
    ("ann", "asks", "tea", 0),
    ("bob", "buys", "pen", 3),
]
EVENT = Types.TUPLE([Types.STRING(), Types.STRING(), Types.STRING(), Types.LONG()])


class History(KeyedProcessFunction[str, Event, str]):
    """Keeps the last prices of a customer, and how often each product was bought."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.prices = runtime_context.get_list_state(ListStateDescriptor("prices", Types.LONG()))
        self.bought = runtime_context.get_map_state(
            MapStateDescriptor("bought", Types.STRING(), Types.LONG())
        )

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        customer, what, product, price = value
        before = list(self.prices.get())
        times = self.bought.get(product) or 0
        if what == "asks":
            yield f"{customer} bought {product} {times} times, last prices {before}"
            return
        if before and price > 2 * max(before):
            yield f"{customer} pays {price} for {product}, before that {before}"
        self.prices.update([*before, price][-KEPT:])
        self.bought.put(product, times + 1)


def looked_up(events: DataStream[Event]) -> DataStream[str]:
    return (
        events.key_by(lambda event: event[0], Types.STRING())
        .process(History(), Types.STRING())
        .uid("history")
    )


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    looked_up(env.from_collection(EVENTS, EVENT)).print()
    env.execute("history look-up")


if __name__ == "__main__":
    main()
