"""The configuration file `weir-conf.yaml`: where it is, and what it says on which line.

Where there is none, Flink's own files are read, `config.yaml` or the older `flink-conf.yaml`, and a
note says so.

All values are text, as the options read them: YAML's own idea of a number or of a truth (`off`)
never gets between the file and an option. Messages name the line and never quote it, because a
line may hold a secret.

Whatever the file holds, reading it ends soon, with settings or a `UsageError` that names the line:
its size and nesting are bounded, aliases, which could make gigabytes of a few lines, are not taken,
and no key counts twice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from weir.config.layer import Layer
from weir.config.option import MAP
from weir.config.options import OPTION_BY_KEY
from weir.errors import UsageError

FILE_NAME = "weir-conf.yaml"
FLINK_FILE = "config.yaml"
OLDER_FLINK_FILE = "flink-conf.yaml"
SYSTEM_DIRECTORY = Path("/etc/weir")
SIZE_MAX: Final = 128 * 1024
DEPTH_MAX: Final = 32
_TOO_DEEP: Final = f"it is nested deeper than {DEPTH_MAX} levels"
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
    found = _file_of_flink()
    chosen = os.environ.get("WEIR_CONF_DIR")
    if chosen and found is None:
        msg = f"WEIR_CONF_DIR is {chosen!r}, but there is no file {FILE_NAME!r} in it"
        raise UsageError(msg)
    return found


def _file_of_flink() -> Path | None:
    """Return Flink's configuration file, in the same directories or in FLINK_CONF_DIR."""
    folders = search_path()
    if os.environ.get("FLINK_CONF_DIR") and not os.environ.get("WEIR_CONF_DIR"):
        folders = [Path(os.environ["FLINK_CONF_DIR"]), *folders]
    for folder in folders:
        if (folder / FLINK_FILE).is_file() and (folder != Path() or _speaks_flink(FLINK_FILE)):
            return folder / FLINK_FILE
        if (folder / OLDER_FLINK_FILE).is_file():
            return folder / OLDER_FLINK_FILE
    return None


def _speaks_flink(name: str) -> bool:
    """Tell whether a `config.yaml` of the working directory, where it may be anybody's, is Flink's.

    It is when one of its keys is known. What cannot be read as settings is somebody else's.
    """
    try:
        return any(key in OPTION_BY_KEY for key in _read(Path(name)))
    except UsageError:
        return False


def read_file(path: Path | None) -> Layer:
    """Read a configuration file; nested keys are joined by dots, a key without a value is unset.

    Raises:
        UsageError: the file cannot be read or is not a YAML mapping.
    """
    if path is None:
        return Layer()
    layer = _read(path)
    if path.name != FILE_NAME:
        note = f"settings are read from Flink's file {str(path)!r}, there is no {FILE_NAME}"
        return Layer(layer, layer.origin, places=layer.places, notes=(note, *layer.notes))
    return layer


def _read(path: Path) -> Layer:
    shown = f"the configuration file {str(path)!r}"
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_MAX + 1)
    except OSError as error:
        msg = f"{shown} cannot be read: {error}"
        raise UsageError(msg) from error
    _refuse_large(len(data), shown)
    try:
        text = data.decode("utf-8-sig")
        return parse_lines(text, shown) if path.name == OLDER_FLINK_FILE else parse(text, shown)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        msg = f"{shown}, line {line}: cannot be read, it is not UTF-8 text ({error.reason})"
        raise UsageError(msg) from error


def parse(text: str, shown: str) -> Layer:
    """Read YAML text that messages call `shown`.

    Raises:
        UsageError: it is not a YAML mapping, is too large or nested too deeply, has aliases, or a
            key is there twice.
    """
    _refuse_large(len(text), shown)
    try:
        node = _composed(text)
    except yaml.YAMLError as error:
        raise UsageError(_explain(error, text, shown)) from error
    except (ValueError, OverflowError) as error:
        # Numbers in directives and escapes that are none to Python.
        msg = f"{shown} is not valid YAML: {error}"
        raise UsageError(msg) from error
    if node is None:
        return Layer(origin=shown)
    if not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1
        msg = f"{shown}, line {line}: there are no settings: expected lines of 'key: value'"
        raise UsageError(msg)
    reader = _Reader(shown)
    reader.read(node, "")
    return Layer(reader.values, shown, places=reader.places)


