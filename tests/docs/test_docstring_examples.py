"""Every public class shows how it is used, and the example runs, without Spark."""

from __future__ import annotations

import doctest
import inspect
import textwrap
from pathlib import Path

import pytest
from tests.docs.example_namespace import namespace, public_classes

from weir.state_processor import Savepoint, SavepointReader, WindowSavepointReader

MARK = "\nExample:\n"
LINES_MAX = 17
READ_BY_SPARK = {Savepoint, SavepointReader, WindowSavepointReader}


def example(cls: type) -> str:
    """Return the code of a class's example, empty when it has none."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "")
    code = textwrap.dedent(text.partition(MARK)[2])
    typed = doctest.DocTestParser().get_examples(code)
    return "".join(each.source for each in typed) or code


def test_every_public_class_has_an_example() -> None:
    assert [cls.__qualname__ for cls in public_classes() if not example(cls)] == []


def test_examples_are_short() -> None:
    long = [c.__qualname__ for c in public_classes() if example(c).count("\n") >= LINES_MAX]
    assert long == []


def test_examples_name_their_class_or_what_makes_it() -> None:
    """A name of the class, or a call that returns one, stands in nearly every example."""
    named = [cls for cls in public_classes() if cls.__name__ in example(cls)]
    assert len(named) > 0.8 * len(public_classes())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("cls", public_classes(), ids=lambda cls: cls.__qualname__)
def test_an_example_runs(cls: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = compile(example(cls), f"<example of {cls.__qualname__}>", "exec")
    if cls not in READ_BY_SPARK:
        exec(code, namespace())
