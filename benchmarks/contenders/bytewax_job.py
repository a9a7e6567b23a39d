"""Bytewax: starts the processes of a dataflow, one for each core it is given, with recovery.

Two workers are two processes: threads of one process would share one interpreter lock.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from dataclasses import asdict
from importlib.metadata import version

from benchmarks.contenders.progress import read
from benchmarks.contenders.protocol import Outcome, Task, of_marks, serve

SNAPSHOT_SECONDS = "1"


def run(task: Task) -> Outcome:
    """Run one workload with as many workers as the contender's name says."""
    workers = int(task.contender.split("-")[1])
    recovery = str(task.folder("recovery"))
    subprocess.run([sys.executable, "-m", "bytewax.recovery", recovery, str(workers)], check=True)
    command = [sys.executable, "-m", "bytewax.run", "benchmarks.contenders.bytewax_flow:flow"]
    command += ["-r", recovery, "-s", SNAPSHOT_SECONDS, "-b", "0"]
    environment = os.environ | {"BENCHMARK_TASK": json.dumps(asdict(task))}
    together = []
    if workers > 1:
        addresses = ";".join(f"127.0.0.1:{port}" for port in free_ports(workers))
        together = [["-i", str(worker), "-a", addresses] for worker in range(workers)]
    running = [subprocess.Popen(command + more, env=environment) for more in together or [[]]]
    codes = [process.wait() for process in running]
    if any(codes):
        msg = f"the workers ended with {codes}"
        raise RuntimeError(msg)
    found, checksum = read(task.folder("marks"))
    return of_marks(task, found, checksum)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def versions() -> dict[str, str]:
    """Return what is installed here."""
    names = ("bytewax", "pyarrow", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


if __name__ == "__main__":
    serve(run, versions)
