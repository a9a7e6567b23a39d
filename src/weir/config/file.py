"""The configuration file `weir-conf.yaml`: where it is, and what it says on which line.

All values are text, as the options read them: YAML's own idea of a number or of a truth (`off`)
never gets between the file and an option. Messages name the line and never quote it, because a
line may hold a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from weir.config.layer import Layer
from weir.config.option import MAP
from weir.config.options import OPTION_BY_KEY
from weir.errors import UsageError

FILE_NAME = "weir-conf.yaml"
SYSTEM_DIRECTORY = Path("/etc/weir")
_UNSET = ("", "~", "null", "Null", "NULL")


def search_path(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the directories that are searched, the first one first.

    The working directory, the user's configuration directory, the system's; WEIR_CONF_DIR replaces
    all of them.
    """
    variables = os.environ if environ is None else environ
    if variables.get("WEIR_CONF_DIR"):
        return [Path(variables["WEIR_CONF_DIR"])]
    found = [Path()]
    home = variables.get("HOME")
    if variables.get("XDG_CONFIG_HOME"):
        found.append(Path(variables["XDG_CONFIG_HOME"]) / "weir")
    elif home:
        found.append(Path(home) / ".config" / "weir")
    return [*found, SYSTEM_DIRECTORY]


def configuration_file() -> Path | None:
    """Return the configuration file that is in effect, None when there is none.

    Raises:
        UsageError: WEIR_CONF_DIR names a directory without the file.
    """
    for folder in search_path():
        path = folder / FILE_NAME
        if path.is_file():
            return path
    chosen = os.environ.get("WEIR_CONF_DIR")
    if chosen:
        msg = f"WEIR_CONF_DIR is {chosen!r}, but there is no file {FILE_NAME!r} in it"
        raise UsageError(msg)
    return None


def read_file(path: Path | None) -> Layer:
    """Read a configuration file; nested keys are joined by dots, a key without a value is unset.

    Raises:
        UsageError: the file cannot be read or is not a YAML mapping.
    """
    if path is None:
        return Layer()
    shown = f"the configuration file {str(path)!r}"
    try:
        return parse(path.read_text("utf-8"), shown)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{shown} cannot be read: {error}"
        raise UsageError(msg) from error


def parse(text: str, shown: str) -> Layer:
    """Read YAML text that messages call `shown`.

    Raises:
        UsageError: it is not a YAML mapping.
    """
    loader = yaml.BaseLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return Layer(origin=shown)
        if not isinstance(node, yaml.MappingNode):
            msg = f"{shown} holds no settings: expected lines of 'key: value'"
            raise UsageError(msg)
        reader = _Reader(loader, shown)
        reader.read(node, "")
    except yaml.YAMLError as error:
        raise UsageError(_explain(error, text, shown)) from error
    finally:
        loader.dispose()
    return Layer(reader.values, shown, places=reader.places, notes=reader.notes)


class _Reader:
    """Collects the settings of a YAML document with their lines."""

    def __init__(self, loader: yaml.BaseLoader, shown: str) -> None:
        self._loader = loader
        self._shown = shown
        self.values: dict[str, Any] = {}
        self.places: dict[str, str] = {}
        self.notes: list[str] = []

    def read(self, node: yaml.MappingNode, prefix: str) -> None:
        for key_node, value_node in node.value:
            key = prefix + str(self._construct(key_node))
            option = OPTION_BY_KEY.get(key)
            if isinstance(value_node, yaml.MappingNode) and (
                option is None or option.type is not MAP
            ):
                self.read(value_node, key + ".")
            else:
                self._keep(key, value_node, key_node.start_mark.line + 1)

    def _keep(self, key: str, node: yaml.Node, line: int) -> None:
        place = f"{self._shown}, line {line}"
        if key in self.values:
            self.notes.append(f"{place}: {key!r} is there twice, the last one counts")
            self.values.pop(key)
        self.places[key] = place
        if not (isinstance(node, yaml.ScalarNode) and not node.style and node.value in _UNSET):
            self.values[key] = self._construct(node)

    def _construct(self, node: yaml.Node) -> Any:
        return self._loader.construct_object(node, deep=True)


def _explain(error: yaml.YAMLError, text: str, shown: str) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{shown} is not valid YAML: {error}"
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    problem = getattr(error, "problem", None) or "unexpected text"
    if "\t" in line:
        problem = "there is a tab character; indent and separate with spaces"
    return f"{shown}, line {mark.line + 1}, column {mark.column + 1}: {problem}"
