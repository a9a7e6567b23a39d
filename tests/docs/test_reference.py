"""The configuration reference says what the code says; so do the format pages about versions."""

import ast
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.docs import command_page, configuration_page, moving_page, pictures, timelines
from tests.docs.blocks import ROOT
from tests.docs.configuration_page import IN_USE, render

from weir import snapshot
from weir.checkpoint import metadata
from weir.config import ALL_OPTIONS, ConfigOption, security
from weir.config import backend as b
from weir.config import checkpointing as c
from weir.config import execution as e
from weir.config import queryable as q
from weir.config import rest as r
from weir.config import storage as s

WALK = ROOT / "docs" / "internals" / "walk.md"
FORMATS = ROOT / "docs" / "internals" / "formats.md"


def test_the_page_is_what_the_options_say() -> None:
    page = configuration_page.PAGE.read_text("utf-8")
    assert page == render(), "run: make docs"


def test_the_command_page_is_what_help_says() -> None:
    page = command_page.PAGE.read_text("utf-8")
    assert page == command_page.render(), "run: make docs"


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_shows_what_its_program_does(name: str) -> None:
    text = (pictures.FOLDER / f"{name}.svg").read_text("utf-8")
    assert text == timelines.render(pictures.PICTURES[name]()), "run: make docs"
    root = ElementTree.fromstring(text)
    assert root.attrib["aria-label"]
    assert "prefers-color-scheme: dark" in text


def test_every_picture_is_on_a_page() -> None:
    assert {path.stem for path in pictures.FOLDER.glob("*.svg")} == set(pictures.PICTURES)
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md"))
    shown = set(re.findall(r"\]\(\.\./pictures/([\w-]+)\.svg\)", pages))
    assert shown == set(pictures.PICTURES)


def test_spans_that_overlap_are_drawn_in_rows() -> None:
    spans = tuple(timelines.Span(start, start + 6) for start in (0, 2, 6, 8))
    rows = timelines.rows_of(timelines.Lane("", spans))
    assert [[span.start for span in row] for row in rows] == [[0, 6], [2, 8]]


def test_the_guide_on_moving_programs_shows_what_the_check_knows() -> None:
    page = moving_page.PAGE.read_text("utf-8")
    assert page == moving_page.render(page), "run: make docs"


def test_every_key_and_every_old_spelling_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
    keys = [key for option in ALL_OPTIONS for key in (option.key, *option.deprecated_keys)]
    assert [key for key in keys if f"`{key}`" not in page] == []


# Checked against the interval, as Flink does, and of no use otherwise.
ONLY_CHECKED = {c.INTERVAL_DURING_BACKLOG.key}


def options_read(path: Path) -> set[str]:
    """Return the keys of the options that a module names, as attribute or as imported name."""
    modules = {"b": b, "c": c, "e": e, "s": s, "r": r, "security": security, "q": q}
    tree = ast.parse(path.read_text("utf-8"))
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if str(node.module).startswith("weir.config.")
    }
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = {
        name: option
        for module in modules.values()
        for name, option in vars(module).items()
        if isinstance(option, ConfigOption)
    }
    return {found[name].key for name in names if name in found}


def test_what_a_job_reads_is_marked_as_in_use() -> None:
    read = options_read(ROOT / "src" / "weir" / "jobmanager" / "settings.py")
    assert read - IN_USE == ONLY_CHECKED


def test_what_is_marked_as_in_use_is_read_somewhere() -> None:
    """Backends get all of their options by key; the test below is about those."""
    doors = {"checkpoint_config.py", "_configured_program.py"}
    read = {option.key for option in vars(b).values() if isinstance(option, ConfigOption)}
    read |= options_read(ROOT / "src" / "weir" / "config" / "effective.py")
    for path in (ROOT / "src" / "weir").rglob("*.py"):
        if path.name not in doors and "config" not in path.relative_to(ROOT).parts:
            read |= options_read(path)
    assert IN_USE - read == set()


def test_the_format_page_names_the_versions_and_magic_numbers_of_the_code() -> None:
    page = FORMATS.read_text("utf-8")
    assert f"## The snapshot data file, version {snapshot.VERSION}" in page
    assert f"## `_metadata`, version {metadata.FORMAT_VERSION}" in page
    assert snapshot.MAGIC.decode() in page


def test_what_backends_read_is_marked_as_in_use() -> None:
    """Options reach backends by key, so the code that names an option is where it takes effect."""
    code = "".join(
        path.read_text("utf-8")
        for folder in ("backend", "runtime", "state")
        for path in (ROOT / "src" / "weir" / folder).rglob("*.py")
    )
    options = {
        name: option
        for module in (b, c)
        for name, option in vars(module).items()
        if name.startswith(("ROCKSDB_", "CHANGELOG_", "FILE_MERGING"))
    }
    named = {o.key for name, o in options.items() if re.search(rf"\b{name}\b", code)}
    assert named == {o.key for o in options.values()} & IN_USE


def _defined() -> set[str]:
    """Every function, class, method and field of a class in the package, as `Class.method`."""
    names: set[str] = set()
    for path in (ROOT / "src" / "weir").rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                names.add(node.name)
            if isinstance(node, ast.ClassDef):
                inner = [n for n in node.body if isinstance(n, ast.FunctionDef)]
                names |= {f"{node.name}.{n.name}" for n in inner}
    return names


def test_the_walk_names_files_classes_and_functions_that_exist() -> None:
    words = set(re.findall(r"`([^`\n]+)`", WALK.read_text("utf-8")))
    files = {word for word in words if word.endswith(".py")}
    code = {w for w in words - files if re.fullmatch(r"[A-Z]\w+(\.\w+)?|\w+_\w+", w)}
    assert {f for f in files if not (ROOT / "src" / "weir" / f).exists()} == set()
    assert code - _defined() == set()
    assert len(files) > 20
    assert len(code) > 80
