"""The configuration reference says what the code says; so do the format pages about versions."""

import ast
import re

from tests.docs import command_page
from tests.docs.blocks import ROOT
from tests.docs.configuration_page import IN_USE, WARNED, render

from weir import snapshot
from weir.checkpoint import metadata
from weir.config import ALL_OPTIONS
from weir.config import backend as b
from weir.config import checkpointing as c
from weir.config import execution as e

FORMATS = ROOT / "docs" / "internals" / "formats.md"


def test_the_page_is_what_the_options_say() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
    assert page == render(), "run: python tests/docs/configuration_page.py"


def test_the_command_page_is_what_help_says() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text("utf-8")
    assert page == command_page.render(), "run: python tests/docs/command_page.py"


def test_every_key_and_every_old_spelling_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
    keys = [key for option in ALL_OPTIONS for key in (option.key, *option.deprecated_keys)]
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_what_a_job_reads_is_marked_as_in_use() -> None:
    tree = ast.parse((ROOT / "src" / "weir" / "jobmanager" / "settings.py").read_text("utf-8"))
    modules = {"b": b, "c": c, "e": e}
    read = {
        getattr(modules[node.value.id], node.attr).key
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
    }
    assert read - IN_USE == WARNED


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
