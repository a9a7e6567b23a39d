"""Durable bytes under relative paths: one small protocol, opened by URI."""

from weir.storage.base import AlreadyExistsError, MissingFileError, Storage, check_path
from weir.storage.local import LocalStorage
from weir.storage.memory import MemoryStorage
from weir.storage.uri import open_storage

__all__ = [
    "AlreadyExistsError",
    "LocalStorage",
    "MemoryStorage",
    "MissingFileError",
    "Storage",
    "check_path",
    "open_storage",
]
