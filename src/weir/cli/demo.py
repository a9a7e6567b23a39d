"""`weir demo`: the demonstration, watched in the terminal."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.screen import open_screen
from weir.clock import SystemClock
from weir.errors import UsageError


@click.command(context_settings=HELP_OPTIONS)
@click.option("--rows", type=click.IntRange(min=1_000), default=2_000_000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep input, output, checkpoints and logs in DIR.",
)
@click.option("--no-kill", is_flag=True, help="Leave the slots alone.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(rows: int, seed: int, keep: Path | None, no_kill: bool, as_json: bool) -> None:
    """Stream card payments, kill a slot on the way, and recount the output.

    Exits with 0 if every row of the output is there exactly once and right, although a slot was
    killed while the job ran.
    """
    from weir.demo.run import DemoOptions, run_demo, shape_of

    folder = _folder(keep)
    options = DemoOptions(shape_of(rows, seed), folder, kill=not no_kill)
    screen = open_screen(quiet=as_json)
    try:
        with screen:
            result = run_demo(options, screen, SystemClock())
    except KeyboardInterrupt:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    except BaseException:
        click.echo(f"Logs: {options.logs}", err=True)
        raise
    recovered = no_kill or (result.kill is not None and result.kill.recovery_ms is not None)
    good = result.comparison.exact and recovered
    kept = keep is not None or not good
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        click.echo(json.dumps(_as_dict(result, good, folder if kept else None)))
    else:
        screen.result(result)
        _say_verdict(good, recovered, options if kept else None)
    if not good:
        raise SystemExit(1)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="weir-demo-"))
    keep = keep.absolute()
    if keep.exists() and any(keep.iterdir()):
        msg = f"--keep {str(keep)!r} is not empty: name a new or an empty directory"
        raise UsageError(msg)
    keep.mkdir(parents=True, exist_ok=True)
    return keep


def _say_verdict(good: bool, recovered: bool, kept: Any) -> None:
    if good:
        click.echo("Exactly once: the output is what the input says, row by row.")
    elif not recovered:
        click.echo("No recovery took place, so nothing was shown; please try with more --rows.")
    else:
        click.echo("The output is NOT what the input says.")
    if kept is None:
        click.echo("Removed input, output, checkpoints and logs; --keep DIR leaves them.")
    else:
        click.echo(f"Output: {kept.output}\nLogs:   {kept.logs}")


def _as_dict(result: Any, good: bool, folder: Path | None) -> dict[str, Any]:
    comparison, kill = result.comparison, result.kill
    return {
        "ok": good,
        "expected": comparison.expected,
        "got": comparison.got,
        "lost": comparison.lost,
        "duplicated": comparison.duplicated,
        "different": comparison.different,
        "killed_pid": kill.pid if kill else None,
        "recovery_ms": kill.recovery_ms if kill else None,
        "seconds": round(result.seconds, 1),
        "checkpoints": result.figures.checkpoints,
        "folder": str(folder) if folder else None,
    }
