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
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from weir.clock import SystemClock
from weir.config.backend import TMP_DIRS
from weir.runtime.whereabouts import at_work
from weir.slot.build import SlotIdentity, build_slot
from weir.slot.channel import Channel, ChannelError, tcp_location
from weir.slot.closing import CLOSE_S, Closing, patience_s, within
from weir.slot.copies import remove_copies
from weir.slot.door import door_path
from weir.slot.memory_watch import own_bytes, watch_memory
from weir.slot.messages import (
    NEXT_ATTEMPT,
    Acknowledge,
    Assignment,
    CopyPlace,
    Decline,
    Heartbeat,
    Hello,
    Register,
    SlotFailure,
    SlotUsage,
    decode,
)
from weir.slot.server import SlotServer
from weir.slot.service import SlotService, failure_message, out_of_memory
from weir.tls import TlsFiles

TOKEN_VARIABLE = "WEIR_SLOT_TOKEN"
log = logging.getLogger("weir.slot")
_SEND_TIMEOUT_S = 120.0
_ANSWER_S = 0.5
_SLOW_START_LEASES = 3
_ACTIONS = {Acknowledge: "acknowledge", Decline: "decline", SlotFailure: "failure"}


class SlowStart:
    """Says where a slot is that has been starting for long, ever less often.

    It keeps its lease, however long restoring or a user's `open` takes: nobody else would say it.
    """

    def __init__(self, lease_ms: int, started_ms: int) -> None:
        """Begin to wait."""
        self._started_ms = started_ms
        self._next_ms = started_ms + _SLOW_START_LEASES * lease_ms

    def look(self, now_ms: int) -> None:
        """Warn if it is time to."""
        if now_ms < self._next_ms:
            return
        waited_ms = now_ms - self._started_ms
        self._next_ms = now_ms + waited_ms
        found = at_work()
        place = "in no operator, it reads state or builds its program" if found is None else found
        log.warning("the slot has been starting for %d s: %s", waited_ms // 1000, place)


class SlotProcess:
    """One slot from start to leave."""

    def __init__(self, spec: dict[str, Any], token: bytes) -> None:
        """Take what the starter passed on."""
        self._spec = spec
        self._identity = SlotIdentity(spec["attempt"], spec["subtask"], spec.get("watch_pid"))
        self._copies: CopyPlace | None = None
        self._token = token
        self._clock = SystemClock()
        self._tls = None if spec["tls"] is None else TlsFiles(**spec["tls"])
        self._driver = Channel(spec["driver"], token, self._tls)
        self._leaving = threading.Event()
        self._reason = ""
        self._orphaned = False
        self._service: SlotService | None = None
        self._closing = Closing(self._identity)
        self._servers: list[SlotServer] = []

    def run(self) -> None:
        """Restore, register, serve until it is time to leave."""
        spec = self._spec
        hello = Hello(
            spec["attempt"],
            spec["subtask"],
            pid=os.getpid(),
            host=spec["host"],
            log_file=spec["log"],
        )
        answer = self._driver.call_struct("hello", hello, _SEND_TIMEOUT_S)
        try:
            self._begin(decode(answer, Assignment))
        except BaseException as error:
            # Also what user code does to end the process: the job must learn of it.
            log.exception("start failed")
            self._send(failure_message(spec["attempt"], spec["subtask"], error))
            return
        log.info("slot %s of attempt %s is ready", spec["subtask"], spec["attempt"])
        self._leaving.wait()
        log.info("leaving: %s", self._reason)

    def _begin(self, assignment: Assignment) -> None:
        """Restore and serve; the lease is kept from here on, however long that takes."""
        self._copies = assignment.copies
        keeping = threading.Thread(
            target=self._keep_lease, args=(assignment,), name="lease", daemon=True
        )
        keeping.start()
        watching = threading.Thread(
            target=watch_memory,
            args=(assignment.memory.process, self._leaving, self._out_of_memory),
            name="memory",
            daemon=True,
        )
        watching.start()
        local_dir = _local_dir(assignment.backend.options.get(TMP_DIRS.key))
        subtask, files = build_slot(
            assignment,
            self._identity,
            self._clock,
            adapt=lambda facts: replace(facts, local_dir=local_dir),
        )
        service = SlotService(
            subtask,
            files,
            self._clock,
            send=self._send,
            spawn=_in_thread,
        )
        unix, tcp = self._serve(service)
        self._service = service
        gc.collect()
        gc.freeze()
        staged = subtask.take_staged()
        register = Register(
            self._identity.attempt, self._identity.subtask, unix=unix, tcp=tcp, staged=staged
        )
        self._driver.call_struct("register", register)

    def _out_of_memory(self, reason: str) -> None:
        """Tell the job who is at work, and end at once: nothing else gives the memory back."""
        most = "" if self._service is None else self._service.most_state()
        failure = out_of_memory(self._identity.attempt, self._identity.subtask, reason, most)
        log.error("out of memory: %s", failure.message)
        self._send(failure)
        self._remove_sockets()
        logging.shutdown()
        os._exit(1)

    def _serve(self, service: SlotService) -> tuple[str, str]:
        unix = f"grpc+unix://{self._spec['socket']}"
        self._servers.append(SlotServer(unix, service, self._token, self.dismissed))
        if not self._spec["tcp"]:
            return unix, ""
        host = self._spec["host"]
        location = tcp_location(host, 0, self._tls)
        server = SlotServer(location, service, self._token, self.dismissed, tls=self._tls)
        self._servers.append(server)
        return unix, tcp_location(host, server.port, self._tls)

    def dismissed(self, reason: str) -> SlotFailure | None:
        """Close, then end the process soon; return what went wrong when operators were closed."""
        failure = self._closing.close(self._service, patience_s(reason))
        if reason != NEXT_ATTEMPT:
            self._remove_copies()
        self.leave(reason)
        return failure

    def _remove_copies(self) -> None:
        """Remove the copies of state files on this host: the job is over."""
        if self._copies is not None:
            remove_copies(self._copies)

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
        alive_ms = self._clock.monotonic_ms()
        start = SlowStart(assignment.lease_ms, alive_ms)
        while not self._leaving.is_set():
            if self._service is None:
                start.look(self._clock.monotonic_ms())
            try:
                answer = self._driver.call_struct("heartbeat", self._heartbeat(), timeout_s=3.0)
                alive_ms = self._clock.monotonic_ms()
                if answer == b"leave":
                    self.leave("fenced by a newer execution attempt")
            except ChannelError as error:
                silent = self._clock.monotonic_ms() - alive_ms
                log.warning("no heartbeat for %d ms: %s", silent, error)
                if silent > assignment.lease_ms:
                    self._remove_copies()
                    self.leave("the lease with the driver ran out")
            _wait(self._leaving, watch, assignment.heartbeat_ms / 1000)
            if watch is not None and _is_readable(watch):
                self._orphaned = True
                self._remove_copies()
                self.leave("the driver process is gone")
        if self._service is None:
            # Still restoring, or in the user's open(): nobody waits for the result.
            log.info("leaving before the start: %s", self._reason)
            self.close()
            logging.shutdown()
            os._exit(1)

    def _heartbeat(self) -> Heartbeat:
        usage = SlotUsage(
            memory_bytes=own_bytes() or 0,
            cpu_ms=time.process_time_ns() // 1_000_000,
            busy_ms=0 if self._service is None else self._service.busy_ms,
        )
        return Heartbeat(self._identity.attempt, self._identity.subtask, usage)

    def close(self) -> None:
        """Drop open transactions within a few seconds, unless that is being done with more time."""
        self._closing.close(self._service, CLOSE_S)
        # The JobManager may be waiting for an answer.
        within(_ANSWER_S, lambda: [server.shutdown() for server in self._servers])
        self._remove_sockets()

    def _remove_sockets(self) -> None:
        own = Path(self._spec["socket"])
        for path in (own, Path(door_path(str(own)))):
            with contextlib.suppress(OSError):
                path.unlink()
        if self._spec.get("owns_directory"):
            shutil.rmtree(own.parent, ignore_errors=True)
        elif self._orphaned and not any(name.startswith("s") for name in _names(own.parent)):
            # Nobody else removes the directory of the driver: the last slot to leave does.
            shutil.rmtree(own.parent, ignore_errors=True)


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _local_dir(setting: str | None) -> Path | None:
    """Return the first of the directories that are given for temporary files."""
    first = re.split(r"[,:|]", setting or "")[0].strip()
    return Path(first) if first else None


def _in_thread(work: Callable[[], None]) -> None:
    """Run the async phase of a checkpoint; a slot that ends does not wait for it."""
    threading.Thread(target=work, name="async-phase", daemon=True).start()


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
