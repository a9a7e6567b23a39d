"""Configuration: options as data, and the settings in effect."""

from weir.config.effective import Settings, UnknownKey, flatten
from weir.config.option import ConfigOption
from weir.config.options import ALL_OPTIONS, KNOWN_KEYS, OPTION_BY_KEY

__all__ = [
    "ALL_OPTIONS",
    "KNOWN_KEYS",
    "OPTION_BY_KEY",
    "ConfigOption",
    "Settings",
    "UnknownKey",
    "flatten",
]
