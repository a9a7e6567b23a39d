"""A job without an end: totals per key of files that appear, and a last word for every key.

Usage: feed.py INPUT OUTPUT. All other settings come from outside. Rows are
(seq, key, running total); the last word, (-1, key, total), comes when time comes to its end.
"""

import sys

from weir.common import Types
from weir.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from weir.datastream.connectors.file_system import FileSink
from weir.datastream.state import ValueStateDescriptor

AT_THE_END = 2**62


class Totals(KeyedProcessFunction):
    """Adds up."""

    def open(self, runtime_context: RuntimeContext):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        ctx.timer_service().register_event_time_timer(AT_THE_END)
        yield value.seq, value.key, total

    def on_timer(self, timestamp, ctx):
        yield -1, ctx.get_current_key(), self.total.value()


def main(source, output):
    env = StreamExecutionEnvironment.get_execution_environment()
    frame = (
        env.get_spark()
        .readStream.schema("key bigint, amount bigint, seq bigint")
        .option("maxFilesPerTrigger", 1)
        .parquet(source)
    )
    (
        env.from_dataframe(frame)
        .uid("payments")
        .key_by(lambda row: row.key)
        .process(Totals())
        .uid("totals")
        .set_max_parallelism(8)
        .sink_to(FileSink.csv(output))
        .uid("sink")
    )
    env.execute("feed")


if __name__ == "__main__":
    main(*sys.argv[1:])
