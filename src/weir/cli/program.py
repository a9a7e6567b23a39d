"""A user's program in this process, as `python JOB` would run it."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from weir.cli.notice import notice
from weir.config import ambient
from weir.errors import UsageError
from weir.notices import signs_shown_by


def program_argument(file: str | None, words: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """Return the program and its own arguments; with `-py FILE` all words are arguments.

    Raises:
        UsageError: there is no such file.
    """
    if file is None:
        if not words:
            msg = "which program? Name its file, such as 'weir run job.py'"
            raise UsageError(msg)
        file, words = words[0], words[1:]
    path = Path(file)
    if not path.is_file():
        found = "is a directory" if path.is_dir() else "does not exist"
        msg = f"the program {file!r} {found}: name a Python file"
        raise UsageError(msg)
    return path, words


def complete_program(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """Let the shell complete file names."""
    return [click.shell_completion.CompletionItem(incomplete, type="file")]


def run_program(
    job: Path, args: tuple[str, ...], settings: Mapping[str, str], master: str | None = None
) -> None:
    """Run a program to its end; settings and the Spark master are in effect as long as it runs."""
    kept = sys.argv, sys.path[:]
    ambient.set_overrides(settings)
    sys.argv = [str(job), *args]
    # As `python JOB` does: what lies beside the program can be imported.
    sys.path.insert(0, str(job.absolute().parent))
    try:
        with _spark_master(master), signs_shown_by(notice):
            runpy.run_path(str(job), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = kept
        ambient.set_overrides({})


@contextmanager
def _spark_master(master: str | None) -> Iterator[None]:
    if master is None:
        yield
        return
    before = os.environ.get("SPARK_MASTER")
    os.environ["SPARK_MASTER"] = master
    try:
        yield
    finally:
        if before is None:
            del os.environ["SPARK_MASTER"]
        else:
            os.environ["SPARK_MASTER"] = before
