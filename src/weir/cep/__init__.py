"""Complex event processing: patterns over streams, with the words of Flink's Pattern API.

`CEP.pattern(stream, pattern)` finds the matches of a `Pattern` in a stream; in a keyed one, for
every key. Flink has this for Java alone; the names here are Java's in Python's spelling.
"""

from __future__ import annotations

from weir.cep._conditions import IterativeCondition, SimpleCondition
from weir.cep._functions import (
    PatternFlatSelectFunction,
    PatternFlatTimeoutFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternTimeoutFunction,
    TimedOutPartialMatchHandler,
)
from weir.cep._pattern import Pattern, WithinType
from weir.cep._skip import AfterMatchSkipStrategy
from weir.cep._stream import CEP, EventComparator, PatternStream

__all__ = [
    "CEP",
    "AfterMatchSkipStrategy",
    "EventComparator",
    "IterativeCondition",
    "Pattern",
    "PatternFlatSelectFunction",
    "PatternFlatTimeoutFunction",
    "PatternProcessFunction",
    "PatternSelectFunction",
    "PatternStream",
    "PatternTimeoutFunction",
    "SimpleCondition",
    "TimedOutPartialMatchHandler",
    "WithinType",
]
