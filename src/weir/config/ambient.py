"""Settings from outside the program, as layers, the weakest first.

The configuration file is for everybody, Spark's configuration for the cluster or the submission,
the environment for the process, the command line for this one run: who is nearer to the run
decides. The program is stronger than all of them and not part of this module. The command line
speaks through `set_overrides`, in the process that runs the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weir.config.environment import environment_layer
from weir.config.file import FILE_NAME, configuration_file, read_file
from weir.config.layer import COMMAND_LINE, PROGRAM, SPARK, Layer
from weir.config.options import KNOWN_KEYS

__all__ = [
    "FILE_NAME",
    "configuration_file",
    "layers",
    "program_layer",
    "read_file",
    "set_overrides",
    "spark_layer",
]

SPARK_PREFIX = "spark.weir."
_overrides: dict[str, Any] = {}


def set_overrides(values: Mapping[str, Any]) -> None:
    """Replace the settings of the command line."""
    _overrides.clear()
    _overrides.update(values)


def layers(spark_conf: Mapping[str, str] | None = None) -> list[Layer]:
    """Return the settings from outside, weakest first: file, Spark, environment, command line.

    Raises:
        UsageError: the file or WEIR_PROPERTIES cannot be read.
    """
    return [
        read_file(configuration_file()),
        spark_layer(spark_conf or {}),
        environment_layer(),
        Layer(_overrides, COMMAND_LINE),
    ]


def program_layer(values: Mapping[str, Any]) -> Layer:
    """Return the settings that the program made itself."""
    return Layer(values, PROGRAM)


def spark_layer(conf: Mapping[str, str]) -> Layer:
    """Return the settings in a Spark configuration: `spark.weir.KEY`; `weir.` may be left out."""
    values, places = {}, {}
    for name, value in conf.items():
        if name.startswith(SPARK_PREFIX):
            key = name.removeprefix(SPARK_PREFIX)
            own = f"weir.{key}"
            key = own if key not in KNOWN_KEYS and own in KNOWN_KEYS else key
            values[key], places[key] = value, f"{SPARK} ({name})"
    return Layer(values, SPARK, places=places)
