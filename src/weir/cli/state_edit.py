"""`weir state import` and `edit`: new savepoints made of others, without a job."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from weir.cli.errors import HELP_OPTIONS
from weir.cli.state import definitions_option, refuse_job, say, storage_of
from weir.cli.state_text import place
from weir.cli.state_values import file_format, state
from weir.clock import SystemClock
from weir.errors import UsageError
from weir.offline.changes import delete_key, rename_state, set_value, whole_table
from weir.offline.contents import SnapshotContents
from weir.offline.edit_parts import GivenRows
from weir.offline.editing import SavepointEdit
from weir.offline.export import FORMATS, read_file
from weir.offline.opened import open_snapshot

__all__ = ["state"]

_to = click.option("--to", "target", required=True, metavar="DIR", help="A new directory.")
_drop = click.option(
    "--drop-in-flight", is_flag=True, help="Drop rows in flight of an unaligned checkpoint."
)
_unpickle = click.option(
    "--unpickle", is_flag=True, help="Load pickled values, which runs code of who wrote them."
)


@state.command("import", context_settings=HELP_OPTIONS)
@click.argument("path")
@click.argument("operator")
@click.argument("name", metavar="STATE")
@click.argument("file")
@_to
@click.option("--format", "form", type=click.Choice(FORMATS), help="Else by the name of the file.")
@_drop
@_unpickle
@definitions_option
def import_command(path: str, operator: str, name: str, file: str, **options: Any) -> None:
    """Write a savepoint like PATH, with the keyed STATE of OPERATOR replaced by rows of FILE.

    FILE has the columns that 'weir state export' writes; key_group may be missing or wrong, it is
    computed from the key. PATH is only read.
    """
    contents, edit = _opened(path, options)
    table = contents.keyed_state(operator, name)
    form = file_format(file, options["form"])
    rows = GivenRows(read_file(file, form, table.schema))
    edit.with_keyed_state(operator, name, None, rows)
    _write(edit, options)


@state.command("edit", context_settings=HELP_OPTIONS)
@click.argument("path")
@_to
@click.option("--set", "values", nargs=4, multiple=True, metavar="OPERATOR STATE KEY VALUE")
@click.option("--delete", "deleted", nargs=3, multiple=True, metavar="OPERATOR STATE KEY")
@click.option("--rename-state", "renamed", nargs=3, multiple=True, metavar="OPERATOR OLD NEW")
@click.option("--remove-state", "removed", nargs=2, multiple=True, metavar="OPERATOR STATE")
@click.option("--rename-operator", "uids", nargs=2, multiple=True, metavar="OLD NEW")
@click.option("--remove-operator", "operators", multiple=True, metavar="OPERATOR")
@click.option("--max-parallelism", "widths", nargs=2, multiple=True, metavar="OPERATOR NUMBER")
@click.option(
    "--drop-transactions",
    "transactions",
    nargs=2,
    multiple=True,
    metavar="OPERATOR CHECKPOINT",
    help="What a sink had prepared for CHECKPOINT is never committed; 'all' for every one.",
)
@click.option("--position", "positions", nargs=2, multiple=True, metavar="SOURCE OFFSET")
@_drop
@_unpickle
@definitions_option
def edit_command(path: str, **options: Any) -> None:
    """Write a savepoint like PATH, with some things changed; PATH is only read.

    KEY and VALUE are JSON, or plain text where the type is text. All options may be repeated.
    """
    contents, edit = _opened(path, options)
    _change_values(contents, edit, options)
    changed = {(o, n) for o, n, *_ in (*options["values"], *options["deleted"])}
    for operator, before, after in options["renamed"]:
        if (operator, before) in changed:
            msg = f"state {before!r} cannot be changed and renamed at once: do one after the other"
            raise UsageError(msg)
        rename_state(edit, contents, operator, before=before, after=after)
    for operator, name in options["removed"]:
        edit.remove_state(operator, name)
    for source, offset in options["positions"]:
        number = next((r[3] for r in contents.sources().rows if r[0] == source), None)
        counted = number is not None
        if counted and not offset.isdecimal():
            msg = f"the position of source {source!r} is a number of records, not {offset!r}"
            raise UsageError(msg)
        edit.with_source_position(
            source, None if counted else offset, int(offset) if counted else None
        )
    for operator, number in options["widths"]:
        if not number.isdecimal():
            msg = f"the max parallelism of operator {operator!r} is {number!r}, expected a number"
            raise UsageError(msg)
        edit.with_max_parallelism(operator, int(number))
    _drop_transactions(edit, contents, options["transactions"])
    for before, after in options["uids"]:
        edit.change_operator_identifier(before, after)
    for operator in options["operators"]:
        edit.remove_operator(operator)
    _write(edit, options)


def _drop_transactions(
    edit: SavepointEdit, contents: SnapshotContents, asked: tuple[tuple[str, str], ...]
) -> None:
    """Drop what sinks had prepared, by checkpoint."""
    dropped: dict[str, set[str]] = {}
    for operator, checkpoint in asked:
        known = {str(number) for _, number, _ in contents.transactions(operator).rows}
        if checkpoint != "all" and checkpoint not in known:
            found = ", ".join(sorted(known)) or "none"
            msg = (
                f"operator {operator!r} prepared nothing for checkpoint {checkpoint!r}: there are "
                f"transactions for {found}"
            )
            raise UsageError(msg)
        dropped.setdefault(operator, set()).add(checkpoint)
    for operator, names in dropped.items():
        edit.filter_transactions(operator, partial(_is_kept, names))


def _is_kept(dropped: set[str], checkpoint: int, transaction: str) -> bool:
    return not {"all", str(checkpoint)} & dropped


def _change_values(
    contents: SnapshotContents, edit: SavepointEdit, options: dict[str, Any]
) -> None:
    tables: dict[tuple[str, str], Any] = {}
    now = SystemClock().now_ms()
    wanted = [(o, n, k, None) for o, n, k in options["deleted"]] + list(options["values"])
    for operator, name, key, value in wanted:
        table = contents.keyed_state(operator, name)
        rows = tables.get((operator, name))
        if rows is None:
            rows = whole_table(table)
        if value is None:
            left = delete_key(table, rows, key)
            if left.num_rows == rows.num_rows:
                msg = f"state {name!r} of operator {operator!r} has no key {key!r}"
                raise UsageError(msg)
            tables[operator, name] = left
        else:
            tables[operator, name] = set_value(table, rows, key, value, now_ms=now)
    for (operator, name), rows in tables.items():
        edit.with_keyed_state(operator, name, None, GivenRows(rows.to_batches()))


def _opened(path: str, options: dict[str, Any]) -> tuple[SnapshotContents, SavepointEdit]:
    refuse_job(path)
    storage = storage_of(options["definitions"])
    opened = open_snapshot(path, storage)
    contents = SnapshotContents(opened, options["unpickle"], as_text=False)
    return contents, SavepointEdit.of(contents, drop_in_flight=options["drop_in_flight"])


def _write(edit: SavepointEdit, options: dict[str, Any]) -> None:
    written = edit.write(options["target"], storage_of(options["definitions"]))
    say([f"The savepoint is {place(written)}"])
