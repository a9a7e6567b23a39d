"""From the name of a backend to its code, which is imported when it is first needed.

`weir.config.state_backends` lists the backends; each has a package of its name beside this module,
with a module `provider` that holds a `BackendProvider` as `PROVIDER`. A backend of the user's own
is named by the path of its provider, or by an entry point. Only the settings of a job may name a
path: what a file says decides among backends that are known already, and imports nothing.

This is the only module that imports others by a string. Code below all backends has to reach them
here: restoring turns the files of one backend into what another one reads. Import statements for
that would be a cycle, and every program would need every backend's packages.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, TypeAlias

from weir.backend.base import KeyedBackend, RestoreSource
from weir.backend.changes import ChangeSource
from weir.backend.context import BackendContext
from weir.config.state_backends import GROUP, STATE_BACKENDS, entry_point, state_backend
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange

ExpandNative: TypeAlias = Callable[
    [RestoreSource, KeyGroupRange, Container[str] | None], RestoreSource
]
"""Turn files that only one backend reads into what all of them read, for some key groups.

Where names of states are given, the others are not looked at.
"""


@dataclass(frozen=True)
class BackendProvider:
    """What a backend's package offers to the rest of the code.

    Attributes:
        create: makes an empty backend, with the type of its keys, its key groups and the type of
            its namespaces; None is any type, stored pickled.
        create_tracked: makes one that can tell what changed, for a log of changes over it; None
            for a backend that cannot, with which the changelog is refused.
        expand_native: reads the footer entry `NATIVE_PREFIX` with the backend's name and the
            files it refers to; None for a backend whose files all backends read.
        expand_plain: the same without running code: what was pickled is loaded as plain data, and
            refused with a UsageError where it is more; None if such files cannot be read so.
    """

    create: Callable[[BackendContext, Any, KeyGroupRange, Any], KeyedBackend]
    create_tracked: Callable[[BackendContext, Any, KeyGroupRange, Any], ChangeSource] | None = None
    expand_native: ExpandNative | None = None
    expand_plain: ExpandNative | None = None


_own: dict[str, BackendProvider] = {}


def provider(name: str) -> BackendProvider:
    """Return what the backend of a name, or of a path, offers.

    Raises:
        UsageError: there is no backend of that name, or nothing at that path that makes one.
    """
    facts = state_backend(name)
    if facts in STATE_BACKENDS:
        module = importlib.import_module(f"weir.backend.{facts.name}.provider")
        found: BackendProvider = module.PROVIDER
        return found
    if name not in _own:
        _own[name] = _provider_of(name, _load(name))
    return _own[name]


def known_provider(name: str) -> BackendProvider | None:
    """Return what the backend of a name offers, without importing what nobody installed or chose.

    For names that come from files: they may mean Weir's backends, installed entry points, and
    paths that the settings of this process have named.

    Raises:
        UsageError: an entry point offers no backend.
    """
    if any(facts.name == name for facts in STATE_BACKENDS) or entry_point(name):
        return provider(name)
    return _own.get(name)


def check_backend(name: str, changelog: bool) -> None:
    """See that a backend of the user's own is there and does what is asked of it.

    Raises:
        UsageError: it is not, or cannot.
    """
    if state_backend(name) in STATE_BACKENDS:
        return
    if provider(name).create_tracked is None and changelog:
        msg = (
            f"the state backend {name!r} cannot tell what changed, which state.changelog.enabled "
            "needs: switch that off, or give its BackendProvider a create_tracked"
        )
        raise UsageError(msg)


def _load(name: str) -> Any:
    installed = entry_point(name)
    module, _, attribute = name.rpartition(":" if ":" in name else ".")
    try:
        if installed is not None:
            return installed.load()
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        source = f"the entry point {name!r} of {GROUP}" if installed else f"state backend {name!r}"
        msg = (
            f"{source} cannot be imported: {error}. Expected the path of a "
            "weir.backend.registry.BackendProvider such as 'package.module:NAME', importable on "
            "the driver and on every host with slots"
        )
        raise UsageError(msg) from error


def _provider_of(name: str, found: Any) -> BackendProvider:
    """Return a provider: what was found, or what it makes when it is called."""
    made = found() if callable(found) else found
    if isinstance(made, BackendProvider):
        return made
    msg = (
        f"state backend {name!r} is {made!r}, expected a weir.backend.registry.BackendProvider, or "
        "a function or class that returns one"
    )
    raise UsageError(msg)
