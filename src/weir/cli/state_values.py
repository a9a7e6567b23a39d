"""`weir state cat`, `diff` and `export`: values of a checkpoint or savepoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from weir.cli.errors import HELP_OPTIONS
from weir.cli.state import (
    as_json_option,
    definitions_option,
    refuse_job,
    say,
    state,
    storage_of,
)
from weir.cli.state_text import columns
from weir.errors import UsageError
from weir.offline.contents import SnapshotContents, read_snapshot
from weir.offline.diff import StateDiff, diff
from weir.offline.export import FORMATS, csv_lines, json_lines, table_rows, write_file
from weir.offline.keyed import KeyedTable
from weir.offline.keys import key_from_text, key_groups_from_text
from weir.offline.tables import StateTable

__all__ = ["state"]

_TABLE_ROWS = 100
_unpickle = click.option(
    "--unpickle", is_flag=True, help="Load pickled values, which runs code of who wrote them."
)
_keys = click.option("--key", "keys", multiple=True, metavar="KEY", help="Only this key.")
_groups = click.option("--key-groups", metavar="A-B", help="Only these key groups.")
_extra = click.option(
    "--of",
    "what",
    type=click.Choice(["state", "sources", "in-flight", "transactions", "operators"]),
    default="state",
    help="What to read: a state (default), or what else a checkpoint holds.",
)


@state.command("cat", context_settings=HELP_OPTIONS)
@click.argument("path")
@click.argument("operator", required=False)
@click.argument("name", metavar="[STATE]", required=False)
@_extra
@_keys
@_groups
@click.option("--limit", type=click.IntRange(min=0), help="At most so many rows.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", help="How."
)
@_unpickle
@definitions_option
def cat(path: str, **options: Any) -> None:
    """Print the values of STATE of OPERATOR in the checkpoint or savepoint PATH.

    OPERATOR is a uid, an id or a name. A table shows the first 100 rows; json and csv print all of
    them, a line each. Without STATE it is the only one that the operator has.
    """
    table, batches = _chosen(path, options)
    form, limit = options["form"], options["limit"]
    if form == "table":
        shown, more = table_rows(batches, _TABLE_ROWS if limit is None else limit)
        say(columns(table.schema.names, shown))
        if more:
            say([f"… and more: --limit shows others, --format {FORMATS[0]} all of them"])
        return
    batches = _limited(batches, limit)
    lines = json_lines(batches) if form == "json" else csv_lines(table.schema, batches)
    for line in lines:
        click.echo(line)


@state.command("export", context_settings=HELP_OPTIONS)
@click.argument("path")
@click.argument("operator", required=False)
@click.argument("name", metavar="[STATE]", required=False)
@click.option("-o", "--output", required=True, metavar="FILE", help="A new file.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Else by the name of the file.")
@_extra
@_keys
@_groups
@_unpickle
@definitions_option
def export(path: str, output: str, form: str | None, **options: Any) -> None:
    """Write the values of STATE of OPERATOR in the checkpoint or savepoint PATH to a file."""
    chosen = file_format(output, form)
    table, batches = _chosen(path, options)
    count = write_file(output, chosen, table.schema, batches)
    say([f"{count:,} rows of {table.name!r} are in {output!r}."])


@state.command("diff", context_settings=HELP_OPTIONS)
@click.argument("before")
@click.argument("after")
@click.argument("operator", required=False)
@click.argument("name", metavar="[STATE]", required=False)
@click.option("--examples", type=click.IntRange(min=0), default=5, help="Entries shown a state.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when anything differs.")
@_unpickle
@as_json_option
@definitions_option
def diff_command(before: str, after: str, **options: Any) -> None:
    """Tell what differs between two checkpoints or savepoints, state by state."""
    sides = [_open(path, options) for path in (before, after)]
    operator, name = options["operator"], options["name"]
    found = diff(*sides, operator=operator, state=name, examples=options["examples"])
    differing = False
    documents = []
    for result in found:
        differing |= bool(result)
        if options["as_json"]:
            documents.append(msgspec.to_builtins(result))
        elif result:
            say(_diff_lines(result))
    if options["as_json"]:
        click.echo(json.dumps(documents, indent=2))
    elif not differing:
        say(["Nothing differs."])
    if differing and options["exit_code"]:
        raise SystemExit(1)


def file_format(file: str, form: str | None) -> str:
    """Return the format of a file: the one that was asked for, or what its name says.

    Raises:
        UsageError: neither does.
    """
    found = form or file.rpartition(".")[2].lower().replace("jsonl", "json")
    if found not in FORMATS:
        msg = f"{file!r} does not say which format is wanted: give --format {'|'.join(FORMATS)}"
        raise UsageError(msg)
    return found


def _diff_lines(result: StateDiff) -> Iterator[str]:
    counts = f"{result.added:,} added, {result.removed:,} removed, {result.changed:,} changed"
    yield f"{result.operator} / {result.state} ({result.kind}): {counts}, {result.same:,} equal"
    if result.note:
        yield f"  {result.note}"
    for change in result.examples:
        if change.what == "changed":
            yield f"  ~ {change.entry}: {change.before} -> {change.after}"
        else:
            sign, value = ("+", change.after) if change.what == "added" else ("-", change.before)
            yield f"  {sign} {change.entry}: {value}"
    hidden = result.added + result.removed + result.changed - len(result.examples)
    if hidden > 0:
        yield f"  … and {hidden:,} more"


def _open(path: str, options: dict[str, Any]) -> SnapshotContents:
    refuse_job(path)
    return read_snapshot(path, storage_of(options["definitions"]), unpickle=options["unpickle"])


def _chosen(path: str, options: dict[str, Any]) -> tuple[StateTable, Iterator[Any]]:
    """Return what is to be read, and its rows."""
    contents = _open(path, options)
    table = _table(contents, options)
    groups = options["key_groups"]
    if not options["keys"]:
        return table, table.batches(None if groups is None else key_groups_from_text(groups))
    if not isinstance(table, KeyedTable) or groups is not None:
        msg = "--key is for keyed state, and not together with --key-groups"
        raise UsageError(msg)
    keys = [key_from_text(text, table.layout.key) for text in options["keys"]]
    return table, table.rows_of(keys)


def _table(contents: SnapshotContents, options: dict[str, Any]) -> StateTable:
    what, operator, name = options["what"], options["operator"], options["name"]
    if what == "sources":
        return contents.sources()
    if what == "in-flight":
        return contents.in_flight()
    if what == "operators":
        return contents.operators()
    if operator is None:
        known = {s.operator.uid or s.operator.id for s in contents.states()}
        msg = f"of which operator? There are {', '.join(sorted(known)) or 'none with state'}"
        raise UsageError(msg)
    if what == "transactions":
        return contents.transactions(operator)
    return contents.table(operator, name or _only_state(contents, operator))


def _only_state(contents: SnapshotContents, operator: str) -> str:
    record = contents.snapshot.operator(operator)
    names = [s.name for s in contents.states() if s.operator is record]
    own = [name for name in names if not name.startswith("_")]
    if len(own) != 1:
        msg = f"which state of {operator!r}? There are {', '.join(map(repr, names)) or 'none'}"
        raise UsageError(msg)
    return own[0]


def _limited(batches: Iterator[Any], limit: int | None) -> Iterator[Any]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows
