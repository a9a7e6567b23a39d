"""Who takes part in workload k, and what must be there before they can be started.

Jars come by Maven and are kept below `.data`, as are the classes of the program in Java.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import environments
from benchmarks.environments import Unavailable

EXACTLY_ONCE, AT_LEAST_ONCE = MODES = ("EXACTLY_ONCE", "AT_LEAST_ONCE")
DATA = environments.HERE / ".data"
JAVA_SOURCE = environments.HERE / "contenders" / "KafkaLeast.java"
Artifact = tuple[str, str, str]
# The newest whose API is that of Flink 2; it has everything inside.
FLINK_CONNECTOR: Artifact = ("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2")
# There is none for Spark 4.3 to be had. That of 4.2 runs on it, with a part of 4.0.
SPARK_CONNECTOR: tuple[Artifact, ...] = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)


@dataclass(frozen=True)
class Contender:
    """One way to do it; slow ones get fewer rows.

    Attributes:
        rows: so many that the steady part takes some ten seconds.
        about: what it is, and what its sink guarantees.
    """

    name: str
    title: str
    environment: str
    module: str
    rows: int
    about: str
    modes: tuple[str, ...] = MODES


CONTENDERS = {
    found.name: found
    for found in (
        Contender(
            "weir",
            "Weir",
            "weir",
            "kafka_flink",
            8_000_000,
            "Weir on Spark, `local[2]`, two slots, PyFlink's program with the imports changed. "
            "Exactly once: rows are part of the checkpoint, and written in one transaction with "
            "a marker when it is complete. At least once: rows have arrived at the barrier",
        ),
        Contender(
            "flink-java",
            "Flink Java",
            "pyflink",
            "kafka_java",
            8_000_000,
            "Flink's DataStream API in Java, its own Kafka connector, parallelism 2 in a cluster "
            "of one process, object reuse. Exactly once: transactions that are open from one "
            "checkpoint to the next. At least once: rows have arrived at the barrier",
        ),
        Contender(
            "pyflink",
            "PyFlink",
            "pyflink",
            "kafka_flink",
            400_000,
            "the same program as Weir's in PyFlink, thread mode, with Flink's Kafka connector and "
            "its guarantees",
        ),
        Contender(
            "bytewax",
            "Bytewax",
            "bytewax",
            "kafka_bytewax",
            500_000,
            "Bytewax with its Kafka connector, two workers in two processes, recovery with a "
            "snapshot every second. Its sink is at least once only",
            (AT_LEAST_ONCE,),
        ),
        Contender(
            "tws",
            "Spark, transformWithState",
            "spark",
            "kafka_spark",
            200_000,
            "Spark's `transformWithState` on rows, with Spark's Kafka connector, state in RocksDB "
            "with changelog checkpoints for every micro-batch. Its sink is at least once only",
            (AT_LEAST_ONCE,),
        ),
    )
}


def prepare(contender: Contender) -> list[str]:
    """Make a contender's environment; return the jars that its program is told of.

    Raises:
        Unavailable: it cannot be had here.
    """
    environments.make(contender.environment)
    try:
        match contender.name:
            case "pyflink":
                return [str(jar) for jar in _fetched((FLINK_CONNECTOR,))]
            case "tws":
                return [str(jar) for part in SPARK_CONNECTOR for jar in _fetched((part,))]
            case "flink-java":
                jars = [*_fetched((FLINK_CONNECTOR,)), *flink_jars()]
                return list(map(str, [_compiled(jars), *jars]))
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or getattr(error, "stdout", None) or str(error)
        msg = f"its jars cannot be had: {said.strip().splitlines()[0][:300]}"
        raise Unavailable(msg) from error
    return []


def flink_jars() -> list[Path]:
    """Return the jars that PyFlink's package brings."""
    home = environments.VENVS / "pyflink"
    return sorted(home.glob("lib/python*/site-packages/pyflink/lib/*.jar"))


def _fetched(artifacts: tuple[Artifact, ...]) -> list[Path]:
    """Return jars without what they depend on: the rest is there, or inside."""
    without = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}"
        f"</version><exclusions>{without}</exclusions></dependency>"
        for group, name, version in artifacts
    )

    def fetch(folder: Path) -> None:
        (folder / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>weir</groupId><artifactId>k"
            f"</artifactId><version>1</version><dependencies>{wanted}</dependencies></project>"
        )
        _run(
            *("mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", f"-DoutputDirectory={folder}"),
        )

    _, name, version = artifacts[0]
    return sorted(_kept(f"{name}-{version}", fetch).glob("*.jar"))


def _compiled(jars: list[Path]) -> Path:
    """Return the folder with the classes of the program in Java."""
    text = JAVA_SOURCE.read_text() + "".join(jar.name for jar in jars)
    javac = Path(environments.java_home(), "bin", "javac")
    if not javac.exists():
        msg = f"{javac} is missing, so that its program cannot be compiled: install a JDK"
        raise Unavailable(msg)
    path = ":".join(map(str, jars))
    return _kept(
        f"KafkaLeast-{hashlib.sha256(text.encode()).hexdigest()[:16]}",
        lambda folder: _run(str(javac), "-cp", path, "-d", str(folder), str(JAVA_SOURCE)),
    )


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that is made once, whole or not at all."""
    folder = DATA / name
    if not folder.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=DATA) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            make(made)
            made.rename(folder)
    return folder


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


_ASK = (
    "import platform; from importlib.metadata import distributions\n"
    "found = dict((d.metadata['Name'], d.version) for d in distributions())\n"
    "print('python', platform.python_version())\n"
    "for name in {names!r}: print(name, found[name]) if name in found else None\n"
)
_PACKAGES = ("weir-spark", "pyspark", "apache-flink", "bytewax", "confluent-kafka", "pyarrow")


def versions(contender: Contender) -> str:
    """Return what was used, in words."""
    if contender.name == "flink-java":
        (dist,) = (jar.stem for jar in flink_jars() if jar.stem.startswith("flink-dist-"))
        return f"Flink {dist.removeprefix('flink-dist-')}, {'-'.join(FLINK_CONNECTOR[1:])}"
    python = str(environments.python_of(contender.environment))
    done = subprocess.run(
        [python, "-c", _ASK.format(names=_PACKAGES)], capture_output=True, text=True, check=True
    )
    told = done.stdout.split("\n")[:-1]
    connector = {"pyflink": FLINK_CONNECTOR, "tws": SPARK_CONNECTOR[0]}.get(contender.name)
    return ", ".join([*told, *(["-".join(connector[1:])] if connector else [])])
