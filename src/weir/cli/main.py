"""Entry of the command `weir`: its commands, and errors as one message and an exit code."""

from __future__ import annotations

import click

import weir
from weir.cli.demo import demo
from weir.cli.doctor import doctor
from weir.cli.errors import HELP_OPTIONS, WeirGroup
from weir.cli.run import run


@click.group(cls=WeirGroup, context_settings=HELP_OPTIONS)
@click.version_option(weir.__version__, "--version", "-v", prog_name="weir")
def cli() -> None:
    """Flink's state management and fault tolerance for PySpark."""


cli.add_command(demo)
cli.add_command(doctor)
cli.add_command(run)


def main() -> None:
    """Run the command and end the process with its exit code."""
    cli(prog_name="weir")


if __name__ == "__main__":
    main()
