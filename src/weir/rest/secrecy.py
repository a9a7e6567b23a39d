"""Which settings are secret by their name, as in Flink, and what is shown in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "******"
_MARKS: Final = (
    "password",
    "secret",
    "fs.azure.account.key",
    "apikey",
    "api-key",
    "auth-params",
    "service-key",
    "token",
    "basic-auth",
    "jaas.config",
    "http-headers",
    "access-key",
    "access.key",
    "accesskey",
)


def hidden(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings in order of their keys, with secrets hidden."""
    return {key: HIDDEN if is_secret(key) else settings[key] for key in sorted(settings)}


def is_secret(key: str) -> bool:
    """Tell whether the value of a key must not be shown."""
    return any(mark in key.lower() for mark in _MARKS)
