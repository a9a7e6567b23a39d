"""Settings from environment variables.

`WEIR_PROPERTIES` holds lines of `key: value`. A single setting is `WEIR_` and its key in capitals
with `_` for dots and dashes; for Weir's own keys the first `WEIR_` is enough. Single settings are
stronger than the lines. A variable that looks like a setting and is none is worth a warning,
because it would silently not apply.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from weir.config import file
from weir.config.layer import Layer
from weir.config.options import KNOWN_KEYS, OPTION_BY_KEY

PREFIX: Final = "WEIR_"
PROPERTIES: Final = "WEIR_PROPERTIES"
NO_SETTINGS: Final = frozenset(
    {
        PROPERTIES,
        "WEIR_CONF_DIR",
        "WEIR_FAILPOINTS",
        "WEIR_JOBMANAGER",
        "WEIR_RUN_DIR",
        "WEIR_SLOT_PYTHON",
        "WEIR_SLOT_TOKEN",
        "WEIR_SPARK_LOG",
        "WEIR_TOKEN",
        "WEIR_WEBHDFS_ADDRESS",
    }
)
_NEAR = 0.8  # similarity from which an unknown variable is taken for a misspelt setting


def variable_of(key: str) -> str:
    """Return the environment variable of a key."""
    return PREFIX + re.sub("[.-]", "_", key.removeprefix("weir.")).upper()


def _names() -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for key in KNOWN_KEYS:
        for name in (variable_of(key), PREFIX + re.sub("[.-]", "_", key).upper()):
            names.setdefault(name, set()).add(key)
    return names


_KEYS_BY_NAME = _names()
_NAMESPACES = tuple(
    {PREFIX + key.split(".")[0].replace("-", "_").upper() + "_" for key in KNOWN_KEYS}
)


def environment_layer(
    environ: Mapping[str, str] | None = None, names: Mapping[str, set[str]] = _KEYS_BY_NAME
) -> Layer:
    """Return the settings in environment variables, of this process unless others are given.

    `names` are the keys that a variable may mean; one that may mean several options is ignored.

    Raises:
        UsageError: WEIR_PROPERTIES is not lines of `key: value`.
    """
    variables = os.environ if environ is None else environ
    shown = f"the environment variable {PROPERTIES}"
    lines = file.parse(variables.get(PROPERTIES, ""), shown)
    values, places, notes = dict(lines), dict(lines.places), list(lines.notes)
    for name in sorted(variables):
        if not name.startswith(PREFIX) or name in NO_SETTINGS:
            continue
        keys = names.get(name, set())
        options = {OPTION_BY_KEY[key].key for key in keys}
        if len(options) == 1:
            (current,) = options
            key = current if current in keys else min(keys)
            for spelling in (current, *OPTION_BY_KEY[current].deprecated_keys):
                values.pop(spelling, None)
            values[key] = variables[name]
            places[key] = f"the environment variable {name}"
        elif options:
            found = " or ".join(map(repr, sorted(options)))
            notes.append(
                f"the environment variable {name} is ignored: it may mean {found}; "
                f"say which in {PROPERTIES}"
            )
        else:
            notes += _doubts(name)
    return Layer(values, "the environment", places=places, notes=notes)


@lru_cache
def _doubts(name: str) -> tuple[str, ...]:
    """Return what is to be said about a variable that is no setting; asked for every job."""
    near = difflib.get_close_matches(name, sorted(_KEYS_BY_NAME), n=1, cutoff=0.6)
    close = bool(near) and difflib.SequenceMatcher(None, name, near[0]).ratio() >= _NEAR
    if not close and not name.startswith(_NAMESPACES):
        return ()
    hint = f"; did you mean {near[0]}?" if near else ""
    return (f"the environment variable {name} is ignored: it names no setting{hint}",)
