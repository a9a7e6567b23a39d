"""`weir run`: a user's program in this process, with settings from the command line."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import click

from weir.cli.configuration import overrides
from weir.cli.errors import HELP_OPTIONS
from weir.config import ambient


@click.command(context_settings={**HELP_OPTIONS, "allow_interspersed_args": False})
@click.option(
    "-p", "--parallelism", type=click.IntRange(min=1), help="Parallelism of the operators."
)
@click.option(
    "-s", "--fromSavepoint", "restore_from", metavar="PATH", help="Checkpoint to start from."
)
@click.option(
    "-n",
    "--allowNonRestoredState",
    "allow_non_restored",
    is_flag=True,
    help="Start although state in PATH has no operator in the program.",
)
@click.option("-D", "definitions", metavar="KEY=VALUE", multiple=True, help="A setting.")
@click.argument("job", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    parallelism: int | None,
    restore_from: str | None,
    allow_non_restored: bool,
    definitions: tuple[str, ...],
    job: Path,
    args: tuple[str, ...],
) -> None:
    """Run the program JOB with its own ARGS.

    Settings count less than what the program itself sets, and more than weir-conf.yaml.
    """
    ambient.set_overrides(
        overrides(
            definitions,
            parallelism=parallelism,
            restore_from=restore_from,
            allow_non_restored=allow_non_restored,
        )
    )
    kept = sys.argv, sys.path[:]
    sys.argv = [str(job), *args]
    # As `python JOB` does: what lies beside the program can be imported.
    sys.path.insert(0, str(job.absolute().parent))
    try:
        runpy.run_path(str(job), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = kept
        ambient.set_overrides({})
