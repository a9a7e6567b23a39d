"""A job for the kill tests: running totals per key, exactly once, from files to files.

Usage: totals.py INPUT OUTPUT CHECKPOINTS LOGS [RESTORE], with "-" for no checkpoint directory
"""

import sys

from weir.common import Configuration, Types
from weir.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from weir.datastream.connectors.file_system import FileSink
from weir.datastream.state import MapStateDescriptor, ValueStateDescriptor


class Totals(KeyedProcessFunction):
    """Emits (seq, key, running total, distinct amounts) for every payment."""

    def open(self, runtime_context: RuntimeContext):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.seen = runtime_context.get_map_state(
            MapStateDescriptor("seen", Types.LONG(), Types.LONG())
        )

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value.amount
        self.total.update(total)
        self.seen.put(value.amount, value.seq)
        yield value.seq, value.key, total, sum(1 for _ in self.seen)


def main(source, output, checkpoints, logs, restore=None):
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.interval", "100 ms")
    if checkpoints != "-":
        configuration.set_string("execution.checkpointing.dir", checkpoints)
    configuration.set_string("execution.checkpointing.num-retained", "2")
    configuration.set_string("weir.trigger", "available-now")
    configuration.set_string("weir.log.dir", logs)
    configuration.set_string("restart-strategy.type", "fixed-delay")
    configuration.set_string("restart-strategy.fixed-delay.attempts", "10")
    configuration.set_string("restart-strategy.fixed-delay.delay", "50 ms")
    if restore:
        configuration.set_string("execution.state-recovery.path", restore)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    spark = env.get_spark()
    frame = (
        spark.readStream.schema("key bigint, amount bigint, seq bigint")
        .option("maxFilesPerTrigger", 1)
        .parquet(source)
    )
    (
        env.from_dataframe(frame)
        .uid("source")
        .key_by(lambda row: row.key)
        .process(Totals())
        .uid("totals")
        .sink_to(FileSink.csv(output))
        .uid("sink")
    )
    job = env.execute_async("totals")
    job.get_job_execution_result().result()
    sys.stdout.write(f"attempts {job.supervisor.network.registry.attempt + 1}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
