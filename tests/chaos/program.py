"""The job that is attacked: two levels of keyed state, both kinds of timers, TTL, two sinks.

Usage: program.py ROOT. Settings come from outside. Its results depend on the order of the rows of a
key and on nothing else: not on epochs, parallelism, checkpoints or the moments when timers fire.
"""

import json
import sys
from pathlib import Path

from weir.common import Time, Types, WatermarkStrategy
from weir.common.watermark_strategy import TimestampAssigner
from weir.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from weir.datastream.connectors.base import TwoPhaseCommitSinkFunction
from weir.datastream.connectors.file_system import FileSink
from weir.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

REGIONS = 4
STEP_MS = 4
WINDOW_MS = 400
LAST_ROWS = 10
AT_THE_END = 2**61
COLUMNS = "key bigint, amount bigint, seq bigint"


class RowTime(TimestampAssigner):
    """Rows are as old as their number says."""

    def extract_timestamp(self, value, record_timestamp):
        return value.seq * STEP_MS


def expiring(descriptor):
    """State that nobody will live to see expire, by the code of state that expires."""
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    return descriptor


class Accounts(KeyedProcessFunction):
    """Running totals per key; windows by event time; every row once more by processing time."""

    def open(self, runtime_context):
        get_map = runtime_context.get_map_state
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.amounts = get_map(expiring(MapStateDescriptor("seen", Types.LONG(), Types.LONG())))
        self.windows = get_map(MapStateDescriptor("windows", Types.LONG(), Types.LONG()))
        self.waiting = get_map(MapStateDescriptor("waiting", Types.LONG(), Types.LONG()))

    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        self.amounts.put(value.amount, value.seq)
        end = (value.seq * STEP_MS // WINDOW_MS + 1) * WINDOW_MS
        self.windows.put(end, (self.windows.get(end) or 0) + 1)
        timers.register_event_time_timer(end)
        self.waiting.put(value.seq, 1)
        timers.register_processing_time_timer(timers.current_processing_time() + 20)
        yield "total", value.seq, value.key, total, sum(1 for _ in self.amounts)

    def on_timer(self, timestamp, ctx):
        key = ctx.get_current_key()
        count = self.windows.get(timestamp)
        if count is not None:
            self.windows.remove(timestamp)
            yield "window", timestamp, key, count, 0
        for seq in sorted(self.waiting.keys()):
            yield "fired", seq, key, 0, 0
        self.waiting.clear()


class Regions(KeyedProcessFunction):
    """Passes results on, and says at the end of time what it has counted."""

    def open(self, runtime_context):
        def add(one, other):
            return one + other

        self.sum = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", add, Types.LONG())
        )
        self.last = runtime_context.get_list_state(
            expiring(ListStateDescriptor("last", Types.LONG()))
        )
        self.kinds = runtime_context.get_map_state(
            MapStateDescriptor("kinds", Types.STRING(), Types.LONG())
        )

    def process_element(self, value, ctx):
        kind, number = value[0], value[1]
        self.sum.add(number)
        self.kinds.put(kind, (self.kinds.get(kind) or 0) + 1)
        if kind == "total" and number % LAST_ROWS == 0:
            self.last.add(number)
        ctx.timer_service().register_event_time_timer(AT_THE_END)
        yield kind, number, value[2]

    def on_timer(self, timestamp, ctx):
        kinds = sorted(self.kinds.items())
        yield "end", ctx.get_current_key(), [self.sum.get(), sorted(self.last.get()), kinds]


class Transactions(TwoPhaseCommitSinkFunction):
    """A file per transaction; notes in a ledger what a database would refuse."""

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)

    def begin_transaction(self):
        import uuid

        (self.folder / "open").mkdir(parents=True, exist_ok=True)
        (self.folder / "done").mkdir(parents=True, exist_ok=True)
        name = uuid.uuid4().hex
        (self.folder / "open" / name).touch()
        return name

    def invoke(self, transaction, value, context):
        with (self.folder / "open" / transaction).open("a") as out:
            out.write(json.dumps(value) + "\n")

    def pre_commit(self, transaction):
        pass

    def commit(self, transaction):
        source, target = self.folder / "open" / transaction, self.folder / "done" / transaction
        if source.exists():
            source.rename(target)
        elif not target.exists():
            self.complain("commit of unknown", transaction)

    def abort(self, transaction):
        if (self.folder / "done" / transaction).exists():
            self.complain("abort of committed", transaction)
        (self.folder / "open" / transaction).unlink(missing_ok=True)

    def complain(self, what, transaction):
        with (self.folder / "ledger").open("a") as out:
            out.write(f"{what} {transaction}\n")


def main(root):
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.get_spark().readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(RowTime())
    accounts = (
        env.from_dataframe(rows.parquet(f"{root}/input"))
        .uid("payments")
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda row: row.key)
        .process(Accounts())
        .uid("accounts")
        .set_max_parallelism(12)
    )
    accounts.sink_to(FileSink.text(f"{root}/output")).uid("files")
    regions = accounts.key_by(lambda result: result[2] % REGIONS).process(Regions())
    regions.uid("regions").set_max_parallelism(12)
    regions.add_sink(Transactions(f"{root}/transactions")).uid("transactions")
    env.execute("chaos")


if __name__ == "__main__":
    main(*sys.argv[1:])
