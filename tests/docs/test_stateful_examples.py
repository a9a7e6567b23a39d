"""Examples that keep something must keep it through a crash: they are run through one here."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import python_blocks

from weir.common import Types
from weir.datastream import StreamExecutionEnvironment
from weir.errors import WeirError
from weir.testing.harness import JobHarness


def example(page: str, name: str) -> Any:
    """Return a class that a page defines, as the main module of a program would hold it."""
    block = next(
        b for b in python_blocks() if b.name.startswith(page) and f"class {name}(" in b.text
    )
    namespace = {"__name__": "__main__"}
    exec(compile(block.text, block.name, "exec"), namespace)
    return namespace[name]


def crash_and_recover(env: StreamExecutionEnvironment) -> None:
    """Run 30 records with a crash after 20 of them, half of which no checkpoint covers."""
    job = JobHarness(env.build_graph(), 2).start()
    job.run_epoch(list(range(10)), checkpoint=True)
    job.run_epoch(list(range(10, 20)))
    job.kill_slot(0)
    job.kill_slot(1)
    with pytest.raises(WeirError):
        job.run_epoch([])
    job.fail_over()
    job.run_epoch(list(range(20, 30)))
    job.finish()


def lines_of(directory: Path) -> list[int]:
    files = [p for p in directory.iterdir() if not p.name.startswith(".")]
    return sorted(int(line) for path in files for line in path.read_text().splitlines())


def test_the_transactional_sink_of_the_guide_writes_every_record_once(tmp_path: Path) -> None:
    sink = example("docs/guides/exactly-once-files.md", "OneFilePerCheckpoint")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([], Types.LONG()).rebalance().sink_to(sink(str(tmp_path)))
    crash_and_recover(env)
    assert lines_of(tmp_path) == list(range(30))
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_the_buffering_sink_of_the_page_on_state_loses_nothing(tmp_path: Path) -> None:
    base = example("docs/concepts/state-and-keys.md", "BufferingSink")
    target = tmp_path / "sent"

    class Sender(base):  # type: ignore[misc]
        def send(self, values: list[int]) -> None:
            with target.open("a") as file:
                file.writelines(f"{value}\n" for value in values)

    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([], Types.LONG()).rebalance().add_sink(Sender(3))
    crash_and_recover(env)
    sent = Counter(lines_of(tmp_path))
    # Fewer than three per subtask may still wait in the buffers; some may be sent again.
    assert set(sent) <= set(range(30))
    assert len(sent) >= 30 - 2 * 2
