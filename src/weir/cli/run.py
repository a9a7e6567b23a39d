"""`weir run`: a user's program, with settings from the command line, here or in the background."""

from __future__ import annotations

from typing import Any

import click

from weir.cli.configuration import overrides
from weir.cli.detached import say_started, start_detached
from weir.cli.errors import HELP_OPTIONS
from weir.cli.flink_options import program_options
from weir.cli.options import (
    dependency_options,
    json_option,
    parallelism_option,
    program_words,
    python_option,
    settings_option,
)
from weir.cli.program import program_argument, run_program
from weir.errors import UsageError

_CLAIM_MODES = click.Choice(["claim", "no_claim", "legacy"], case_sensitive=False)


@click.command(context_settings={**HELP_OPTIONS, "allow_interspersed_args": False})
@parallelism_option
@click.option(
    "-s",
    "-fromSavepoint",
    "--fromSavepoint",
    "restore_from",
    metavar="PATH",
    help="Savepoint or retained checkpoint to start from.",
)
@click.option(
    *("-n", "--n", "-allowNonRestoredState", "--allowNonRestoredState"),
    "allow_non_restored",
    is_flag=True,
    help="Start although state in PATH has no operator in the program.",
)
@click.option(
    "-cm", "-claimMode", "--claimMode", "claim_mode", type=_CLAIM_MODES, help="Who owns PATH then."
)
@click.option(
    "-rm",
    "-restoreMode",
    "--restoreMode",
    "restore_mode",
    type=_CLAIM_MODES,
    help="Older spelling of --claimMode.",
)
@click.option("--master", metavar="URL", help="Spark master, such as spark://host:7077.")
@settings_option
@python_option
@click.option(
    "-d",
    "-detached",
    "--detached",
    is_flag=True,
    help="Return when the job has started, and let it run.",
)
@json_option
@dependency_options
@program_options
@program_words
def run(
    words: tuple[str, ...],
    file: str | None,
    master: str | None,
    detached: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Run the program JOB with its own ARGS.

    Settings count less than what the program itself sets, and more than everything else. Without
    -d standard output belongs to the program, so --json needs -d.
    """
    job, args = program_argument(file, words)
    if as_json and not detached:
        msg = "--json goes with -d: without it standard output belongs to the program"
        raise UsageError(msg)
    values = _settings(**settings)
    if detached:
        say_started(start_detached(job, args, values, master), as_json)
    else:
        run_program(job, args, values, master)


def _settings(
    definitions: tuple[str, ...], claim_mode: str | None, restore_mode: str | None, **others: Any
) -> dict[str, str]:
    if claim_mode and restore_mode and claim_mode != restore_mode:
        msg = f"-cm {claim_mode!r} and -rm {restore_mode!r} contradict each other: leave out -rm"
        raise UsageError(msg)
    return overrides(definitions, claim_mode=claim_mode or restore_mode, **others)
