"""A Python worker of Spark that is about to be killed for its memory says who took it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

from weir.jobmanager.failures import from_failure
from weir.jobmanager.gateway import Gateway
from weir.slot.channel import TOKEN_BYTES
from weir.slot.messages import OUT_OF_MEMORY

WORKER = """
import os, sys, threading
from types import SimpleNamespace
from weir.runtime.frame import Chunk
from weir.runtime.stateless import FlatMapOperator
from weir.slot import memory_watch
from weir.slot.spawn import Contact
from weir.spark import worker


def endless(value):
    while True:
        threading.Event().wait()
        yield value


memory_watch.decide = lambda own, limit, spaces: "it uses all of it"
contact = Contact(sys.argv[1], bytes(32), "localhost", os.getpid(), "", "", tcp=False)
worker._watch_memory(worker.SourceTask("", b"", (), (), attempt=3, job_id="", contact=contact))
function = SimpleNamespace(flat_map=endless)
node = SimpleNamespace(name="splitting", function=function, output_type=None)
FlatMapOperator(node, None).process(Chunk([41, 42]), 0)
"""


class Kept:
    """A reception that keeps what it is told."""

    def failure(self, message):
        self.message = message


@pytest.mark.slow
def test_the_job_learns_which_operator_of_a_worker_took_the_memory():
    kept = Kept()
    with tempfile.TemporaryDirectory() as directory:
        location = f"grpc+unix://{os.path.join(directory, 's')}"
        gateway = Gateway(location, bytes(TOKEN_BYTES), kept)
        try:
            command = [sys.executable, "-c", WORKER, location]
            ended = subprocess.run(command, timeout=60, check=False)
        finally:
            gateway.shutdown()
    assert ended.returncode == 1
    assert (kept.message.attempt, kept.message.subtask) == (3, -1)
    assert kept.message.kind == OUT_OF_MEMORY
    text = str(from_failure(kept.message, ""))
    assert text.startswith("a Python worker of Spark ran out of memory: it uses all of it; at work")
    assert "operator 'splitting' at record 41, in endless (" in text
