"""Who owns a job's directory: "cannot tell" counts as alive."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

from weir.jobmanager import owner
from weir.storage.processes import OWNER_NAME


def test_a_running_process_owns_its_job_until_it_lets_go(tmp_path):
    owner.claim(tmp_path)
    assert not owner.has_ended(tmp_path)
    owner.release(tmp_path)
    assert owner.has_ended(tmp_path)


def test_a_dead_process_owns_nothing(tmp_path):
    code = (
        "import sys; from pathlib import Path; from weir.jobmanager import owner; "
        "owner.claim(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert (tmp_path / OWNER_NAME).exists()
    assert owner.has_ended(tmp_path)


def test_a_process_that_reuses_the_pid_is_not_the_owner(tmp_path):
    facts = {"host": socket.gethostname(), "pid": os.getpid(), "started": "1"}
    (tmp_path / OWNER_NAME).write_text(json.dumps(facts))
    assert owner.has_ended(tmp_path)


def test_another_host_or_an_unreadable_note_counts_as_alive(tmp_path):
    (tmp_path / OWNER_NAME).write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    assert not owner.has_ended(tmp_path)
    for text in ("{", "[" * 100_000, '{"pid": 1e999, "host": "x", "started": "1"}', "[]"):
        (tmp_path / OWNER_NAME).write_text(text)
        assert not owner.has_ended(tmp_path)
    assert not owner.has_ended(tmp_path / "missing")
