"""Addresses and credentials of remote storages, apart from their URIs.

Settings that are not given fall back to the environment of the process, as each store's own
tools do. Secrets live in this object only: its text hides them, and no URI carries them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StorageOptions:
    """How remote storages are reached; travels to slots with their assignment.

    `s3_path_style` is None when nothing was chosen: then the bucket is part of the path, which
    every S3-compatible store understands.
    """

    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_access_key: str | None = field(default=None, repr=False)
    s3_secret_key: str | None = field(default=None, repr=False)
    s3_path_style: bool | None = None
    webhdfs_address: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> StorageOptions:
        """Take the options from configuration keys; others and those without value are ignored."""
        found = {name: values.get(key) for key, name in _FIELDS.items()}
        return cls(**found)


_FIELDS = {
    "s3.endpoint": "s3_endpoint",
    "s3.region": "s3_region",
    "s3.access-key": "s3_access_key",
    "s3.secret-key": "s3_secret_key",
    "s3.path.style.access": "s3_path_style",
    "weir.storage.webhdfs-address": "webhdfs_address",
}
