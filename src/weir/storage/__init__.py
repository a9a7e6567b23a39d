"""Durable bytes under relative paths: one small protocol, opened by URI."""

from weir.storage.base import AlreadyExistsError, MissingFileError, Storage, check_path
from weir.storage.local import LocalStorage
from weir.storage.memory import MemoryStorage
from weir.storage.objectstore import ObjectStorage
from weir.storage.options import StorageOptions
from weir.storage.uri import open_storage
from weir.storage.webhdfs import WebHdfsStorage

__all__ = [
    "AlreadyExistsError",
    "LocalStorage",
    "MemoryStorage",
    "MissingFileError",
    "ObjectStorage",
    "Storage",
    "StorageOptions",
    "WebHdfsStorage",
    "check_path",
    "open_storage",
]
