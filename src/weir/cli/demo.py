"""`weir demo`: the demonstration, watched in the terminal."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import click

from weir.cli.demo_screen import open_screen
from weir.cli.errors import HELP_OPTIONS
from weir.clock import SystemClock
from weir.errors import UsageError


@click.command(context_settings=HELP_OPTIONS)
@click.option("--rows", type=click.IntRange(min=1_000), default=2_000_000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep input, output, checkpoints, the savepoint and logs in DIR.",
)
@click.option("--no-kill", is_flag=True, help="Leave the slots alone.")
@click.option("--no-rescale", is_flag=True, help="Leave the savepoint and the second job out.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(
    rows: int, seed: int, keep: Path | None, no_kill: bool, no_rescale: bool, as_json: bool
) -> None:
    """Stream card payments, kill a slot, go on from a savepoint, and recount the output.

    Exits with 0 if every row of the output is there exactly once and right, although a slot was
    killed while the job ran, and the job was stopped with a savepoint and another one went on from
    it with another parallelism.
    """
    from weir.demo.run import DemoOptions, run_demo, shape_of

    folder = _folder(keep)
    options = DemoOptions(shape_of(rows, seed), folder, not no_kill, not no_rescale)
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
    missing = _missing(options, result)
    good = result.comparison.exact and not missing
    kept = keep is not None or not good
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        click.echo(json.dumps(_as_dict(result, good, folder if kept else None)))
    else:
        screen.result(result)
        _say_verdict(result.comparison.exact, missing, options if kept else None)
    if not good:
        raise SystemExit(1)


def _missing(options: Any, result: Any) -> list[str]:
    """Return what was to be shown and did not happen before the input was over."""
    missing = []
    if options.kill and (result.kill is None or result.kill.recovery_ms is None):
        missing.append("recovery")
    if options.rescale and (result.move is None or result.move.resume_ms is None):
        missing.append("start from a savepoint")
    return missing


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="weir-demo-"))
    keep = keep.absolute()
    if keep.exists() and any(keep.iterdir()):
        msg = f"--keep {str(keep)!r} is not empty: name a new or an empty directory"
        raise UsageError(msg)
    keep.mkdir(parents=True, exist_ok=True)
    return keep


def _say_verdict(exact: bool, missing: list[str], kept: Any) -> None:
    if not exact:
        click.echo("The output is NOT what the input says.")
    elif missing:
        what = " and no ".join(missing)
        click.echo(f"No {what} took place, so nothing was shown; please try with more --rows.")
    else:
        click.echo("Exactly once: the output is what the input says, row by row.")
    if kept is None:
        click.echo("Removed input, output, checkpoints, savepoint and logs; --keep DIR keeps them.")
    else:
        click.echo(f"Output: {kept.output}\nLogs:   {kept.logs}")


def _as_dict(result: Any, good: bool, folder: Path | None) -> dict[str, Any]:
    comparison, kill, move = result.comparison, result.kill, result.move
    return {
        "ok": good,
        "expected": comparison.expected,
        "got": comparison.got,
        "lost": comparison.lost,
        "duplicated": comparison.duplicated,
        "different": comparison.different,
        "killed_pid": kill.pid if kill else None,
        "recovery_ms": kill.recovery_ms if kill else None,
        "savepoint": move.savepoint if move and folder else None,
        "savepoint_bytes": move.savepoint_bytes if move else None,
        "stop_ms": move.stop_ms if move else None,
        "parallelism_before": move.parallelism_before if move else None,
        "parallelism": move.parallelism if move else None,
        "resume_ms": move.resume_ms if move else None,
        "seconds": round(result.seconds, 1),
        "checkpoints": result.figures.checkpoints,
        "folder": str(folder) if folder else None,
    }