def parse_lines(text: str, shown: str) -> Layer:
    """Read lines of `key: value`, as Flink does before 2.0: the last one of a key counts.

    What stands behind `#` is a comment. Lines that are none are passed over, with a note, and so is
    what a later line says again.
    """
    values, places, notes, first = {}, {}, [], dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.partition("#")[0].strip()
        key, colon, value = plain.partition(": ")
        if plain and not (colon and key.strip() and value.strip()):
            notes.append(f"{shown}, line {number}: passed over, expected 'key: value'")
        elif plain:
            place, key = f"{shown}, line {number}", key.strip()
            if key in first:
                notes.append(f"{place}: {_twice(key, first[key])}; this one counts")
            values[key], places[key], first[key] = value.strip(), place, number
    return Layer(values, shown, places=places, notes=notes)


def _refuse_large(size: int, shown: str) -> None:
    if size > SIZE_MAX:
        limit = f"at most {SIZE_MAX} bytes are read: leave out what is not a setting"
        msg = f"{shown} is too large: {limit}"
        raise UsageError(msg)


def _composed(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


class _Loader(yaml.BaseLoader):  # type: ignore[misc]
    """Composes a document without aliases, up to a depth; no key is twice in one mapping."""

    _depth = 0

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        # The scanner's work for each bracket grows with the number of those that are open.
        if self.flow_level == DEPTH_MAX:
            _refuse(_TOO_DEEP, self.get_mark())
        super().fetch_flow_collection_start(token)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            _refuse("aliases (*name) are not taken, write the value itself", event.start_mark)
        if self._depth == DEPTH_MAX:
            _refuse(_TOO_DEEP, event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in node.value):
            _refuse("there is an escape that stands for no character", node.start_mark)
        return node

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                _refuse("a key has to be plain text", key.start_mark)
            if key.value in first:
                _refuse(_twice(key.value, first[key.value]), key.start_mark)
            first[key.value] = key.start_mark.line + 1
        return node


def _refuse(problem: str, mark: yaml.Mark) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _twice(key: str, line: int) -> str:
    return f"{key!r} is there twice, line {line} has it first: keep one of them"


class _Reader:
    """Collects the settings of a YAML document with their lines."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._lines: dict[str, int] = {}
        self.values: dict[str, Any] = {}
        self.places: dict[str, str] = {}

    def read(self, node: yaml.MappingNode, prefix: str) -> None:
        for key_node, value_node in node.value:
            key = prefix + key_node.value
            option = OPTION_BY_KEY.get(key)
            if isinstance(value_node, yaml.MappingNode) and (
                option is None or option.type is not MAP
            ):
                self.read(value_node, key + ".")
            else:
                self._keep(key, value_node, key_node.start_mark.line + 1)

    def _keep(self, key: str, node: yaml.Node, line: int) -> None:
        place = self.places[key] = f"{self._shown}, line {line}"
        if key in self._lines:
            msg = f"{place}: {_twice(key, self._lines[key])}"
            raise UsageError(msg)
        self._lines[key] = line
        if not (isinstance(node, yaml.ScalarNode) and not node.style and node.value in _UNSET):
            self.values[key] = _value(node)


def _value(node: yaml.Node) -> Any:
    """Return the text of a node, or lists and dicts of texts."""
    if isinstance(node, yaml.MappingNode):
        return {key.value: _value(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_value(value) for value in node.value]
    return node.value


def _explain(error: yaml.YAMLError, text: str, shown: str) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        number = text.count("\n", 0, error.position) + 1
        found = f"the character U+{ord(text[error.position]):04X}, which no text file has"
        return f"{shown}, line {number}: there is {found}"
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{shown} is not valid YAML: {error}"
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    problem = getattr(error, "problem", None) or "unexpected text"
    if "\t" in line:
        problem = "there is a tab character; indent and separate with spaces"
    return f"{shown}, line {mark.line + 1}, column {mark.column + 1}: {problem}"
