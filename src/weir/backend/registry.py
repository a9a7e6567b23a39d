"""From the name of a backend to its code, which is imported when it is first needed.

`weir.config.state_backends` lists the backends; each has a package of its name beside this module,
with a module `provider` that holds a `BackendProvider` as `PROVIDER`.

This is the only module that imports others by a string. Code below all backends has to reach them
here: restoring turns the files of one backend into what another one reads. Import statements for
that would be a cycle, and every program would need every backend's packages.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from weir.backend.base import KeyedBackend, RestoreSource
from weir.backend.changes import ChangeSource
from weir.backend.context import BackendContext
from weir.config.state_backends import state_backend
from weir.keygroup import KeyGroupRange

ExpandNative: TypeAlias = Callable[[RestoreSource, KeyGroupRange], RestoreSource]
"""Turn files that only one backend reads into what all of them read, for some key groups."""


@dataclass(frozen=True)
class BackendProvider:
    """What a backend's package offers to the rest of the code.

    Attributes:
        create: makes an empty backend, with the type of its keys, its key groups and the type of
            its namespaces; None is any type, stored pickled.
        create_tracked: makes one that can tell what changed, for a log of changes over it.
        expand_native: reads the footer entry `NATIVE_PREFIX` with the backend's name and the
            files it refers to; None for a backend whose files all backends read.
    """

    create: Callable[[BackendContext, Any, KeyGroupRange, Any], KeyedBackend]
    create_tracked: Callable[[BackendContext, Any, KeyGroupRange, Any], ChangeSource]
    expand_native: ExpandNative | None = None


def provider(name: str) -> BackendProvider:
    """Return what the backend of a name offers.

    Raises:
        UsageError: there is no backend of that name.
    """
    module = importlib.import_module(f"weir.backend.{state_backend(name).name}.provider")
    found: BackendProvider = module.PROVIDER
    return found
