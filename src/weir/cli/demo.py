"""`weir demo`: the demonstration, watched in the terminal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click

from weir.cli.demo_screen import open_screen
from weir.cli.errors import HELP_OPTIONS
from weir.clock import SystemClock
from weir.errors import UsageError
from weir.storage.private_files import keep_directory, new_directory


@click.command(context_settings=HELP_OPTIONS)
@click.option(
    "--rows",
    type=click.IntRange(min=1_000),
    default=None,
    show_default="2000000, with --kafka 500000",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep input, output, checkpoints, the savepoint and logs in DIR.",
)
@click.option(
    "--kafka",
    is_flag=True,
    help="Stream from Kafka to Kafka on a broker of its own, which is killed, too.",
)
@click.option("--no-kill", is_flag=True, help="Leave the slots and the broker alone.")
@click.option("--no-rescale", is_flag=True, help="Leave the savepoint and the second job out.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(rows: int | None, seed: int, keep: Path | None, as_json: bool, **flags: bool) -> None:
    """Stream card payments, kill a slot, go on from a savepoint, and recount the output.

    Exits with 0 if every row of the output is there exactly once and right, although a slot was
    killed while the job ran, and the job was stopped with a savepoint and another one went on from
    it with another parallelism. With --kafka there is no savepoint, but the broker is killed.
    """
    screen = open_screen(quiet=as_json)
    home = _kafka(screen) if flags["kafka"] else None
    from weir.demo.run import DemoOptions, shape_of

    folder = _folder(keep)
    shape = shape_of(rows or (2_000_000 if home is None else 500_000), seed)
    rescale = home is None and not flags["no_rescale"]
    options = DemoOptions(shape, folder, not flags["no_kill"], rescale, kafka=home is not None)
    try:
        with screen:
            result = _run(options, home, screen)
    except KeyboardInterrupt:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    except BaseException:
        keep_directory(folder)
        click.echo(f"Logs: {options.logs}", err=True)
        raise
    missing = _missing(options, result)
    good = result.comparison.exact and not missing
    kept = keep is not None or not good
    if kept:
        keep_directory(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        click.echo(json.dumps(_as_dict(result, good, folder if kept else None)))
    else:
        screen.result(result)
        _say_verdict(result.comparison.exact, missing, options if kept else None)
    if not good:
        raise SystemExit(1)


def _kafka(screen: Any) -> Path:
    """Return the folder of Kafka's jars; refuses before anything is made or started."""
    from weir.demo.kafka_server import require_kafka

    return require_kafka(screen.say)


def _run(options: Any, home: Path | None, screen: Any) -> Any:
    if home is None:
        from weir.demo.run import run_demo

        return run_demo(options, screen, SystemClock())
    from weir.demo.kafka_run import run_kafka_demo

    return run_kafka_demo(options, home, screen, SystemClock())


def _missing(options: Any, result: Any) -> list[str]:
    """Return what was to be shown and did not happen before the input was over."""
    missing = []
    if options.kill and (result.kill is None or result.kill.recovery_ms is None):
        missing.append("recovery")
    if options.kafka and options.kill and not (result.broker and result.broker.recovery_ms):
        missing.append("recovery from a dead broker")
    if options.rescale and (result.move is None or result.move.resume_ms is None):
        missing.append("start from a savepoint")
    return missing


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return new_directory("weir-demo-")
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
        click.echo("Removed input, output, checkpoints and logs; --keep DIR keeps them.")
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
        "broker_pid": result.broker.pid if result.broker else None,
        "broker_recovery_ms": result.broker.recovery_ms if result.broker else None,
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
