"""A real notebook in a real kernel: what its cells show of programs that run and of one that fails.

One notebook does it all: its kernel starts a Spark of its own.
"""

from __future__ import annotations

import re

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
CELLS = {
    "environment": """
from weir.common import Types
from weir.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
words = env.from_collection(["to", "be", "or", "to"], Types.STRING()).name("Words")
pairs = words.map(lambda word: (word, 1), Types.TUPLE([Types.STRING(), Types.LONG()]))
counts = pairs.key_by(lambda pair: pair[0]).sum(1).name("Counts").uid("counts")
counts.print()
env
""",
    "stream": "counts",
    "run": "env.execute('words')",
    "fail": """
def reciprocal(n):
    return 1 / n

env.from_collection([2, 0]).map(reciprocal).name("Reciprocal").print()
env.execute('fails')
""",
    "refused": """
env.from_collection([1]).key_by(lambda n: n).map(str).uid("same").print()
env.from_collection([1]).key_by(lambda n: n).map(str).uid("same").print()
env.execute('refused')
""",
}
CLEAN = """
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
"""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The outputs of every cell."""
    folder = tmp_path_factory.mktemp("notebook")
    sources = {
        name: CLEAN + text if name in ("fail", "refused") else text for name, text in CELLS.items()
    }
    notebook = new_notebook(cells=[new_code_cell(text.strip()) for text in sources.values()])
    path = folder / "first.ipynb"
    nbformat.write(notebook, path)
    read = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(read, timeout=120, allow_errors=True, resources=resources)
    client.execute()
    return dict(zip(sources, [cell.outputs for cell in read.cells], strict=True))


def texts(outputs, name="stdout"):
    """Return what was written to a stream."""
    return "".join(o.text for o in outputs if o.output_type == "stream" and o.name == name)


def html(outputs):
    return [o.data["text/html"] for o in outputs if "text/html" in o.get("data", {})]


def lines(outputs):
    """Return the displays that are plain text: the live line is one of them, in its last state."""
    displays = [o for o in outputs if o.output_type == "display_data"]
    return [o.data["text/plain"] for o in displays if "text/html" not in o.data]


def test_an_environment_and_a_stream_show_themselves(shown):
    (environment,) = html(shown["environment"])
    assert "Words" in environment
    assert "<td>counts</td>" in environment
    (stream,) = html(shown["stream"])
    assert "Counts" in stream


def test_a_job_prints_its_records_and_has_one_line_that_tells_how_it_is(shown):
    assert texts(shown["run"]).splitlines() == ["(to,1)", "(be,1)", "(or,1)", "(to,2)"]
    (line,) = lines(shown["run"])
    assert re.fullmatch(r"job [0-9a-f]{32}: FINISHED, epoch \d+, 4 records, \d+ checkpoints", line)


@pytest.mark.parametrize("name", CELLS)
def test_nothing_else_is_shown(shown, name):
    """Neither a warning of Spark's Java nor a line of a log stands between the outputs."""
    assert texts(shown[name], "stderr") == ""
    if name != "run":
        assert texts(shown[name]) == ""


def test_a_function_that_fails_shows_its_record_and_its_own_trace(shown):
    (error,) = [o for o in shown["fail"] if o.output_type == "error"]
    said = _COLOUR.sub("", "\n".join(error.traceback))
    assert "operator 'Reciprocal'" in said
    assert "ZeroDivisionError: division by zero" in said
    assert "in reciprocal" in said
    assert "env.execute('fails')" in said
    for engine in ("py4j", "site-packages", "src/weir", "org.apache.spark"):
        assert engine not in said
    assert len(said.splitlines()) <= 20
    (line,) = lines(shown["fail"])
    assert "FAILED" in line


def test_a_program_that_is_refused_shows_the_line_of_the_cell_and_the_reason(shown):
    (error,) = [o for o in shown["refused"] if o.output_type == "error"]
    said = _COLOUR.sub("", "\n".join(error.traceback)).splitlines()
    assert len(said) <= 4
    assert "uid 'same'" in said[-1]
    assert any("env.execute('refused')" in line for line in said)
