"""`TypeSerializer`: values to bytes and back, as custom window assigners name them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO, Generic, TypeVar

from weir.common._absent import INTERNAL, absent

__all__ = ["TypeSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes a value to a stream of bytes and reads it again.

    Example:
        class Mine(MergingWindowAssigner):
            def get_window_serializer(self) -> TypeSerializer:
                return TimeWindowSerializer()
    """

    @abstractmethod
    def serialize(self, element: T, stream: BinaryIO) -> None:
        """Write a value."""

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> T:
        """Read a value."""


__getattr__ = absent(__name__, {"VoidNamespaceSerializer": INTERNAL})
