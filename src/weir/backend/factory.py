"""From settings to a keyed backend: the door for everybody who uses one."""

from __future__ import annotations

from typing import Any

from weir.backend.base import KeyedBackend
from weir.backend.changelog.backend import ChangelogBackend, ChangelogPlace
from weir.backend.changelog.settings import ChangelogSettings
from weir.backend.changes import ChangeSource
from weir.backend.context import BackendContext, BackendSettings, BackgroundExecutor, NoSharedFiles
from weir.backend.registry import check_backend, provider
from weir.keygroup import KeyGroupRange

__all__ = [
    "BackendContext",
    "BackendSettings",
    "BackgroundExecutor",
    "NoSharedFiles",
    "create_backend",
    "with_changelog",
]


def create_backend(
    context: BackendContext, key_type: Any, key_groups: KeyGroupRange, namespace_type: Any = None
) -> KeyedBackend:
    """Create the empty keyed backend that the settings name.

    Keys and namespaces of no declared type are stored pickled.

    Raises:
        UsageError: there is no backend of that name, or what it needs is not installed.
    """
    made = provider(context.settings.kind)
    check_backend(context.settings.kind, context.settings.changelog)
    if context.settings.changelog and made.create_tracked is not None:
        return with_changelog(
            made.create_tracked(context, key_type, key_groups, namespace_type), context
        )
    return made.create(context, key_type, key_groups, namespace_type)


def with_changelog(inner: ChangeSource, context: BackendContext) -> ChangelogBackend:
    """Log the changes of a backend that can tell what changed."""
    settings = ChangelogSettings.of(context.settings.options)
    place = ChangelogPlace(context.shared, context.clock, settings, context.operator)
    return ChangelogBackend(inner, place, context.background)
