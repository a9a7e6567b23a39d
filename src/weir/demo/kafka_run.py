"""Runs `weir demo --kafka`: Kafka to Kafka on a broker of its own, which is killed, as a slot is.

Everything that is started here ends with this process, however that ends.
"""

from __future__ import annotations

from pathlib import Path

from weir.clock import Clock
from weir.common.configuration import Configuration
from weir.datastream import StreamExecutionEnvironment
from weir.demo.following import follow
from weir.demo.kafka_program import declare
from weir.demo.kafka_server import KafkaServer
from weir.demo.kafka_steps import KillBroker
from weir.demo.logs import errors_to, logging_to
from weir.demo.recount import compare
from weir.demo.run import DemoOptions, DemoResult
from weir.demo.steps import Kill, Screen
from weir.demo.topics import INPUT, expected_totals, fill, read_totals
from weir.demo.tracking import Tracker

CHECKPOINT_INTERVAL = "500 ms"
# Enough of them for checkpoints to lie between the kills, however few rows there are.
_EPOCHS = 40


def run_kafka_demo(options: DemoOptions, home: Path, screen: Screen, clock: Clock) -> DemoResult:
    """Run everything with Kafka's jars in `home`; raises the job's error if it fails for good."""
    options.logs.mkdir()
    folder = options.folder / "kafka"
    folder.mkdir()
    with logging_to(options.logs / "driver.log"):
        broker = KafkaServer(folder, clock, home)
        screen.say("Starting a Kafka broker …")
        broker.start()
        try:
            return _run(options, broker, screen, clock)
        finally:
            broker.kill()


def _run(options: DemoOptions, broker: KafkaServer, screen: Screen, clock: Clock) -> DemoResult:
    shape = options.shape
    screen.say(f"Sending {shape.rows:,} payments to the topic {INPUT!r} (seed {shape.seed}) …")
    fill(broker.address, shape)
    screen.say("Starting Spark …")
    env = _environment(options)
    with errors_to(options.logs / "spark.log"):
        spark = env.get_spark()
    try:
        declare(env, broker.address, max(1, shape.rows // _EPOCHS))
        kill = Kill(screen, clock) if options.kill else None
        killed = KillBroker(broker, kill, screen, clock) if options.kill else None
        started = clock.monotonic_ms()
        tracker = Tracker(shape.rows, started)
        steps = [step for step in (kill, killed) if step is not None]
        job = env.execute_async("Payments from Kafka to Kafka")
        figures = follow(job, steps, tracker, screen=screen, clock=clock)
        seconds = (clock.monotonic_ms() - started) / 1000
        screen.say("The job has ended; reading committed records and recounting what was sent …")
        comparison = compare(expected_totals(shape), read_totals(broker.address, clock))
    finally:
        spark.stop()
    return DemoResult(
        comparison,
        kill.outcome() if kill is not None else None,
        None,
        seconds,
        figures=figures,
        broker=killed.outcome() if killed is not None else None,
    )


def _environment(options: DemoOptions) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set("weir.log.dir", str(options.logs))
    configuration.set("execution.checkpointing.interval", CHECKPOINT_INTERVAL)
    configuration.set("execution.checkpointing.dir", (options.folder / "checkpoints").as_uri())
    return StreamExecutionEnvironment.get_execution_environment(configuration)
