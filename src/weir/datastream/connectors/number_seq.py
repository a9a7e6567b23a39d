"""The number sequence source, at PyFlink's path."""

from weir.connector.builtin_sources import SequenceSource

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(SequenceSource):
    """The whole numbers from `start` to `end`, both included.

    Example:
        env.from_source(NumberSequenceSource(1, 9), WatermarkStrategy.no_watermarks(), "numbers")
    """
