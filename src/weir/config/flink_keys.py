"""Keys of Flink that Weir does not read, by how they begin, each with why it changes nothing.

A configuration written for Flink is accepted as it is. Of namespaces whose other keys Weir reads
the beginnings are narrow, so that a misspelt key is not taken for one of Flink's.
"""

from __future__ import annotations

from typing import Final

JVM: Final = "there are no Java objects to serialise"
CHAINS: Final = "operators between two exchanges always run in one call"
CHANGELOG: Final = "the changelog is part of the checkpoint's files"
ROCKSDB: Final = "RocksDB's binding or Weir's way of restoring has no place for it"
_PROGRAM: Final = "a program ends as any of Python's"
_PROCESSES: Final = "Spark's driver and executors take the place of Flink's processes"
_CLUSTER: Final = "Spark's cluster manager starts the processes"
_FLIGHT: Final = "processes talk over Arrow Flight and Spark, where no frame is too large"
_SHUFFLE: Final = "Spark exchanges the data"
_TABLE: Final = "there is no Table API"
_METRICS: Final = "metrics are on the REST page /metrics, in Prometheus' form"
_FOUND: Final = "a job is found again by its checkpoints: start it with the newest one"

AMONG_OURS: Final[dict[str, str]] = {
    "execution.async-state.": "access to state never waits for anything",
    "execution.batch": "in BATCH mode Spark schedules and shuffles, state is of one key at a time",
    "execution.checkpointing.prefer-checkpoint-for-recovery": "a job always recovers from its last "
    "checkpoint",
    "execution.job-": "listeners are classes of Java",
    "execution.program-config.": "what a program sets always counts",
    "execution.shutdown-on-": _PROGRAM,
    "execution.sort": "input of BATCH mode is always sorted, within weir.epoch.memory",
    "execution.submit-failed-job-on-": _PROGRAM,
    "execution.terminate-application-": _PROGRAM,
    "pipeline.auto-type-registration": JVM,
    "pipeline.default-kryo-serializers": JVM,
    "pipeline.force-kryo-avro": JVM,
    "pipeline.jobvertex-parallelism-overrides": "set it in the program, or use weir rescale",
    "pipeline.operator-chaining.chain-operators-": CHAINS,
    "pipeline.registered-": JVM,
    "pipeline.serialization-config": JVM,
    "pipeline.sources.pause-": "sources begin with the first epoch",
    "pipeline.time-characteristic": "windows and timers say themselves which time is theirs",
    "pipeline.vertex-": "operators have the names that the program gives them",
    "pipeline.watermark-alignment.": "Spark chooses what is read next",
    "state.backend.async": "snapshots are always asynchronous",
    "state.backend.changelog.enabled_": "state.changelog.enabled decides",
    "state.backend.forst.": "there is no ForSt; RocksDB has the keys state.backend.rocksdb.*",
    "state.backend.rocksdb.manual-compaction.": ROCKSDB,
    "state.backend.rocksdb.metrics.": ROCKSDB,
    "state.changelog.dstl.": CHANGELOG,
    "state.size-track.": "the size of state is not measured key by key",
}
ELSEWHERE: Final[dict[str, str]] = {
    "akka.": _FLIGHT,
    "pekko.": _FLIGHT,
    "table.": f"{_TABLE}; state of a program expires by StateTtlConfig",
    "materialized-table.": _TABLE,
    "sql-client.": _TABLE,
    "sql-gateway.": _TABLE,
    "compiler.": "nothing optimises a program",
    "queryable-state.": "queries go through the driver, which has few settings for them",
    "taskmanager.": _PROCESSES,
    "jobmanager.": _PROCESSES,
    "task.": "an attempt ends with its slots",
    "slotmanager.": _CLUSTER,
    "slot.": _CLUSTER,
    "slow-task-detector.": "set spark.speculation",
    "resourcemanager.": _CLUSTER,
    "cluster.": _CLUSTER,
    "yarn.": _CLUSTER,
    "kubernetes.": _CLUSTER,
    "mesos.": _CLUSTER,
    "containerized.": _CLUSTER,
    "external-resource.": _CLUSTER,
    "process.": _CLUSTER,
    "local.": _PROCESSES,
    "minicluster.": _PROCESSES,
    "jmx.": _PROCESSES,
    "jobstore.": _PROCESSES,
    "job-event.": _PROCESSES,
    "job-result-store.": _PROCESSES,
    "application-result-store.": _PROCESSES,
    "completed-application-store.": _PROCESSES,
    "high-availability": _FOUND,
    "recovery.": _FOUND,
    "zookeeper.": "nothing here uses ZooKeeper",
    "blob.": "Spark ships what a program needs",
    "user.artifacts.": "Spark ships what a program needs",
    "classloader.": JVM,
    "plugin.": JVM,
    "env.": "Spark's settings start its processes",
    "fine-grained.": _SHUFFLE,
    "shuffle-service-factory.": _SHUFFLE,
    "fs.": "storages are set by s3.* and weir.storage.*",
    "heartbeat.": "weir.slot.heartbeat and weir.slot.lease decide",
    "historyserver.": "there is no history server; Spark has one",
    "web.": "REST has the keys rest.*",
    "rest.": "REST has the keys rest.address, rest.bind-address and rest.bind-port",
    "metrics.": _METRICS,
    "traces.": _METRICS,
    "events.": _METRICS,
    "io.": _PROCESSES,
    "client.": "commands wait as their own options say",
    "sink.committer.": "a commit that fails is tried again by the next attempt",
    "python.": "functions run in Spark's workers and in slots",
    "security.ssl.": "files of TLS are named by weir.ssl.*",
    "security.": "Kerberos and its like are Spark's",
    "state-change-log.": CHANGELOG,
    "dstl.": CHANGELOG,
    "ververica.": "it belongs to Ververica's platform",
}


def is_flinks(key: str) -> bool:
    """Tell whether a key that Weir does not know is one of Flink in a namespace that Weir reads."""
    return key.startswith(tuple(AMONG_OURS))


def why_nothing(key: str) -> str | None:
    """Return why a key that Weir does not know changes nothing; None for keys of others."""
    beginnings = AMONG_OURS | ELSEWHERE
    found = [start for start in beginnings if key.startswith(start)]
    return beginnings[max(found, key=len)] if found else None
