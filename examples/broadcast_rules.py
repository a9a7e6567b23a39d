"""Pairs of shapes of one colour, found by rules that are broadcast to all subtasks.

A rule says "first shape, then second shape"; an item that came first waits in the state of its
colour until a partner comes. Run it with `weir run examples/broadcast_rules.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from weir.common.typeinfo import Types
from weir.datastream import (
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from weir.datastream.state import MapStateDescriptor


@dataclass(frozen=True)
class Item:
    color: str
    shape: str
    number: int

    def get_shape(self) -> str:
        return self.shape

    def __str__(self) -> str:
        return f"{self.color} {self.shape} {self.number}"


@dataclass(frozen=True)
class Rule:
    name: str
    first: str
    second: str


class MyKeyedBroadcastProcessFunction(KeyedBroadcastProcessFunction[str, Item, Rule, str]):
    def __init__(self) -> None:
        self._map_state_desc = MapStateDescriptor(
            "item", Types.STRING(), Types.LIST(Types.PICKLED_BYTE_ARRAY())
        )
        self._rule_state_desc = MapStateDescriptor(
            "RuleBroadcastState", Types.STRING(), Types.PICKLED_BYTE_ARRAY()
        )

    def open(self, ctx: RuntimeContext) -> None:
        self._map_state = ctx.get_map_state(self._map_state_desc)

    def process_broadcast_element(
        self, value: Rule, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(self._rule_state_desc).put(value.name, value)

    def process_element(
        self, value: Item, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[str]:
        shape = value.get_shape()

        for rule_name, rule in ctx.get_broadcast_state(self._rule_state_desc).items():
            stored = self._map_state.get(rule_name)
            if stored is None:
                stored = []

            if shape == rule.second and len(stored) > 0:
                for i in stored:
                    yield f"MATCH: {i} - {value}"
                stored = []

            if shape == rule.first:
                stored.append(value)

            if len(stored) == 0:
                self._map_state.remove(rule_name)
            else:
                self._map_state.put(rule_name, stored)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    item_stream = env.from_collection(
        [
            Item("red", "square", 1),
            Item("blue", "square", 2),
            Item("red", "triangle", 3),
            Item("red", "circle", 4),
            Item("blue", "circle", 5),
            Item("green", "circle", 6),
        ]
    )
    rule_stream = env.from_collection([Rule("square, then circle", "square", "circle")])

    # items of one colour meet in one subtask
    color_partitioned_stream = item_stream.key_by(lambda item: item.color)

    # every subtask gets all rules
    rule_state_descriptor = MapStateDescriptor(
        "RuleBroadcastState", Types.STRING(), Types.PICKLED_BYTE_ARRAY()
    )
    rule_broadcast_stream = rule_stream.broadcast(rule_state_descriptor)

    color_partitioned_stream \
        .connect(rule_broadcast_stream) \
        .process(MyKeyedBroadcastProcessFunction(), Types.STRING()) \
        .print()  # fmt: skip
    env.execute("broadcast rules")


if __name__ == "__main__":
    main()
