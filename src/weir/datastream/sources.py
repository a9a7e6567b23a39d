"""The source values under the door's own path."""

from __future__ import annotations

from weir.graph.sources import (
    CollectionSource,
    DataFrameSource,
    FunctionSource,
    SequenceSource,
    TextFileSource,
)

__all__ = [
    "CollectionSource",
    "DataFrameSource",
    "FunctionSource",
    "SequenceSource",
    "TextFileSource",
]
