"""The last look at settings before they leave the process.

Jobs hide secrets in what they show; this catches those of a job that did not.
"""

from __future__ import annotations

from collections.abc import Mapping

from weir.config.effective import HIDDEN
from weir.config.option import is_secret


def hidden(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings in order of their keys, with secrets hidden."""
    return {key: HIDDEN if is_secret(key) else settings[key] for key in sorted(settings)}
