"""Checkpoints and savepoints without a running job: what there is, and what is inside.

Nothing here decodes a value: descriptions come from metadata and footers, which are plain data, so
looking at state never runs code of the program that wrote it.
"""

from weir.offline.describe import describe
from weir.offline.listing import list_snapshots
from weir.offline.model import Description, Summary

__all__ = ["Description", "Summary", "describe", "list_snapshots"]
