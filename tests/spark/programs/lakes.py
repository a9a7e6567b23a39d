"""Rows into Delta Lake and Iceberg: by the recipe and its contract, then from an attacked job.

Usage: lakes.py INPUT CHECKPOINTS LOGS; prints one line of JSON.
"""

import copy
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pyspark

from weir.common import Configuration, Types
from weir.connector.commit_target import Commits
from weir.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from weir.datastream.connectors.spark import DeltaTarget, IcebergTarget
from weir.datastream.state import ValueStateDescriptor
from weir.errors import StorageError, UsageError
from weir.spark.driver_sinks import DriverSinks
from weir.testing.spark_target_conformance import SparkTargetConformance

ROW = Types.ROW_NAMED(["id", "n"], [Types.LONG(), Types.LONG()])
KEYS = 5
faults = []
jobs = []


class Number(KeyedProcessFunction):
    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        n = (self.seen.value() or 0) + 1
        self.seen.update(n)
        yield value.id, n


def lose_an_answer():
    """Fail behind the first commit, as if its answer was lost."""
    if "answer lost" not in faults:
        faults.append("answer lost")
        msg = "the answer was lost"
        raise StorageError(msg)


def kill_a_slot():
    """Kill a slot behind a commit of the attempt that follows."""
    if faults == ["answer lost"]:
        os.kill(jobs[0].progress()["slots"][-1]["pid"], signal.SIGKILL)
        faults.append("slot killed")


class AttackedDelta(DeltaTarget):
    def write(self, identity, checkpoint, rows):
        super().write(identity, checkpoint, rows)
        lose_an_answer()


class AttackedIceberg(IcebergTarget):
    def write(self, identity, checkpoint, rows):
        super().write(identity, checkpoint, rows)
        kill_a_slot()


def targets(spark, folder, delta=DeltaTarget, iceberg=IcebergTarget):
    """Return targets and what reads them, in new places."""
    name = folder.rpartition("/")[2]
    spark.sql(f"create table lake.db.{name} (id bigint, n bigint) using iceberg")
    return {
        "path": (delta(folder), lambda: spark.read.format("delta").load(folder)),
        "table": (DeltaTarget(table=name), lambda: spark.table(name)),
        "iceberg": (iceberg(f"lake.db.{name}"), lambda: spark.table(f"lake.db.{name}")),
    }


def by_hand(spark, folder):
    """Commit 2, 2 again, and 1 late; then another identity that counts from one again."""
    found = {}
    for kind, (target, read) in targets(spark, folder).items():
        DriverSinks(spark, Path(folder)).keep("op", kind, target)
        counts = []
        for who, checkpoint in [("a", 2), ("a", 2), ("a", 1), ("b", 1)]:
            commits = Commits(target)
            newest = commits.newest(who)
            if newest is None or checkpoint > newest:
                rows = spark.range(3).selectExpr("id", f"cast({checkpoint} as bigint) as n")
                commits.write(who, checkpoint, rows)
            counts.append(read().count())
        found[kind] = counts
    return found


class Lake(SparkTargetConformance):
    """The contract of targets, over one table; pytest is not needed."""

    checkpoints = 1

    def __init__(self, spark, target, read):
        self.spark, self.target, self.read = spark, target, read

    def session(self):
        return self.spark

    def make_target(self):
        return copy.copy(self.target)

    def visible(self):
        return self.read().collect()


def by_contract(spark, folder):
    """Let the driver die before and after every call; every test has a table of its own."""
    passed = {}
    runs = [("dies_at_any_call", {"after": False}), ("dies_at_any_call", {"after": True})]
    runs += [("fails_is_made_good", {"after": after}) for after in (False, True)]
    runs += [("second_commit", {}), ("two_jobs", {}), ("writes_late", {})]
    for number, (name, given) in enumerate(runs):
        for kind, (target, read) in targets(spark, f"{folder}_{number}").items():
            # Iceberg takes the rows of both drivers, which its target says.
            if (kind, name) == ("iceberg", "writes_late"):
                continue
            empty = spark.createDataFrame([], "id bigint, n bigint").write.format("delta")
            if kind == "path":
                empty.save(f"{folder}_{number}")
            elif kind == "table":
                empty.saveAsTable(f"{folder}_{number}".rpartition("/")[2])
            suite = Lake(spark, target, read)
            (test,) = (t for t in dir(suite) if t.startswith("test_") and name in t)
            getattr(suite, test)(Path(f"{folder}_{number}_{kind}_staged"), **given)
            passed[kind] = passed.get(kind, 0) + 1
    return passed


def configured(checkpoints, logs):
    made = Configuration()
    for key, value in {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": checkpoints,
        "weir.trigger": "available-now",
        "weir.log.dir": logs,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "5",
        "restart-strategy.fixed-delay.delay": "0 s",
    }.items():
        made.set_string(key, value)
    return made


def from_a_job(env, spark, source, folder):
    frame = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(source)
    numbered = env.from_dataframe(frame).uid("source").key_by(lambda row: row.id % KEYS)
    numbered = numbered.process(Number(), ROW).uid("numbered")
    ends = targets(spark, folder, AttackedDelta, AttackedIceberg)
    for kind, (target, _) in ends.items():
        numbered.foreach_batch(target).uid(kind)
    jobs.append(env.execute_async("lakes"))
    jobs[0].get_job_execution_result().result()
    return {kind: recount(read().collect()) for kind, (_, read) in ends.items()}


def recount(rows):
    """Return how many rows there are, are there again, and are numbered as their key's rows."""
    ids = Counter(row.id for row in rows)
    by_key = {}
    for row in rows:
        by_key.setdefault(row.id % KEYS, []).append(row.n)
    right = sum(sorted(n) == list(range(1, len(n) + 1)) for n in by_key.values())
    return {"distinct": len(ids), "again": sum(ids.values()) - len(ids), "keys": right}


def refusal(spark, target):
    """Return what a target says of this session."""
    try:
        DriverSinks(spark, Path()).keep("op", "refused", target)
    except UsageError as error:
        return str(error)
    return "nothing"


def main(source, checkpoints, logs):
    env = StreamExecutionEnvironment.get_execution_environment(configured(checkpoints, logs))
    env.set_parallelism(2)
    spark = env.get_spark()
    found = {"spark": pyspark.__version__}
    if source == "-":
        both = (DeltaTarget(f"{checkpoints}/none"), IcebergTarget("lake.db.t"))
        found["refused"] = [refusal(spark, target) for target in both]
    else:
        found["by hand"] = by_hand(spark, f"{source}/../by_hand")
        found["by contract"] = by_contract(spark, f"{source}/../by_contract")
        found["job"] = from_a_job(env, spark, f"{source}", f"{source}/../from_job")
        found["faults"] = faults
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
