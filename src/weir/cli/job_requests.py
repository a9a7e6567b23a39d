"""Requests to a job that several commands make, and what is said about their results."""

from __future__ import annotations

import json

import click

from weir.cli.lookup import JobInfo
from weir.cli.waiting import Operation, request_id

_RESUME = "weir run -s {path} JOB.py"


def final_savepoint(job: JobInfo, answer: object) -> Operation:
    """Return the savepoint that a job was asked for as its last act."""
    path = f"/jobs/{job.job_id}/savepoints/{request_id(job, answer)}"
    return Operation(job, path, f"The savepoint of job {job.job_id}", ends_job=True)


def say_detached(operation: Operation, as_json: bool) -> None:
    """Tell under which id the result of an operation can be asked for."""
    number = operation.path.rpartition("/")[2]
    if as_json:
        found = {"job_id": operation.job.job_id, "request_id": number, "url": operation.url}
        click.echo(json.dumps(found))
    else:
        click.echo(f"{operation.what} was requested, request-id {number}. Result: {operation.url}")


def say_savepoint(operation: Operation, as_json: bool, done: str) -> str:
    """Wait for a savepoint, tell where it is, and return that."""
    location = str(operation.wait()["location"])
    if as_json:
        click.echo(json.dumps({"job_id": operation.job.job_id, "savepoint": location}))
    else:
        click.echo(f"{operation.what} was {done}. Path: {location}")
        click.echo(f"Resume from it with: {_RESUME.format(path=location)}", err=True)
    return location
