"""Settings from outside the program: the configuration file and the command line.

The file is `weir-conf.yaml` in the directory that WEIR_CONF_DIR names, else in the working
directory. The command line speaks through `set_overrides`, in the process that runs the program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from weir.config.effective import flatten
from weir.config.options import KNOWN_KEYS
from weir.errors import UsageError

FILE_NAME = "weir-conf.yaml"
SPARK_PREFIX = "spark.weir."
_overrides: dict[str, Any] = {}


def set_overrides(values: Mapping[str, Any]) -> None:
    """Replace the settings of the command line."""
    _overrides.clear()
    _overrides.update(values)


def layers() -> list[dict[str, Any]]:
    """Return the settings from outside, weakest first: file, then command line.

    Raises:
        UsageError: the file cannot be read.
    """
    return [read_file(configuration_file()), dict(_overrides)]


def configuration_file() -> Path | None:
    """Return the configuration file that is in effect, None when there is none.

    Raises:
        UsageError: WEIR_CONF_DIR names a directory without the file.
    """
    folder = os.environ.get("WEIR_CONF_DIR")
    path = Path(folder or ".") / FILE_NAME
    if path.is_file():
        return path
    if folder:
        msg = f"WEIR_CONF_DIR is {folder!r}, but there is no file {FILE_NAME!r} in it"
        raise UsageError(msg)
    return None


def read_file(path: Path | None) -> dict[str, Any]:
    """Read a configuration file; nested keys are joined by dots.

    Raises:
        UsageError: the file is not a YAML mapping.
    """
    if path is None:
        return {}
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        msg = f"the configuration file {str(path)!r} cannot be read: {error}"
        raise UsageError(msg) from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        msg = (
            f"the configuration file {str(path)!r} holds a {type(found).__name__}, "
            "expected lines of 'key: value'"
        )
        raise UsageError(msg)
    return flatten(found)


def spark_layer(conf: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in a Spark configuration: `spark.weir.KEY`; `weir.` may be left out."""
    layer = {}
    for name, value in conf.items():
        if name.startswith(SPARK_PREFIX):
            key = name.removeprefix(SPARK_PREFIX)
            own = f"weir.{key}"
            layer[own if key not in KNOWN_KEYS and own in KNOWN_KEYS else key] = value
    return layer
