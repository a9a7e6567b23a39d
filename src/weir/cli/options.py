"""Options that several commands share, in Flink's spellings."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from weir.cli.lookup import complete_job
from weir.cli.program import complete_program

_Decorator = Callable[[Any], Any]

json_option: _Decorator = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON."
)
detached_option: _Decorator = click.option(
    "-dcp",
    "-detached",
    "--detached",
    is_flag=True,
    help="Do not wait for the result.",
)
format_option: _Decorator = click.option(
    "-t",
    "-type",
    "--type",
    "form",
    type=click.Choice(["canonical", "native"], case_sensitive=False),
    default="canonical",
    show_default=True,
    help="Canonical can be restored by every backend, native is written faster.",
)
parallelism_option: _Decorator = click.option(
    "-p",
    "-parallelism",
    "--parallelism",
    type=click.IntRange(min=1),
    help="Parallelism of the operators.",
)
settings_option: _Decorator = click.option(
    "-D", "definitions", metavar="KEY=VALUE", multiple=True, help="A setting."
)
python_option: _Decorator = click.option(
    "-py", "-python", "--python", "file", metavar="FILE", help="The program, instead of JOB."
)
program_words: _Decorator = click.argument(
    "words",
    metavar="JOB [ARGS]...",
    nargs=-1,
    type=click.UNPROCESSED,
    shell_complete=complete_program,
)
job_argument: _Decorator = click.argument("job", shell_complete=complete_job)


def dependency_options(command: Any) -> Any:
    """Give a command what a program needs of Python: files, packages, archives, an executable."""
    for spellings, name, what in (
        (("-pyfs", "--pyFiles"), "python_files", "Python files, packages or zips to ship."),
        (("-pyreq", "--pyRequirements"), "python_requirements", "A requirements file."),
        (("-pyarch", "--pyArchives"), "python_archives", "Archives to ship."),
        (("-pyexec", "--pyExecutable"), "python_executable", "The Python of the workers."),
    ):
        command = click.option(*spellings, name, metavar="PATH", help=what)(command)
    return command


def absolute(directory: str | None) -> str | None:
    """Return a directory as the job, which works elsewhere, has to know it; URIs stay."""
    if directory is None or "://" in directory or directory.startswith("file:"):
        return directory
    return os.path.abspath(directory)
