"""Refuses state on local disks that another user could have written: it is going to be unpickled.

A setting lets users trust it. Storages that are elsewhere decide themselves who may write, and are
not looked at.
"""

from __future__ import annotations

from weir.checkpoint.paths import metadata_path, resolve
from weir.config.execution import FOREIGN_FILES
from weir.errors import UsageError
from weir.jobmanager.recovery import RestorePoint
from weir.jobmanager.settings import JobSettings
from weir.storage.base import Storage
from weir.storage.local import LocalStorage
from weir.storage.trust import first_foreign
from weir.storage.uri import open_storage

_REMEDY = (
    "If it is all right, make it yours (chown, chmod go-w, or a copy), or set "
    f"{FOREIGN_FILES.key} to 'trust'"
)


def refuse_foreign(point: RestorePoint, settings: JobSettings) -> None:
    """Refuse to restore what another user could have written, or can still exchange.

    Files that copies stand in for are not read, and not looked at.

    Raises:
        UsageError: another user has a hand in it.
    """
    if settings.trust_foreign_files:
        return
    storage = open_storage(point.storage_uri, settings.storage)
    if not isinstance(storage, LocalStorage):
        return
    read = [f.path for f in point.metadata.files if f.data is None and f.path not in point.damaged]
    files = [resolve(point.directory, path) for path in read]
    found = first_foreign(storage.root, [metadata_path(point.directory), *files])
    if found is not None:
        msg = (
            f"{point.metadata.kind} {point.metadata.checkpoint_id} in {point.directory!r} is not "
            f"restored: {found}, and state is unpickled, which would run code of whoever wrote it. "
            f"{_REMEDY}"
        )
        raise UsageError(msg)


def foreign_directory(kind: str, storage: Storage | None, settings: JobSettings) -> str | None:
    """Say why nothing could be restored from a directory that a job is to write to, if so."""
    if settings.trust_foreign_files or not isinstance(storage, LocalStorage):
        return None
    found = first_foreign(storage.root, [])
    if found is None:
        return None
    return (
        f"nothing can be restored from the {kind} directory {storage.root!r}: {found}, and what "
        f"jobs read from it is unpickled, which would run code of whoever wrote it. {_REMEDY}"
    )


def refuse_foreign_directory(kind: str, storage: Storage | None, settings: JobSettings) -> None:
    """Refuse a directory from which a job could not restore what it is going to write there.

    Raises:
        UsageError: another user has a hand in it.
    """
    problem = foreign_directory(kind, storage, settings)
    if problem is not None:
        raise UsageError(problem)
