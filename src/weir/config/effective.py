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
from weir.config.flink_keys import is_flinks
from weir.config.layer import Layer
from weir.config.option import MAP, ConfigOption, is_secret
from weir.config.options import ALL_OPTIONS, KNOWN_KEYS, OPTION_BY_KEY
from weir.config.state_backends import note_on, state_backend
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
HIDDEN = "******"
_TYPO = 0.9  # similarity from which an unknown key is taken for a misspelt one
_MAP_PREFIXES = tuple(option.key + "." for option in ALL_OPTIONS if option.type is MAP)


@dataclass(frozen=True)
class UnknownKey:
    """A key that nobody knows, the known key that is nearest to it, and where it was set."""

    key: str
    suggestion: str | None
    where: str = ""

    def __str__(self) -> str:
        """Say what was found and what was probably meant."""
        hint = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        place = f" in {self.where}" if self.where else ""
        return f"unknown configuration key {self.key!r}{place}{hint}"

    @property
    def is_ours(self) -> bool:
        """Whether the key is in a namespace whose keys Weir reads."""
        return self.key.startswith(OWNED_NAMESPACES)

    @property
    def is_near(self) -> bool:
        """Whether a known key is spelt almost like this."""
        suggestion = self.suggestion or ""
        return difflib.SequenceMatcher(None, self.key, suggestion).ratio() >= _TYPO

    @property
    def fatal(self) -> bool:
        """Whether the key is surely a mistake."""
        return self.key.startswith("weir.") or (self.is_ours and self.is_near)


class Settings:
    """Typed look-up through layers of configuration."""

    def __init__(self, layers: Sequence[Mapping[str, Any]]) -> None:
        """Keep the layers, weakest first; nested mappings are flattened to dotted keys."""
        self._layers = [_as_layer(layer) for layer in layers]

    def get(self, option: ConfigOption) -> Any:
        """Return the typed value in effect, or the default.

        Raises:
            UsageError: the value in effect has not the form that the option expects.
        """
        found = self._find(option)
        if found is None:
            return option.default
        layer, key, value = found
        return option.parse(value, key, layer.where(key))

    def is_set(self, option: ConfigOption) -> bool:
        """Tell whether any layer sets the option, under any spelling."""
        return self._find(option) is not None

    def where(self, option: ConfigOption) -> str:
        """Return where the value in effect was set; empty for a default."""
        found = self._find(option)
        return "" if found is None else found[0].where(found[1])

    def _find(self, option: ConfigOption) -> tuple[Layer, str, Any] | None:
        for layer in reversed(self._layers):
            for key in (option.key, *option.deprecated_keys):
                if layer.get(key) is not None:
                    return layer, key, layer[key]
            if option.type is MAP:
                prefix = option.key + "."
                matches = (item for item in layer.items() if item[0].startswith(prefix))
                nested = {key.removeprefix(prefix): value for key, value in matches}
                if nested:
                    return layer, option.key, nested
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return all keys with the values in effect, as they were given."""
        merged: dict[str, Any] = {}
        for layer in self._layers:
            merged.update(layer)
        return merged

    def shown(self) -> dict[str, str]:
        """Return the settings in effect as text for people, by current key; secrets are hidden."""
        found = {}
        for key, value in self.to_dict().items():
            option = OPTION_BY_KEY.get(key)
            hit = None if option is None else self._find(option)
            name = key if option is None else option.key
            found[name] = _shown(name, value if hit is None else hit[2], option)
        return dict(sorted(found.items()))

    def origins(self) -> dict[str, str]:
        """Return where each of the settings that `shown` tells was set, by current key."""
        found = {}
        for key in self.to_dict():
            option = OPTION_BY_KEY.get(key)
            found[key if option is None else option.key] = (
                self._where(key) if option is None else self.where(option)
            )
        return dict(sorted(found.items()))

    def unknown_keys(self) -> list[UnknownKey]:
        """Return the keys that nobody knows and that are ours or nearly a known key, in order."""
        unknown = [
            UnknownKey(key, _nearest(key), self._where(key))
            for key in sorted(self.to_dict())
            if not is_known(key) and not is_flinks(key)
        ]
        return [found for found in unknown if found.is_ours or found.is_near]

    def _where(self, key: str) -> str:
        return next((layer.where(key) for layer in reversed(self._layers) if key in layer), "")

    def validate(self) -> list[str]:
        """Read every setting once and return what people should know about them.

        That is what the layers themselves have to say, keys that nobody knows, and spellings of
        one option that contradict each other in one place.

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
        notes = [note for layer in self._layers for note in layer.notes]
        chosen = self._find(backend.STATE_BACKEND)
        if chosen is not None and (note := note_on(chosen[2])):
            notes.append(f"{chosen[1]}: {note}")
        disagreements = [text for layer in self._layers for text in _disagreements(layer)]
        return notes + disagreements + [str(found) for found in unknown]

    def state_backend(self) -> str:
        """Return the name of the state backend, whatever spelling chose it."""
        return state_backend(self.get(backend.STATE_BACKEND)).name

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


def is_known(key: str) -> bool:
    """Tell whether a key is an option of Weir, by any of its spellings, or an entry of one."""
    return key in KNOWN_KEYS or key.startswith(_MAP_PREFIXES)


def _shown(key: str, value: Any, option: ConfigOption | None) -> str:
    if is_secret(key):
        return HIDDEN
    if option is None or option.type is not MAP:
        return str(value)
    entries = option.parse(value, key)
    return ",".join(f"{k}:{HIDDEN if is_secret(k) else v}" for k, v in entries.items())


def _as_layer(layer: Mapping[str, Any]) -> Layer:
    if isinstance(layer, Layer):
        return Layer(flatten(layer), layer.origin, places=layer.places, notes=layer.notes)
    return Layer(flatten(layer))


def _disagreements(layer: Layer) -> list[str]:
    """Return warnings about options that a layer sets to different values by two spellings."""
    found = []
    for option in ALL_OPTIONS:
        spellings = [
            key for key in (option.key, *option.deprecated_keys) if layer.get(key) is not None
        ]
        winner = spellings[0] if spellings else ""
        for other in spellings[1:]:
            if str(layer[other]) != str(layer[winner]):
                where = layer.where(other)
                place = f" ({where})" if where else ""
                found.append(f"{winner!r} counts, not its old spelling {other!r}{place}")
    return found


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
