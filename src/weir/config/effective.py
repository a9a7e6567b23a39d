"""Settings in effect: layers of keys and values, the strongest last.

Within a layer an option's own key is stronger than its old spellings. A key that nobody knows is
refused when it is Weir's own or nearly a known key, because a misspelt setting would silently
not apply; other unknown keys of Flink's namespaces are only worth a warning.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weir.config import backend, checkpointing
from weir.config.option import MAP, ConfigOption
from weir.config.options import ALL_OPTIONS, KNOWN_KEYS, OPTION_BY_KEY
from weir.errors import UsageError

OWNED_NAMESPACES = (
    "execution.",
    "state.",
    "restart-strategy.",
    "weir.",
    "pipeline.",
    "parallelism.",
    "s3.",
)
_TYPO = 0.9  # similarity from which an unknown key is taken for a misspelt one
_MAP_PREFIXES = tuple(option.key + "." for option in ALL_OPTIONS if option.type is MAP)


@dataclass(frozen=True)
class UnknownKey:
    """A key that nobody knows, and the known key that is nearest to it."""

    key: str
    suggestion: str | None

    def __str__(self) -> str:
        """Say what was found and what was probably meant."""
        hint = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"unknown configuration key {self.key!r}{hint}"

    @property
    def fatal(self) -> bool:
        """Whether the key is surely a mistake."""
        if self.key.startswith("weir."):
            return True
        suggestion = self.suggestion or ""
        return difflib.SequenceMatcher(None, self.key, suggestion).ratio() >= _TYPO


class Settings:
    """Typed look-up through layers of configuration."""

    def __init__(self, layers: Sequence[Mapping[str, Any]]) -> None:
        """Keep the layers, weakest first; nested mappings are flattened to dotted keys."""
        self._layers = [flatten(layer) for layer in layers]

    def get(self, option: ConfigOption) -> Any:
        """Return the typed value in effect, or the default.

        Raises:
            UsageError: the value in effect has not the form that the option expects.
        """
        found = self._find(option)
        return option.default if found is None else option.parse(found[1], found[0])

    def is_set(self, option: ConfigOption) -> bool:
        """Tell whether any layer sets the option, under any spelling."""
        return self._find(option) is not None

    def _find(self, option: ConfigOption) -> tuple[str, Any] | None:
        for layer in reversed(self._layers):
            for key in (option.key, *option.deprecated_keys):
                if layer.get(key) is not None:
                    return key, layer[key]
            if option.type is MAP:
                prefix = option.key + "."
                matches = (item for item in layer.items() if item[0].startswith(prefix))
                nested = {key.removeprefix(prefix): value for key, value in matches}
                if nested:
                    return option.key, nested
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return all keys with the values in effect, as they were given."""
        merged: dict[str, Any] = {}
        for layer in self._layers:
            merged.update(layer)
        return merged

    def unknown_keys(self) -> list[UnknownKey]:
        """Return the keys of our namespaces that nobody knows, in order."""
        return [
            UnknownKey(key, _nearest(key))
            for key in sorted(self.to_dict())
            if key.startswith(OWNED_NAMESPACES)
            and key not in KNOWN_KEYS
            and not key.startswith(_MAP_PREFIXES)
        ]

    def validate(self) -> list[str]:
        """Read every setting once and return warnings about keys without effect.

        Raises:
            UsageError: a value does not parse, or a key is surely misspelt.
        """
        for key in self.to_dict():
            if key in OPTION_BY_KEY:
                self.get(OPTION_BY_KEY[key])
        unknown = self.unknown_keys()
        for found in unknown:
            if found.fatal:
                raise UsageError(str(found))
        return [str(found) for found in unknown]

    def state_backend(self) -> str:
        """Return "hashmap" or "rocksdb", whatever spelling chose it."""
        chosen = self.get(backend.STATE_BACKEND)
        return "rocksdb" if chosen == "rocksdb" else "hashmap"

    def checkpoint_storage(self) -> str:
        """Return "jobmanager" or "filesystem": as set, or as the old backend name or path implies.

        Raises:
            UsageError: a filesystem was chosen without a directory.
        """
        directory = self.get(checkpointing.CHECKPOINT_DIR)
        chosen = self.get(checkpointing.STORAGE)
        if chosen is None:
            legacy = self.get(backend.STATE_BACKEND)
            implied = "filesystem" if directory else "jobmanager"
            chosen = legacy if legacy in ("filesystem", "jobmanager") else implied
        if chosen == "filesystem" and not directory:
            key = checkpointing.CHECKPOINT_DIR.key
            msg = f"checkpoints go to a filesystem, but no directory is set: set {key!r}"
            raise UsageError(msg)
        return str(chosen)


def _nearest(key: str) -> str | None:
    near = difflib.get_close_matches(key, sorted(KNOWN_KEYS), n=1, cutoff=0.6)
    return near[0] if near else None


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested mappings, as a YAML file has them, into dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        full = f"{prefix}{key}"
        option = OPTION_BY_KEY.get(full)
        if isinstance(value, Mapping) and (option is None or option.type is not MAP):
            flat.update(flatten(value, full + "."))
        else:
            flat[full] = value
    return flat
