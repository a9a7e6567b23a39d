"""`weir completion`: what a shell needs to complete commands, options and job ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from weir.cli.errors import HELP_OPTIONS

SHELLS = ("bash", "zsh", "fish")


@click.command(context_settings=HELP_OPTIONS)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    For bash: put 'eval "$(weir completion bash)"' into your ~/.bashrc.
    """
    made = get_completion_class(shell)
    root = ctx.find_root().command
    if made is not None:
        click.echo(made(root, {}, "weir", "_WEIR_COMPLETE").source())
