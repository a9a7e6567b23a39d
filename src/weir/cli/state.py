"""`weir state`: which checkpoints and savepoints there are, and what is inside of one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

import click
import msgspec

from weir.cli.configuration import parse_definitions
from weir.cli.errors import HELP_OPTIONS
from weir.cli.state_text import listing_lines, place, show_lines
from weir.config import ambient, checkpointing, storage
from weir.config.effective import Settings
from weir.config.option import ConfigOption
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.jobmanager.directory import entries
from weir.jobmanager.disposal import location_of
from weir.offline import Description, Summary, describe, list_snapshots
from weir.offline.listing import newest_first
from weir.storage.options import StorageOptions

definitions_option = click.option(
    "-D", "definitions", metavar="KEY=VALUE", multiple=True, help="A setting, such as s3.endpoint."
)
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group(context_settings=HELP_OPTIONS)
def state() -> None:
    """Look at checkpoints and savepoints, without a running job."""


@state.command("ls", context_settings=HELP_OPTIONS)
@click.argument("directory", metavar="[DIR]", required=False)
@as_json_option
@definitions_option
def ls(directory: str | None, as_json: bool, definitions: tuple[str, ...]) -> None:
    """List checkpoints and savepoints below DIR, newest first.

    DIR is a directory of checkpoints, of one job, or of savepoints, as a path or URI. Without it
    these are the configured directories, those of the jobs that run, and those that jobs of this
    host wrote savepoints to.
    """
    settings = _settings(definitions)
    options = _storage_options(settings)
    if directory is not None:
        found = list_snapshots(directory, options)
    else:
        found = _list_all(_known_directories(settings), options)
    if as_json:
        click.echo(json.dumps([msgspec.to_builtins(summary) for summary in found], indent=2))
        return
    say(listing_lines(found))


@state.command("show", context_settings=HELP_OPTIONS)
@click.argument("path")
@click.option("--verify", is_flag=True, help="Read all files and compare their checksums.")
@as_json_option
@definitions_option
def show(path: str, verify: bool, as_json: bool, definitions: tuple[str, ...]) -> None:
    """Describe the checkpoint or savepoint PATH: operators, states, types, sizes, positions.

    PATH is its directory or `_metadata` file, as a path or URI. No code of the program that wrote
    it runs. Exits with 4 when files are missing or damaged.
    """
    refuse_job(path)
    found = describe(path, storage_of(definitions), verify=verify)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        say(show_lines(found))
    _raise_problems(found)


def say(lines: Iterable[str]) -> None:
    """Print lines; what a file calls its states must not command the terminal."""
    for line in lines:
        click.echo("".join(c if c.isprintable() else "?" for c in line))


def _raise_problems(found: Description) -> None:
    if found.problems:
        msg = f"{place(found.location)!r} cannot be restored: {'; '.join(found.problems)}"
        raise CorruptStateError(msg)


def refuse_job(path: str) -> None:
    """Refuse what looks like the name of a job where a path is expected.

    Raises:
        UsageError: it does.
    """
    if "/" not in path and not os.path.exists(path):
        msg = (
            f"{path!r} is no checkpoint or savepoint: expected the path of a directory; "
            "'weir list' shows jobs, and 'weir state ls' where their checkpoints are"
        )
        raise UsageError(msg)


def _settings(definitions: Iterable[str]) -> Settings:
    values = parse_definitions(definitions)
    Settings([values]).validate()
    return Settings([*ambient.layers(), values])


def storage_of(definitions: Iterable[str]) -> StorageOptions:
    """Return the settings of storages, from `-D` and the configuration file."""
    return _storage_options(_settings(definitions))


def _storage_options(settings: Settings) -> StorageOptions:
    chosen = [option for option in vars(storage).values() if isinstance(option, ConfigOption)]
    return StorageOptions.of({option.key: settings.get(option) for option in chosen})


def _known_directories(settings: Settings) -> list[str]:
    """Return the configured directories, those of running jobs and of savepoints, each once.

    Raises:
        UsageError: there are none.
    """
    configured = (checkpointing.CHECKPOINT_DIR, checkpointing.SAVEPOINT_DIR)
    found = [directory for option in configured if (directory := settings.get(option))]
    jobs = entries()
    found += [job.checkpoint_dir for job in jobs if job.running and job.checkpoint_dir]
    found += [directory for job in jobs for directory in job.savepoint_dirs]
    if not found:
        msg = (
            "where? No job runs, and no directory is configured: write 'weir state ls DIR', or "
            f"set {checkpointing.CHECKPOINT_DIR.key!r} in {ambient.FILE_NAME}"
        )
        raise UsageError(msg)
    return list({location_of(directory): directory for directory in reversed(found)}.values())[::-1]


def _list_all(directories: list[str], options: StorageOptions) -> list[Summary]:
    lists = [_list_if_possible(directory, options) for directory in directories]
    found = {summary.location: summary for summaries in lists for summary in summaries}
    return newest_first(found.values())


def _list_if_possible(directory: str, options: StorageOptions) -> list[Summary]:
    """List one of several directories; one that cannot be read must not hide the others."""
    try:
        return list_snapshots(directory, options)
    except (UsageError, StorageError) as error:
        click.echo(f"weir: {error}", err=True)
        return []
