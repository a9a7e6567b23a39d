"""Entry of the command `weir`: its commands, and errors as one message and an exit code.

A command is imported when it is asked for, by the name that stands in the table: all of them
together take longer to import than most of them to run.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping

import click

from weir.cli.errors import HELP_OPTIONS, WeirGroup
from weir.version import __version__

# Where each command is: the module below this package, and its name there.
_PLACES = {
    "cancel": ("cancel", "cancel"),
    "certificates": ("certificates", "certificates"),
    "check": ("check", "check"),
    "checkpoint": ("checkpoint", "checkpoint"),
    "completion": ("completion", "completion"),
    "demo": ("demo", "demo"),
    "doctor": ("doctor", "doctor"),
    "info": ("info", "info"),
    "list": ("list", "list_jobs"),
    "page": ("page", "page"),
    "rescale": ("rescale", "rescale"),
    "run": ("run", "run"),
    "savepoint": ("savepoint", "savepoint"),
    "state": ("state_get", "state"),
    "stop": ("stop", "stop"),
    "token": ("token", "token"),
    "top": ("top", "top"),
}


class _Commands(MutableMapping[str, click.Command]):
    """All commands by name, each imported when somebody looks at it."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module, attribute = _PLACES[name]
            found: click.Command = getattr(importlib.import_module(f"weir.cli.{module}"), attribute)
            self._loaded[name] = found
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*_PLACES, *self._loaded}))

    def __len__(self) -> int:
        return len({*_PLACES, *self._loaded})


@click.group(cls=WeirGroup, context_settings=HELP_OPTIONS, commands=_Commands())
@click.version_option(__version__, "--version", "-v", prog_name="weir")
def cli() -> None:
    """Flink's state management and fault tolerance for PySpark."""


def main() -> None:
    """Run the command and end the process with its exit code."""
    cli(prog_name="weir")


if __name__ == "__main__":
    main()
