"""The slot process: `python -m weir.slot.main`.

Asks the JobManager for its work, restores, serves, and leaves when the JobManager is gone for
longer than the lease, when the driver process on the same host dies, or when it is told to. The
token comes through the environment, never through the command line.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import logging
import os
import re
import resource
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from weir.clock import SystemClock
from weir.config.backend import TMP_DIRS
from weir.ids import JobId
from weir.runtime.frame import load_program
from weir.runtime.operator import TaskFacts
from weir.runtime.subtask import Subtask
from weir.slot.channel import Channel, ChannelError
from weir.slot.files import SlotFiles
from weir.slot.messages import (
    Acknowledge,
    Assignment,
    Decline,
    Hello,
    Register,
    SlotFailure,
    decode,
)
from weir.slot.restore import restore_subtask
from weir.slot.server import SlotServer
from weir.slot.service import SlotService, failure_message
from weir.storage.uri import open_storage

TOKEN_VARIABLE = "WEIR_SLOT_TOKEN"
log = logging.getLogger("weir.slot")
_SEND_TIMEOUT_S = 120.0
_ACTIONS = {Acknowledge: "acknowledge", Decline: "decline", SlotFailure: "failure"}


class SlotProcess:
    """One slot from start to leave."""

    def __init__(self, spec: dict[str, Any], token: bytes) -> None:
        """Take what the starter passed on."""
        self._spec = spec
        self._token = token
        self._clock = SystemClock()
        self._driver = Channel(spec["driver"], token)
        self._leaving = threading.Event()
        self._reason = ""
        self._orphaned = False
        self._service: SlotService | None = None
        self._servers: list[SlotServer] = []

    def run(self) -> None:
        """Restore, register, serve until it is time to leave."""
        spec = self._spec
        hello = Hello(spec["attempt"], spec["subtask"], os.getpid(), spec["host"], spec["log"])
        answer = self._driver.call_struct("hello", hello, _SEND_TIMEOUT_S)
        assignment: Assignment = decode(answer, Assignment)
        files = SlotFiles(
            open_storage(assignment.storage_uri, assignment.storage),
            JobId(assignment.job_id),
            spec["subtask"],
            spec["attempt"],
            assignment.inline_bytes,
            assignment.compress,
            assignment.in_memory,
            assignment.storage,
        )
        try:
            subtask = self._build(assignment, files)
        except Exception as error:
            log.exception("start failed")
            self._send(failure_message(spec["attempt"], spec["subtask"], error))
            return
        self._service = SlotService(
            subtask,
            files,
            self._clock,
            self._send,
            lambda work: threading.Thread(target=work, name="async-phase", daemon=True).start(),
        )
        unix, tcp = self._serve(self._service)
        gc.collect()
        gc.freeze()
        staged = subtask.take_staged()
        register = Register(spec["attempt"], spec["subtask"], unix, tcp, staged)
        self._driver.call_struct("register", register)
        log.info("slot %s of attempt %s is ready", spec["subtask"], spec["attempt"])
        self._keep_lease(assignment)

    def _build(self, assignment: Assignment, files: SlotFiles) -> Subtask:
        facts = TaskFacts(
            job_id=assignment.job_id,
            job_name=assignment.job_name,
            attempt=self._spec["attempt"],
            subtask=self._spec["subtask"],
            clock=self._clock,
            report=lambda index, kind, values: None,
            lineage=tuple(assignment.lineage),
            job_parameters=assignment.job_parameters,
            backend=assignment.backend,
            shared_files=files.shared,
            local_dir=_local_dir(assignment.backend.options.get(TMP_DIRS.key)),
        )
        subtask = Subtask(load_program(assignment.plan), facts)
        restore_subtask(subtask, assignment)
        subtask.open()
        return subtask

    def _serve(self, service: SlotService) -> tuple[str, str]:
        unix = f"grpc+unix://{self._spec['socket']}"
        self._servers.append(SlotServer(unix, service, self._token, self.leave))
        if not self._spec["tcp"]:
            return unix, ""
        host = self._spec["host"]
        server = SlotServer(f"grpc://{host}:0", service, self._token, self.leave)
        self._servers.append(server)
        return unix, f"grpc://{host}:{server.port}"

    def leave(self, reason: str) -> None:
        """End the process soon; safe to call from any thread."""
        self._reason = self._reason or reason
        self._leaving.set()

    def _send(self, message: Acknowledge | Decline | SlotFailure) -> None:
        try:
            self._driver.call_struct(_ACTIONS[type(message)], message, _SEND_TIMEOUT_S)
        except ChannelError as error:
            log.exception("the JobManager did not take %s", type(message).__name__)
            if isinstance(message, Acknowledge):
                # Nobody waits for a checkpoint that cannot be completed any more.
                reason = f"the acknowledgement was not taken: {error}"
                self._send(Decline(message.attempt, message.subtask, message.checkpoint_id, reason))

    def _keep_lease(self, assignment: Assignment) -> None:
        watch = _watch(self._spec.get("watch_pid"))
        body = msgspec.msgpack.encode((self._spec["attempt"], self._spec["subtask"]))
        alive_ms = self._clock.monotonic_ms()
        while not self._leaving.is_set():
            _wait(self._leaving, watch, assignment.heartbeat_ms / 1000)
            if watch is not None and _is_readable(watch):
                self._orphaned = True
                self.leave("the driver process is gone")
            if self._leaving.is_set():
                break
            try:
                answer = self._driver.call("heartbeat", body, timeout_s=3.0)
                alive_ms = self._clock.monotonic_ms()
                if answer == b"leave":
                    self.leave("fenced by a newer execution attempt")
            except ChannelError as error:
                silent = self._clock.monotonic_ms() - alive_ms
                log.warning("no heartbeat for %d ms: %s", silent, error)
                if silent > assignment.lease_ms:
                    self.leave("the lease with the driver ran out")
        log.info("leaving: %s", self._reason)

    def close(self) -> None:
        """Drop open transactions within a few seconds."""
        service = self._service
        if service is not None:
            closer = threading.Thread(target=_quietly(service.close), daemon=True)
            closer.start()
            closer.join(3.0)
        own = Path(self._spec["socket"])
        with contextlib.suppress(OSError):
            own.unlink()
        if self._orphaned:
            # Nobody else removes the directory: the last slot to leave does.
            with contextlib.suppress(OSError):
                (own.parent / "jm").unlink(missing_ok=True)
                own.parent.rmdir()


def _local_dir(setting: str | None) -> Path | None:
    """Return the first of the directories that are given for temporary files."""
    first = re.split(r"[,:|]", setting or "")[0].strip()
    return Path(first) if first else None


def _quietly(work: Any) -> Any:
    def run() -> None:
        try:
            work()
        except Exception:
            log.exception("close failed")

    return run


def _watch(pid: int | None) -> int | None:
    if pid is None or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _is_readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def _wait(leaving: threading.Event, watch: int | None, seconds: float) -> None:
    """Wait for a reason to leave, in slices so that the driver's death is seen at once."""
    slices = max(1, int(seconds / 0.1))
    for _ in range(slices):
        if leaving.wait(0.1) or (watch is not None and _is_readable(watch)):
            return


def _detach() -> None:
    """Leave the starter's session and limits: a Spark worker's end must not end the slot."""
    with contextlib.suppress(OSError):
        os.setsid()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def main() -> None:
    """Run the slot that the first argument (JSON) describes."""
    _detach()
    faulthandler.enable()
    spec = json.loads(sys.argv[1])
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    gc.set_threshold(50_000, 20, 100)
    token = bytes.fromhex(os.environ.pop(TOKEN_VARIABLE))
    log.info("slot %s on %s, pid %s", spec["subtask"], socket.gethostname(), os.getpid())
    slot = SlotProcess(spec, token)
    signal.signal(signal.SIGTERM, lambda *_: slot.leave("terminated"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = 0
    try:
        slot.run()
    except ChannelError as error:
        log.warning("%s", error)
        code = 1
    except Exception:
        log.exception("the slot failed")
        code = 1
    slot.close()
    logging.shutdown()
    os._exit(code)


if __name__ == "__main__":
    main()
