"""Routes that look into completed checkpoints and savepoints of a job, through their files.

What a job has committed is read by the same code that `weir state` uses: by declared types, so
nothing is unpickled. No slot is asked, and the job does not notice.
"""

from __future__ import annotations

from typing import Any, Final

from weir.jobmanager.history import CheckpointEntry
from weir.offline.contents import SnapshotContents, read_snapshot
from weir.offline.describe import describe
from weir.offline.diff import diff
from weir.offline.export import table_rows
from weir.offline.groups import group_sizes
from weir.offline.holders import held_files
from weir.offline.keyed import KeyedTable
from weir.offline.keys import key_from_text
from weir.offline.model import Description
from weir.rest import contents_models as m
from weir.rest.cluster import Cluster
from weir.rest.page_routes import number
from weir.rest.routing import RefusedError, Request, Route

ROWS_MAX: Final = 1000
ROWS: Final = 20
HOLDERS_MAX: Final = 50
FILES_MAX: Final = 500
_TEXT_CHARS: Final = 2_000


def contents(cluster: Cluster, request: Request) -> Description:
    """Tell what is inside a checkpoint: operators, states, types, files, positions of sources."""
    return describe(_location(cluster, request), cluster.storage_options)


def key_groups(cluster: Cluster, request: Request) -> m.KeyGroups:
    """Tell how a state is spread over key groups."""
    found = group_sizes(
        _location(cluster, request),
        request.path["vertexid"],
        _required(request, "state"),
        cluster.storage_options,
    )
    return m.KeyGroups(
        max_parallelism=found.max_parallelism,
        groups=[m.KeyGroup(group, entries, size) for group, entries, size in found.groups],
        changes=found.changes,
    )


def rows(cluster: Cluster, request: Request) -> m.ContentRows:
    """Tell the first rows of a state, or those of a key."""
    limit = number(request, "limit", ROWS, low=1, high=ROWS_MAX)
    table = _open(cluster, request).table(request.path["vertexid"], _required(request, "state"))
    key = request.query.get("key")
    if key is None:
        batches = table.batches()
    elif isinstance(table, KeyedTable):
        batches = table.rows_of([key_from_text(key, table.layout.key)])
    else:
        raise RefusedError(400, f"State {table.name!r} has no keys: it is {table.kind}.")
    shown, more = table_rows(batches, limit)
    texts = [[_short(cell) for cell in row] for row in shown]
    return m.ContentRows(table.kind, columns=list(table.schema.names), rows=texts, more=more)


def differences(cluster: Cluster, request: Request) -> m.Differences:
    """Tell what differs between two checkpoints of a job."""
    sides = []
    for name in ("from", "to"):
        wanted = number(request, name, -1)
        sides.append(read_snapshot(_path(cluster, request, wanted), cluster.storage_options))
    return m.Differences(
        [
            m.StateDifference(
                operator=found.operator,
                state=found.state,
                kind=found.kind,
                added=found.added,
                removed=found.removed,
                changed=found.changed,
                same=found.same,
                note=found.note,
                examples=[
                    m.Change(x.what, _short(x.entry), before=x.before, after=x.after)
                    for x in found.examples
                ],
            )
            for found in diff(*sides)
        ]
    )


def files(cluster: Cluster, request: Request) -> m.HeldFiles:
    """Tell which kept checkpoints hold which file: one that many hold is part of a chain."""
    kept = {
        entry.checkpoint_id: entry.path
        for entry in cluster.history(request.path["jobid"]).entries
        if entry.status == "COMPLETED" and entry.path is not None and not entry.discarded
    }
    read = dict(list(kept.items())[:HOLDERS_MAX])
    found, problems = held_files(read, cluster.storage_options)
    return m.HeldFiles(
        checkpoints=list(read),
        left_out=len(kept) - len(read),
        files=[m.HeldFile(file.path, file.bytes, list(file.holders)) for file in found[:FILES_MAX]],
        more=max(0, len(found) - FILES_MAX),
        bytes=sum(file.bytes for file in found),
        shared_bytes=sum(file.bytes for file in found if len(file.holders) > 1),
        problems=problems,
    )


def _open(cluster: Cluster, request: Request) -> SnapshotContents:
    return read_snapshot(_location(cluster, request), cluster.storage_options)


def _location(cluster: Cluster, request: Request) -> str:
    return _path(cluster, request, int(request.path["checkpointid"]))


def _path(cluster: Cluster, request: Request, wanted: int) -> str:
    entry: CheckpointEntry | None
    entry = cluster.history(request.path["jobid"]).find(wanted)
    if entry is None:
        raise RefusedError(404, f"Checkpoint {wanted} is not known, or not remembered any more.")
    if entry.status != "COMPLETED" or entry.path is None:
        raise RefusedError(409, f"Checkpoint {wanted} is {entry.status}: it has no state to show.")
    if entry.discarded:
        why = "somebody disposed it" if entry.is_savepoint else "a newer one replaced it"
        raise RefusedError(409, f"Checkpoint {wanted} has been deleted: {why}.")
    return entry.path


def _required(request: Request, name: str) -> str:
    value = request.query.get(name)
    if not value:
        raise RefusedError(400, f"{name!r} has to be given.")
    return value


def _short(cell: Any) -> str:
    text = cell if isinstance(cell, str) else str(cell)
    return text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}…"


_CHECKPOINTS: Final = "/jobs/:jobid/checkpoints"
_CONTENTS: Final = f"{_CHECKPOINTS}/details/:checkpointid/contents"
_STATE: Final = {"state": "Name of the state."}

ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", _CONTENTS, contents, "What is inside a checkpoint.", response=Description),
    Route(
        "GET",
        f"{_CONTENTS}/:vertexid/key-groups",
        key_groups,
        "How a state is spread over key groups.",
        response=m.KeyGroups,
        query=_STATE,
    ),
    Route(
        "GET",
        f"{_CONTENTS}/:vertexid/rows",
        rows,
        "The first rows of a state, or those of a key.",
        response=m.ContentRows,
        query={
            **_STATE,
            "key": "Only this key: its text, or JSON where keys are no texts.",
            "limit": f"At most so many rows; {ROWS} by default.",
        },
    ),
    Route(
        "GET",
        f"{_CHECKPOINTS}/files",
        files,
        f"Which of the newest {HOLDERS_MAX} kept checkpoints hold which file.",
        response=m.HeldFiles,
    ),
    Route(
        "GET",
        f"{_CHECKPOINTS}/diff",
        differences,
        "What differs between two checkpoints.",
        response=m.Differences,
        query={"from": "Id of the first checkpoint.", "to": "Id of the second one."},
    ),
)
