"""A Structured Streaming DataFrame in, DataFrames out: totals per account that survive crashes.

Rows come from `spark.readStream`, keyed state keeps the totals, and `foreach_batch` gets the rows
of every completed checkpoint as a DataFrame. Run it with `weir run examples/dataframe_in_out.py`.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from weir.datastream.state import ValueStateDescriptor


class RunningTotal(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        yield value.account, total


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_configuration().set("weir.trigger", "available-now")
    spark = env.get_spark()
    folder = Path(tempfile.mkdtemp(prefix="weir-example-"))
    source, target = str(folder / "bookings"), str(folder / "totals")
    spark.range(1, 1001).selectExpr("id % 4 AS account", "id AS amount").write.parquet(source)

    bookings = spark.readStream.schema("account bigint, amount bigint").parquet(source)

    def write(frame: Any, checkpoint_id: int) -> None:
        # The same id comes again after a failure, with the same rows: overwrite, do not append.
        frame.write.mode("overwrite").parquet(f"{target}/checkpoint={checkpoint_id}")

    env.from_dataframe(bookings) \
        .key_by("account") \
        .process(
            RunningTotal(),
            Types.ROW_NAMED(["account", "total"], [Types.LONG(), Types.LONG()]),
        ) \
        .foreach_batch(write)  # fmt: skip
    env.execute("dataframe in, dataframe out")

    totals = spark.read.parquet(target)
    print("rows:", totals.count())
    for row in totals.groupBy("account").max("total").orderBy("account").collect():
        print(f"account {row[0]}: {row[1]}")


if __name__ == "__main__":
    main()
