"""An unbounded job that says when it runs. Usage: forever.py CHECKPOINTS LOGS [stop-spark]"""

import sys
import threading

from weir.common import Configuration
from weir.connector.discard import DiscardingSink
from weir.datastream import StreamExecutionEnvironment


def main(checkpoints, logs, action=""):
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.interval", "200 ms")
    configuration.set_string("execution.checkpointing.dir", checkpoints)
    configuration.set_string("weir.log.dir", logs)
    configuration.set_string("restart-strategy.type", "none")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    spark = env.get_spark()
    frame = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    env.from_dataframe(frame.selectExpr("value")).key_by("value").map(lambda r: r.value).sink_to(
        DiscardingSink()
    )
    job = env.execute_async("forever")
    while job.control.history().completed < 1 and job.get_job_status().result().name in (
        "CREATED",
        "RUNNING",
    ):
        threading.Event().wait(0.05)
    sys.stdout.write("running\n")
    sys.stdout.flush()
    if action == "stop-spark":
        spark.stop()
    try:
        job.get_job_execution_result().result()
    except Exception as error:
        sys.stdout.write(f"ended: {error}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
