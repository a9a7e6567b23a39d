"""Checkpoints and savepoints without a running job: what there is, and what is inside.

Descriptions come from metadata and footers, which are plain data. Values are decoded by their
declared types, and what was pickled stays a pickle, so that looking at state never runs code of the
program that wrote it, unless that is allowed.
"""

from weir.offline.contents import SnapshotContents, read_snapshot
from weir.offline.describe import describe
from weir.offline.editing import SavepointEdit
from weir.offline.listing import list_snapshots
from weir.offline.model import Description, Summary

__all__ = [
    "Description",
    "SavepointEdit",
    "SnapshotContents",
    "Summary",
    "describe",
    "list_snapshots",
    "read_snapshot",
]
