"""The choices of `StateTtlConfig`, which shows them under PyFlink's names."""

from __future__ import annotations

import enum


class UpdateType(enum.Enum):
    """What starts the life of an entry anew."""

    Disabled = 0
    """Nothing: entries do not expire."""
    OnCreateAndWrite = 1
    """Creating and writing it."""
    OnReadAndWrite = 2
    """Creating, writing and reading it."""


class StateVisibility(enum.Enum):
    """What a read of an expired entry gives; in any case the entry is removed by it."""

    ReturnExpiredIfNotCleanedUp = 0
    """The entry, if it was still there."""
    NeverReturnExpired = 1
    """Nothing."""


class TtlTimeCharacteristic(enum.Enum):
    """The time that counts."""

    ProcessingTime = 0
    """The wall clock."""
    EventTime = 1
    """The operator's watermark. Weir's own: Flink has processing time only."""
