"""One place that settings come from, with the name that messages call it by.

A layer is a dict of dotted keys. It knows where each of them was written, so that a message about
a value tells where to change it, and carries what its reader wants to say (`notes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PROGRAM = "the program"
COMMAND_LINE = "the command line"
SPARK = "Spark's configuration"


class Layer(dict[str, Any]):
    """Settings of one place; equal to a plain dict with the same entries."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        origin: str = "",
        *,
        places: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """Keep values; `places` says more exactly than `origin` where some of them are."""
        super().__init__(values or {})
        self.origin = origin
        self.places = dict(places or {})
        self.notes = tuple(notes)

    def where(self, key: str) -> str:
        """Return where a key was set, as text; empty when nobody knows."""
        return self.places.get(key, self.origin)
