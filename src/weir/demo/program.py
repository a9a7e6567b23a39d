"""The demo's job, written as any user would write it: keyed state beside broadcast rules.

For every payment it emits the running total of the card, the number of merchants the card was
used at, and whether the rule in force at the payment's event time flags it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weir.common.typeinfo import Types
from weir.datastream import KeyedBroadcastProcessFunction, StreamExecutionEnvironment
from weir.datastream.connectors.file_system import FileSink
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor
from weir.demo.payments import PAYMENTS_DDL, RULES_DDL

RULES = MapStateDescriptor("rules", Types.INT(), Types.TUPLE([Types.LONG(), Types.LONG()]))
OUTPUT_NAMES = ["seq", "card", "total_cents", "merchants", "flagged", "rule"]
OUTPUT_TYPE = Types.ROW_NAMED(
    OUTPUT_NAMES,
    [Types.LONG(), Types.LONG(), Types.LONG(), Types.INT(), Types.BOOLEAN(), Types.INT()],
)


class CheckPayments(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Keeps totals and merchants per card, and all rules in broadcast state."""

    def open(self, runtime_context: Any) -> None:
        """Get the states of the card."""
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self._distinct = runtime_context.get_state(ValueStateDescriptor("distinct", Types.INT()))
        self._merchants = runtime_context.get_map_state(
            MapStateDescriptor("merchants", Types.INT(), Types.BOOLEAN())
        )
        # Derived from the broadcast state, which survives a crash; this list does not have to.
        self._rules: list[tuple[int, int, int]] | None = None

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        """Take a new rule."""
        ctx.get_broadcast_state(RULES).put(value.version, (value.from_ms, value.limit_cents))
        self._rules = None

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Account for a payment."""
        seq, card, merchant, amount, event_time_ms = value
        total = (self._total.value() or 0) + amount
        self._total.update(total)
        distinct = self._distinct.value() or 0
        if not self._merchants.contains(merchant):
            self._merchants.put(merchant, True)
            distinct += 1
            self._distinct.update(distinct)
        if self._rules is None:
            entries = ctx.get_broadcast_state(RULES).items()
            self._rules = sorted((start, limit, version) for version, (start, limit) in entries)
        number = bisect_right(self._rules, event_time_ms, key=_start) - 1
        _, limit, version = self._rules[number]
        yield seq, card, total, distinct, amount > limit, version


def _start(rule: tuple[int, int, int]) -> int:
    return rule[0]


def declare(env: StreamExecutionEnvironment, source: Path, target: Path) -> None:
    """Declare the job between the folders of the input and that of the output."""
    spark = env.get_spark()

    def stream(name: str, schema: str) -> Any:
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return env.from_dataframe(reader.parquet(str(source / name)), name=name).uid(name)

    rules = stream("rules", RULES_DDL).broadcast(RULES)
    checked = (
        stream("payments", PAYMENTS_DDL)
        .key_by("card")
        .connect(rules)
        .process(CheckPayments(), OUTPUT_TYPE)
        .uid("check-payments")
        .name("Check payments")
    )
    checked.sink_to(FileSink.parquet(str(target))).uid("output")
