"""Which job a command means: a full id, the beginning of one, or a name.

Without an address the jobs are those that announced themselves on this host; with one they are
those of the JobManager there.
"""

from __future__ import annotations

import difflib
import functools
import re
import urllib.parse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from weir.cli.client import RestClient, UnreachableError, jobmanager_url
from weir.cli.flink_options import job_options
from weir.config import ambient
from weir.config.effective import Settings
from weir.errors import UsageError, WeirError
from weir.jobmanager import directory
from weir.tls import TlsFiles

PREFIX_MIN = 4
ENDED = ("FINISHED", "CANCELED", "FAILED")
_OVERVIEW_TIMEOUT_S = 1.5
_ASKED_AT_ONCE = 16
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class JobInfo:
    """A job as lists show it, and where it can be asked; times are milliseconds."""

    job_id: str
    name: str
    status: str
    start_ms: int
    url: str
    token: str = ""
    end_ms: int | None = None
    pid: int | None = None
    savepoint: str | None = None
    tls: TlsFiles | None = None
    program: str | None = None
    query_token: str = ""

    @property
    def client(self) -> RestClient:
        """Return the way to its JobManager."""
        return RestClient(self.url, self.token, self.tls)

    @property
    def ended(self) -> bool:
        """Tell whether it will never run again."""
        return self.status in ENDED


@dataclass(frozen=True)
class Where:
    """Where a command looks for jobs: one JobManager, or this host when there is no `url`."""

    url: str | None = None
    token: str = ""
    tls: TlsFiles | None = None

    @property
    def client(self) -> RestClient | None:
        """Return the way to the one JobManager, None when this host is looked at."""
        return None if self.url is None else RestClient(self.url, self.token, self.tls)

    def jobs(self) -> list[JobInfo]:
        """Return all known jobs, newest first.

        Raises:
            UnreachableError: the JobManager that was asked for does not answer.
        """
        client = self.client
        if client is not None:
            return _overview(client, self)
        found = [_announced(entry) for entry in directory.entries()]
        # At the same time, so that a driver that hangs is waited for once, however many do.
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
            return list(pool.map(_asked, found))

    def find(self, text: str) -> JobInfo:
        """Return the one running job that a text means.

        Raises:
            UsageError: no running job has this id or name, or several have.
        """
        if self.url is None:
            jobs = [_announced(entry) for entry in directory.entries()]
        else:
            jobs = self.jobs()
        return choose(text, jobs)


def jobmanager_options(command: _F) -> _F:
    """Give a command `-m` and `--token`, which it gets as one `where`."""

    @click.option(
        "-m",
        "--jobmanager",
        metavar="HOST:PORT",
        envvar="WEIR_JOBMANAGER",
        show_envvar=True,
        help="JobManager to ask, instead of looking for jobs on this host.",
    )
    @click.option(
        "--token",
        envvar="WEIR_TOKEN",
        show_envvar=True,
        default="",
        help="What the JobManager wants to see; others see it less in the variable.",
    )
    @functools.wraps(command)
    def wrapper(*args: Any, jobmanager: str | None, token: str, **kwargs: Any) -> Any:
        url = None if not jobmanager else jobmanager_url(jobmanager)
        if url is not None:
            token = token or announced_token(url)
        return command(*args, where=Where(url, token, _tls(url)), **kwargs)

    return job_options(wrapper)  # type: ignore[return-value]


def announced_token(url: str) -> str:
    """Return the token of a JobManager of this user on this host, "" for any other."""
    asked = urllib.parse.urlsplit(url)
    if asked.hostname not in _LOOPBACK:
        return ""
    for entry in directory.running():
        own = urllib.parse.urlsplit(entry.url)
        if own.hostname in _LOOPBACK and own.port == asked.port:
            return entry.token
    return ""


def _tls(url: str | None) -> TlsFiles | None:
    encrypted = url is not None and url.startswith("https:")
    return TlsFiles.of(Settings(ambient.layers())) if encrypted else None


