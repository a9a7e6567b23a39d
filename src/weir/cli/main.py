"""Entry of the command `weir`: its commands, and errors as one message and an exit code."""

from __future__ import annotations

import click

import weir
from weir.cli.cancel import cancel
from weir.cli.certificates import certificates
from weir.cli.check import check
from weir.cli.checkpoint import checkpoint
from weir.cli.completion import completion
from weir.cli.demo import demo
from weir.cli.doctor import doctor
from weir.cli.errors import HELP_OPTIONS, WeirGroup
from weir.cli.info import info
from weir.cli.list import list_jobs
from weir.cli.rescale import rescale
from weir.cli.run import run
from weir.cli.savepoint import savepoint
from weir.cli.state_edit import state
from weir.cli.stop import stop
from weir.cli.token import token


@click.group(cls=WeirGroup, context_settings=HELP_OPTIONS)
@click.version_option(weir.__version__, "--version", "-v", prog_name="weir")
def cli() -> None:
    """Flink's state management and fault tolerance for PySpark."""


cli.add_command(cancel)
cli.add_command(certificates)
cli.add_command(check)
cli.add_command(checkpoint)
cli.add_command(completion)
cli.add_command(demo)
cli.add_command(doctor)
cli.add_command(info)
cli.add_command(list_jobs)
cli.add_command(rescale)
cli.add_command(run)
cli.add_command(savepoint)
cli.add_command(state)
cli.add_command(stop)
cli.add_command(token)


def main() -> None:
    """Run the command and end the process with its exit code."""
    cli(prog_name="weir")


if __name__ == "__main__":
    main()
