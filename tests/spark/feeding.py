"""A job whose input the test feeds file by file, and the real `weir` command beside it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.spark.scenario import processes, wait_until

from weir.common import Configuration
from weir.datastream import StreamExecutionEnvironment
from weir.datastream.connectors.file_system import FileSink

PROGRAM = Path(__file__).parent / "programs" / "feed.py"
WEIR = Path(sys.executable).parent / "weir"
KEYS = 20
ROWS = 100


@dataclass
class Feed:
    """Directories, rows so far, and commands whose jobs are nobody else's."""

    root: Path
    rows: list[dict[str, int]] = field(default_factory=list)
    files: int = 0

    def __post_init__(self) -> None:
        self.input.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **os.environ,
            "SPARK_MASTER": "local[2]",
            "WEIR_RUN_DIR": str(self.root / "run"),
        }

    @property
    def input(self) -> Path:
        return self.root / "input"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def savepoints(self) -> Path:
        return self.root / "savepoints"

    def values(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a job whose checkpoints come when they are asked for."""
        return {
            "execution.checkpointing.interval": "1 h",
            "execution.checkpointing.dir": str(self.checkpoints),
            "execution.checkpointing.savepoint-dir": str(self.savepoints),
            "weir.log.dir": str(self.root / "logs"),
            **settings,
        }

    def settings(self, **more: str) -> list[str]:
        """Return the settings of the job as options."""
        return [w for key, value in self.values(more).items() for w in ("-D", f"{key}={value}")]

    def submit(self, spark: Any, function: Any, settings: Mapping[str, str]) -> Any:
        """Start a job with a function of its own, with two subtasks, in this process."""
        configuration = Configuration()
        for key, value in self.values(settings).items():
            configuration.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(2)
        reader = spark.readStream.schema("key bigint, amount bigint, seq bigint")
        frame = reader.option("maxFilesPerTrigger", 1).parquet(str(self.input))
        stream = env.from_dataframe(frame).uid("payments").key_by(lambda row: row.key)
        counted = stream.process(function).uid("totals")
        counted.sink_to(FileSink.csv(str(self.output))).uid("sink")
        return env.execute_async("feed")

    def add(self, rows: int = ROWS) -> None:
        """Let one more file appear."""
        rng = np.random.default_rng(self.files)
        first = len(self.rows)
        table = pa.table(
            {
                "key": rng.integers(0, KEYS, rows),
                "amount": rng.integers(1, 100, rows),
                "seq": np.arange(first, first + rows),
            }
        )
        hidden = self.root / "next.parquet"
        pq.write_table(table, hidden)
        os.utime(hidden, (1_600_000_000 + self.files, 1_600_000_000 + self.files))
        hidden.replace(self.input / f"{self.files:04d}.parquet")
        self.rows += table.to_pylist()
        self.files += 1

    def expected(self, *, drained: bool = False) -> Counter[tuple[int, ...]]:
        """Compute the output independently."""
        totals: Counter[int] = Counter()
        found: Counter[tuple[int, ...]] = Counter()
        for row in self.rows:
            totals[row["key"]] += row["amount"]
            found[(row["seq"], row["key"], totals[row["key"]])] += 1
        if drained:
            found.update((-1, key, total) for key, total in totals.items())
        return found

    def committed(self) -> Counter[tuple[int, ...]]:
        """Return what readers of the output see."""
        found: Counter[tuple[int, ...]] = Counter()
        for path in self.output.rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                with path.open() as lines:
                    found.update(tuple(map(int, row)) for row in csv.reader(lines))
        return found

    def weir(self, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command in a process of its own; it must end with the code."""
        done = subprocess.run(
            [str(WEIR), *map(str, words)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def told(self, *words: object) -> dict[str, object]:
        """Run a command and return the JSON that it tells."""
        return json.loads(self.weir(*words, "--json").stdout)

    def start(self, *words: object, **settings: str) -> dict[str, object]:
        """Start the job in the background."""
        options = ["--json", *self.settings(**settings), *words]
        done = self.weir("run", "-d", *options, PROGRAM, self.input, self.output)
        return json.loads(done.stdout)

    def settle(self) -> None:
        """Ask for checkpoints until one has committed all rows so far; nothing else appears."""
        expected = self.expected()

        def all_there() -> bool:
            self.told("checkpoint", "feed")
            # Commits come a moment after the checkpoint; a file may come a moment too late for it.
            looks = (self.committed() == expected or threading.Event().wait(0.1) for _ in range(10))
            return any(looks)

        wait_until(all_there, 120, "a checkpoint that covers all rows")

    def assert_over(self) -> None:
        """No slot of an ended job is left, and no file that readers do not see."""
        wait_until(lambda: not processes(str(self.root / "logs")), 30, "slots leaving")
        assert [p for p in self.output.rglob(".*") if p.is_file()] == []
