"""The page of a host: a server for jobs that have ended, and for starting them again."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable

from weir.config.checkpointing import CLAIM_MODE, IGNORE_UNCLAIMED_STATE, RECOVERY_PATH
from weir.config.effective import HIDDEN
from weir.config.layer import COMMAND_LINE
from weir.errors import JobExecutionError
from weir.jobmanager.directory import JobEntry
from weir.jobmanager.past import PastRecord
from weir.rest.assets import page_link
from weir.rest.host import HostCluster
from weir.rest.server import RestServer

_SAID_CHARS = 2_000
_OF_ONE_START = frozenset(
    option.key for option in (RECOVERY_PATH, CLAIM_MODE, IGNORE_UNCLAIMED_STATE)
)
"""Said about the state that a job began with then: repeated, they would claim another savepoint."""


def serve_host(port: int, tell: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C; `tell` is given its link."""
    server = RestServer(ports=(port,), cluster=HostCluster(start_program))
    server.start()
    try:
        tell(page_link(server.url, server.token))
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        server.close()


def start_program(
    entry: JobEntry, record: PastRecord, savepoint: str, parallelism: int | None
) -> str:
    """Start the program of a job again, as `weir run -d -s` does; returns the id of the new job.

    Raises:
        JobExecutionError: it started no job; tells what it said.
    """
    command = start_command(entry, record, savepoint, parallelism)
    done = subprocess.run(
        command, cwd=entry.work_dir, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        said = done.stderr.strip()[-_SAID_CHARS:]
        msg = f"the program {entry.program!r} started no job (exit code {done.returncode}): {said}"
        raise JobExecutionError(msg)
    return str(json.loads(done.stdout)["job_id"])


def start_command(
    entry: JobEntry, record: PastRecord, savepoint: str, parallelism: int | None
) -> list[str]:
    """Return the command that starts a job again from a savepoint.

    Settings that the command line gave are given again, but for secrets, which nobody wrote down,
    and for what was said about the state that the job began with. Spark is where it was.
    """
    view = record.view
    command = [sys.executable, "-m", "weir.cli.main", "run", "-d", "--json", "-s", savepoint]
    for key, value in view.configuration.items():
        given = view.origins.get(key) == COMMAND_LINE and value != HIDDEN
        if given and key not in _OF_ONE_START:
            command += ["-D", f"{key}={value}"]
    command += [] if parallelism is None else ["-p", str(parallelism)]
    command += [] if entry.master is None else ["--master", entry.master]
    return [*command, str(entry.program), *entry.arguments]
