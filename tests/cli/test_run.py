"""`weir run` of a program whose job is cancelled: one line, an exit code, no traceback."""

from __future__ import annotations

from pathlib import Path

from tests.cli.jobs import invoke

PROGRAM = """
from tests.unit.datastream.recording import RecordingEngine
from weir.common import JobStatus
from weir.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment(engine=RecordingEngine(status=JobStatus.CANCELED))
env.from_collection([1]).print()
env.execute()
print("not reached")
"""


def test_a_cancelled_job_ends_the_program_with_one_line(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(PROGRAM)
    result = invoke("run", str(job))
    assert result.exit_code == 1
    assert result.stderr == "weir: job 0123456789abcdef0123456789abcdef was cancelled\n"
    assert result.stdout == ""