def complete_job(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """Offer the ids of the jobs that run on this host, with their names as explanation."""
    item = click.shell_completion.CompletionItem
    try:
        jobs = directory.running()
    except WeirError:
        return []  # the command itself says what is wrong
    ids = [item(e.job_id, help=e.name) for e in jobs if e.job_id.startswith(incomplete)]
    names = [
        item(e.name, help=e.job_id) for e in jobs if incomplete and e.name.startswith(incomplete)
    ]
    return ids or names


def choose(text: str, jobs: list[JobInfo]) -> JobInfo:
    """Return the one running job that a text means.

    Raises:
        UsageError: no running job has this id or name, or several have.
    """
    running = [job for job in jobs if not job.ended]
    found = _matches(text, running)
    if len(found) == 1:
        return found[0]
    if found:
        shown = "".join(f"\n  {line(job)}" for job in found)
        msg = f"{text!r} means several running jobs, write more of the id:{shown}"
        raise UsageError(msg)
    over = _matches(text, [job for job in jobs if job.ended])
    if len(over) == 1:
        left = f"; its last savepoint is {over[0].savepoint!r}" if over[0].savepoint else ""
        msg = f"job {over[0].job_id} ({over[0].name!r}) has ended: {over[0].status}{left}"
        raise UsageError(msg)
    raise UsageError(_nothing_found(text, running))


def line(job: JobInfo) -> str:
    """Return a job in one line of an error message."""
    return f"{job.job_id} {job.name!r} ({job.status})"


def _matches(text: str, jobs: list[JobInfo]) -> list[JobInfo]:
    exact = [job for job in jobs if job.job_id == text.lower()]
    if exact:
        return exact
    prefix = re.fullmatch(rf"[0-9a-fA-F]{{{PREFIX_MIN},31}}", text) is not None
    return [
        job for job in jobs if job.name == text or (prefix and job.job_id.startswith(text.lower()))
    ]


def _nothing_found(text: str, running: list[JobInfo]) -> str:
    if not running:
        return f"no job {text!r} is running: none runs at all, as 'weir list' shows"
    words = {word: job for job in running for word in (job.job_id, job.name)}
    near = difflib.get_close_matches(text, words, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    shown = "".join(f"\n  {line(job)}" for job in running)
    return f"no job {text!r} is running{hint} These are:{shown}"


def _announced(entry: directory.JobEntry) -> JobInfo:
    return JobInfo(
        job_id=entry.job_id,
        name=entry.name,
        status=entry.status,
        start_ms=entry.started_ms,
        url=entry.url,
        token=entry.token,
        end_ms=entry.ended_ms,
        pid=entry.pid,
        savepoint=entry.savepoint,
        tls=entry.tls,
        program=entry.program,
        query_token=entry.query_token,
    )


def _asked(job: JobInfo) -> JobInfo:
    """Return the job with the status of now; as announced when it does not answer."""
    if job.ended:
        return job
    try:
        client = RestClient(job.url, job.token, job.tls, timeout_s=_OVERVIEW_TIMEOUT_S)
        seen = [j for j in _overview(client, Where()) if j.job_id == job.job_id]
    except WeirError:
        return job
    if not seen:
        return job
    return JobInfo(**{**vars(job), "status": seen[0].status, "end_ms": seen[0].end_ms})


def _overview(client: RestClient, where: Where) -> list[JobInfo]:
    answer = client.get("/jobs/overview")
    if not isinstance(answer, dict) or not isinstance(answer.get("jobs"), list):
        msg = f"what answers at {client.url} is no JobManager: it does not list jobs"
        raise UnreachableError(msg)
    found = [
        JobInfo(
            job_id=str(job["jid"]),
            name=str(job["name"]),
            status=str(job["state"]),
            start_ms=int(job["start-time"]),
            end_ms=int(job["end-time"]) if job.get("end-time", -1) >= 0 else None,
            url=client.url,
            token=where.token,
            tls=where.tls,
        )
        for job in answer["jobs"]
    ]
    return sorted(found, key=lambda job: job.start_ms, reverse=True)
