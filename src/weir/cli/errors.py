"""Errors on the command line: one clean message, and an exit code by who has to act."""

from __future__ import annotations

from typing import Any

import click

from weir.errors import (
    CorruptStateError,
    IncompatibleStateError,
    StorageError,
    UsageError,
    WeirError,
)

# Given to every command, so that help reads the same whoever asks for it first.
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

EXIT_CODES: tuple[tuple[type[WeirError], int], ...] = (
    (UsageError, 2),
    (IncompatibleStateError, 3),
    (CorruptStateError, 4),
    (StorageError, 5),
    (WeirError, 1),
)


def exit_code(error: WeirError) -> int:
    """Return the exit code of an error's branch; 1 when a job or a user's function failed."""
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


class WeirGroup(click.Group):
    """A group whose commands may raise `WeirError`."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Weir's own errors end it with their message and no stack trace."""
        try:
            return super().invoke(ctx)
        except WeirError as error:
            click.echo(f"weir: {error}", err=True)
            ctx.exit(exit_code(error))
