"""The number sequence source, at PyFlink's path."""

from weir.connector.builtin_sources import SequenceSource

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(SequenceSource):
    """The whole numbers from `start` to `end`, both included."""
