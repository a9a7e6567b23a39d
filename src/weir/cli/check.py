"""`weir check`: what a PyFlink program would meet here, without running it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.options import json_option
from weir.cli.program import complete_program
from weir.errors import UsageError
from weir.moving.facts import Meets
from weir.moving.look import Finding, look_at


@click.command(context_settings=HELP_OPTIONS)
@json_option
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_program
)
def check(files: tuple[str, ...], as_json: bool) -> None:
    """Say what the program in FILE would meet: refused, ignored or different, and advice.

    The program is read and not run. It may import pyflink still, or weir already. Exits with 1 if
    something is refused.
    """
    found = [(file, finding) for file in files for finding in look_at(_read(file), file)]
    if as_json:
        click.echo(json.dumps([_as_dict(*each) for each in found], indent=2))
    else:
        for file, finding in found:
            click.echo(_line(file, finding))
        click.echo(_summary([finding for _, finding in found], len(files)), err=True)
    if any(finding.meets is Meets.REFUSED for _, finding in found):
        raise SystemExit(1)


def _read(file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the program {file!r} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg) from error


def _line(file: str, finding: Finding) -> str:
    place = f"{file}:{finding.line}:{finding.column + 1}"
    return f"{place}: {finding.meets.value}: {finding.what}: {finding.text}"


def _as_dict(file: str, finding: Finding) -> dict[str, object]:
    return {
        "file": file,
        "line": finding.line,
        "column": finding.column + 1,
        "meets": finding.meets.value,
        "what": finding.what,
        "text": finding.text,
    }


def _summary(found: list[Finding], files: int) -> str:
    counts = [(kind.value, sum(f.meets is kind for f in found)) for kind in Meets]
    said = ", ".join(f"{count} {kind}" for kind, count in counts if count)
    where = "1 program" if files == 1 else f"{files} programs"
    return f"{where}: {said or 'nothing that is refused, ignored or different was found'}"
