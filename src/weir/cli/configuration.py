"""Settings on the command line: `-D key=value` and the short options that stand for keys."""

from __future__ import annotations

from collections.abc import Iterable

from weir.config import checkpointing, execution
from weir.config.effective import Settings
from weir.errors import UsageError


def parse_definitions(definitions: Iterable[str]) -> dict[str, str]:
    """Read `key=value` texts; a later one replaces an earlier one of the same key.

    Raises:
        UsageError: there is no key, or no equals sign.
    """
    found = {}
    for text in definitions:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            msg = f"-D {text!r} is not a setting: write -D key=value"
            raise UsageError(msg)
        found[key.strip()] = value.strip()
    return found


def overrides(
    definitions: Iterable[str],
    *,
    parallelism: int | None = None,
    restore_from: str | None = None,
    allow_non_restored: bool = False,
    claim_mode: str | None = None,
    **python: str | None,
) -> dict[str, str]:
    """Return the settings of the command line, checked; short options win over `-D`.

    Raises:
        UsageError: a setting does not parse, or its key is misspelt.
    """
    values = parse_definitions(definitions)
    if parallelism is not None:
        values[execution.PARALLELISM.key] = str(parallelism)
    if restore_from is not None:
        values[checkpointing.RECOVERY_PATH.key] = restore_from
    if allow_non_restored:
        values[checkpointing.IGNORE_UNCLAIMED_STATE.key] = "true"
    if claim_mode is not None:
        values[checkpointing.CLAIM_MODE.key] = claim_mode.upper()
    for name, value in python.items():
        if value is not None:
            values[f"python.{name.removeprefix('python_')}"] = value
    Settings([values]).validate()
    return values
