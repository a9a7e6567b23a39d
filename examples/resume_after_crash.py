"""A job that is cancelled, and another one that goes on where it stopped.

The first job counts a growing folder of files and keeps its checkpoints. The second one is
started from the newest of them, reads only the files that came later, and counts on. Run it with
`weir run examples/resume_after_crash.py`.
"""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weir.common.job_client import JobClient
from weir.common.typeinfo import Types
from weir.datastream import (
    ExternalizedCheckpointRetention,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from weir.datastream.connectors.file_system import FileSink
from weir.datastream.state import ValueStateDescriptor

OUTPUT = Types.ROW_NAMED(["letter", "count"], [Types.STRING(), Types.LONG()])


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value.letter, count


def start(folder: Path, resume_from: Path | None, only_once: bool) -> JobClient:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    config = env.get_checkpoint_config()
    config.set_checkpoint_storage(f"file://{folder / 'checkpoints'}")
    config.set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    if resume_from is not None:
        env.get_configuration().set("execution.state-recovery.path", str(resume_from))
    if only_once:
        env.get_configuration().set("weir.trigger", "available-now")
    letters = env.get_spark().readStream.schema("letter string").csv(str(folder / "letters"))
    env.from_dataframe(letters) \
        .uid("letters") \
        .key_by("letter") \
        .process(Count(), OUTPUT) \
        .uid("count") \
        .sink_to(FileSink.csv(str(folder / "counts"))) \
        .uid("counts")  # fmt: skip
    return env.execute_async("count letters")


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="weir-example-"))
    (folder / "letters").mkdir()
    (folder / "letters" / "1.csv").write_text("a\nb\na\n")

    job = start(folder, resume_from=None, only_once=False)
    wait = threading.Event()
    while counted(folder) < 3:  # committed output: a checkpoint with it has completed
        wait.wait(0.2)
    job.cancel().result()
    print("first job:", read(folder))

    (folder / "letters" / "2.csv").write_text("a\nc\nb\n")
    newest = max(
        (folder / "checkpoints").glob("*/chk-*/_metadata"), key=lambda p: int(p.parent.name[4:])
    )
    job = start(folder, resume_from=newest.parent, only_once=True)
    job.get_job_execution_result().result()
    print("after the second job:", read(folder))


def read(folder: Path) -> list[str]:
    parts = (folder / "counts").glob("part*")
    return sorted(line for part in parts for line in part.read_text().splitlines())


def counted(folder: Path) -> int:
    return len(read(folder))


if __name__ == "__main__":
    main()
