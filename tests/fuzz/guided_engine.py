"""The engine with coverage: libFuzzer by way of atheris, which is installed beside the project.

The modules that read are instrumented when they are first imported, so this module runs in a
process of its own and imports the targets itself. Half of the mutations are libFuzzer's, half ours.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.fuzz.mutate import Mutator

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
# Not the environment of the project: nothing else needs it, and not every Python has it.
PLACE = HERE.parents[1] / "artifacts" / "fuzz" / "atheris"
# On the clock of the wall, which a busy machine shares.
HANGS_S = 60
# Instrumenting takes time, and what is behind the readers tells little about them.
READERS = [
    *("weir.snapshot", "weir.codec", "weir.common.typeinfo", "weir.checkpoint.metadata"),
    *("weir.backend.group_format", "weir.backend.delta", "weir.backend.restored"),
    *("weir.backend.rocksdb.catalog", "weir.backend.rocksdb.restore", "weir.backend.timers"),
    *("weir.state.operator_state", "weir.runtime.frame", "weir.offline", "weir.config"),
    *("weir.keygroup", "weir.connector.position", "weir.connector.staged_batch"),
    *("weir.connector.kafka.position", "weir.connector.jdbc.source", "weir.connector.two_phase"),
    *("weir.connector.compacting_writer", "weir.connector.commit_target", "weir.spark.positions"),
    *("weir.spark.source_logs", "weir.slot.lookup", "weir.storage.processes"),
    *("weir.jobmanager.past", "weir.jobmanager.disposal"),
    *(
        "weir.connector.file_writer",
        "weir.jobmanager.directory",
        "weir.rest",
        "weir.cli.state_text",
    ),
]
_STAMP = "requirements.done"
_EXECUTIONS = re.compile(r"stat::number_of_executed_units:\s*([0-9]+)")


class Unavailable(Exception):
    """The engine cannot be had; the message is the reason."""


def install() -> None:
    """Install what the engine needs, once.

    Raises:
        Unavailable: that is not possible here.
    """
    wanted, stamp = REQUIREMENTS.read_text(), PLACE / _STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        return
    target = ["--target", str(PLACE), "--upgrade", "--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "install", "-q", *target, "-r", str(REQUIREMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise Unavailable(lines[-1])
    stamp.write_text(wanted)


def run(name: str, seed: int, seconds: float, found: Path) -> None:
    """Fuzz a target until the time is over or there is a finding; ends the process."""
    sys.path.insert(0, str(PLACE))
    import atheris

    with atheris.instrument_imports(include=READERS):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    corpus, call = target.corpus(), target.function()

    def mutate(data: bytes, limit: int, chance: int) -> Any:
        if chance % 2:
            return atheris.Mutate(data, limit)
        return Mutator(chance, target.form).mutate(data, corpus)[:limit]

    seeds = Path(tempfile.mkdtemp(prefix="weir-fuzz-seeds-"))
    for number, data in enumerate(corpus):
        (seeds / str(number)).write_bytes(data)
    options = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-seed={seed}",
        f"-timeout={HANGS_S}",
        f"-artifact_prefix={found}/{name}-",
        "-max_len=65536",
        "-rss_limit_mb=3072",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    atheris.Setup(
        [sys.argv[0], *options, str(seeds)], lambda data: call(data) and None, custom_mutator=mutate
    )
    atheris.Fuzz()


def executions(said: str) -> int:
    """Return how often the target was called, from what the process has said."""
    match = _EXECUTIONS.search(said)
    return int(match[1]) if match else 0
