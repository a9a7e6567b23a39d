"""The house rules as tests: sizes, import direction, forbidden calls, Markdown, portable text.

Every rule yields findings such as ``src/weir/x.py:12: ...``; a test shows all of them at once.
The exceptions are the tables below; a new entry needs a reason beside it.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A package may import itself and the rows below its own, not its neighbours in the same row.
LAYERS = (
    ("cli", "web"),
    ("demo",),
    ("datastream",),
    ("offline", "query", "spark"),
    ("rest",),
    ("jobmanager",),
    ("slot",),
    ("runtime",),
    ("checkpoint", "connector", "state"),
    ("backend",),
    ("snapshot", "storage"),
    ("graph",),
    ("codec",),
    ("config",),
    ("common",),
    ("keygroup",),
    ("clock", "failpoint", "ids"),
    ("errors",),
)
# The package's own door and the shipped test tools may import anything; nobody imports the latter.
UNLAYERED = {"__init__", "__main__", "testing"}

# Third-party packages that are kept in one room.
HOMES = {
    "pyspark": {"spark", "testing"},
    "py4j": {"spark", "testing"},
    "click": {"cli"},
    "rich": {"cli"},
    "rocksdict": {"backend"},
}

# Time, chance and output are injected. Names of builtins count when they are called.
FORBIDDEN = {
    "print",
    "hash",
    "time.sleep",
    "time.time",
    "time.time_ns",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "random",
    "numpy.random",
}
MAY_USE = {
    "src/weir/clock.py": {"time.time_ns"},  # the one home of the wall clock
}

# Files whose broad handlers may swallow. Elsewhere such a handler has to end by raising.
# All of these stand between user code or another process and something that has to go on.
MAY_CATCH_EVERYTHING = {
    "src/weir/jobmanager/background.py",
    "src/weir/jobmanager/master.py",
    "src/weir/rest/handler.py",
    "src/weir/runtime/subtask.py",
    "src/weir/slot/interlude.py",
    "src/weir/slot/main.py",
    "src/weir/slot/service.py",
    "src/weir/spark/direct.py",
    "src/weir/spark/function_source.py",
    "src/weir/spark/job.py",
    "src/weir/spark/session.py",
}

# "file.py:Class.method" of long parameter lists that PyFlink's signature dictates.
PYFLINK_SIGNATURES: set[str] = set()

LINES_MAX = {"src": 500, "tests": 700}
FUNCTION_LINES_MAX = 50
PARAMETERS_MAX = 6

TEXT = {".py", ".md", ".toml", ".sh", ".lock", ".yaml", ".yml", ".html", ".js", ".css", ".txt"}
FOLDERS = ("src", "tests", "docs", "scripts", "examples", "benchmarks", ".ci")
GENERATED = {".venvs", ".data"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
PRIVATE_PATH = re.compile(r"(?<![\w.~/-])/(home|root|work|Users)/\w")
REGISTRY = re.compile(
    r"\b(pypi\.org|pythonhosted\.org|repo1?\.maven|npmjs\.(org|com)|anaconda\.org)"
)


@dataclass(frozen=True)
class Source:
    """One file with its path relative to the root."""

    path: str
    text: str

    @property
    def package(self) -> str:
        """The first name below ``weir``: a package or a module."""
        return self.path.split("/")[2].removesuffix(".py")

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def at(self, node: ast.AST | int, message: str) -> str:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.path}:{line}: {message}"


def read(paths: Iterator[Path]) -> list[Source]:
    return [Source(p.relative_to(ROOT).as_posix(), p.read_text("utf-8")) for p in sorted(paths)]


def python(folder: str) -> list[Source]:
    return read(p for p in (ROOT / folder).rglob("*.py") if p.is_file())


def texts() -> list[Source]:
    folders = [ROOT / name for name in FOLDERS]
    # The benchmarks keep other people's packages and their input in hidden folders.
    own = [p for folder in folders for p in folder.glob("*") if p.name not in GENERATED]
    inside = (p for top in own for p in ([top] if top.is_file() else top.rglob("*")))
    found = [p for p in [*ROOT.iterdir(), *inside] if p.is_file() and p != Path(__file__)]
    named = {ROOT / "Makefile", ROOT / ".ci" / "run"}
    return read(p for p in found if p.suffix in TEXT or p in named)


def markdown() -> list[Source]:
    return [s for s in texts() if s.path.endswith(".md")]


# ---- rules on Python ---------------------------------------------------------------------------


def functions(source: Source) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield prefix + child.name, child
            named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            yield from walk(child, f"{prefix}{child.name}." if named else prefix)

    yield from walk(source.tree, "")


def sizes(source: Source) -> Iterator[str]:
    limit, count = LINES_MAX[source.path.split("/")[0]], len(source.text.splitlines())
    if count > limit:
        yield source.at(1, f"{count} lines, at most {limit}")
    for name, node in functions(source):
        length = node.end_lineno - node.lineno + 1
        if ast.get_docstring(node) is not None:
            length -= node.body[0].end_lineno - node.body[0].lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield source.at(node, f"{name} has {length} lines, at most {FUNCTION_LINES_MAX}")


def parameters(source: Source) -> Iterator[str]:
    for name, node in functions(source):
        a = node.args
        names = [p.arg for p in [*a.posonlyargs, *a.args, *a.kwonlyargs]]
        names += [p.arg for p in (a.vararg, a.kwarg) if p]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > PARAMETERS_MAX and f"{source.path}:{name}" not in PYFLINK_SIGNATURES:
            yield source.at(node, f"{name} has {count} parameters, at most {PARAMETERS_MAX}")
        for default in [*a.defaults, *filter(None, a.kw_defaults)]:
            call = isinstance(default, ast.Call) and isinstance(default.func, ast.Name)
            if isinstance(default, (ast.List, ast.Dict, ast.Set)) or (
                call and default.func.id in {"list", "dict", "set", "bytearray"}
            ):
                yield source.at(default, f"{name} has a mutable default")


def docstrings(source: Source) -> Iterator[str]:
    if not ast.get_docstring(source.tree):
        yield source.at(1, "no module docstring")


def imports(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    package = source.path.removeprefix("src/").split("/")[:-1]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            if module == "weir":
                yield from ((node, f"weir.{alias.name}") for alias in node.names)
            else:
                yield node, module


def direction(source: Source) -> Iterator[str]:
    row = {name: i for i, names in enumerate(LAYERS) for name in names}
    here = source.package
    if here not in row and here not in UNLAYERED:
        yield source.at(1, f"{here!r} has no place in LAYERS")
        return
    for node, module in imports(source):
        top, _, rest = module.partition(".")
        if top in HOMES and here not in HOMES[top]:
            yield source.at(node, f"{top} belongs to {sorted(HOMES[top])}")
        there = rest.split(".")[0]
        if top != "weir" or there in ("", here) or here == "testing":
            continue
        if there == "testing" or (here in row and row.get(there, -1) <= row[here]):
            yield source.at(node, f"{here} may not import {there}")


def forbidden(source: Source) -> Iterator[str]:
    tree, allowed = source.tree, MAY_USE.get(source.path, set())
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {a.asname or a.name.split(".")[0]: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    in_dunder = {
        id(n)
        for f in ast.walk(tree)
        if isinstance(f, ast.FunctionDef) and f.name == "__hash__"
        for n in ast.walk(f)
    }

    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            # Inside __hash__ the salted hash is what the language asks for.
            names = [] if id(node) in in_dunder else [known.get(node.func.id, node.func.id)]
        elif isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            names = [f"{known.get(first, first)}.{rest}"]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [str(node.module), *(f"{node.module}.{a.name}" for a in node.names)]
        for name in FORBIDDEN.intersection(names) - allowed:
            yield source.at(node, f"uses {name}")


def broad_handlers(source: Source) -> Iterator[str]:
    if source.path in MAY_CATCH_EVERYTHING:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            broad = any(
                k is None or ast.unparse(k) in {"Exception", "BaseException"} for k in kinds
            )
            if broad and not isinstance(node.body[-1], ast.Raise):
                yield source.at(node, "catches everything and does not raise")


@pytest.mark.parametrize(
    "rule", [sizes, parameters, docstrings, direction, forbidden, broad_handlers]
)
def test_the_package_keeps_the_rule(rule: Callable[[Source], Iterator[str]]) -> None:
    assert [finding for source in python("src/weir") for finding in rule(source)] == []


def test_test_files_stay_within_their_size() -> None:
    long = [s for s in python("tests") if len(s.text.splitlines()) > LINES_MAX["tests"]]
    assert [s.path for s in long] == []


# ---- rules on text -----------------------------------------------------------------------------


def prose(source: Source) -> str:
    """Return Markdown without its fenced blocks, whose lines are kept empty."""
    kept, fenced = [], False
    for line in source.text.splitlines():
        fence = line.lstrip().startswith(("```", "~~~"))
        fenced ^= fence
        kept.append("" if fenced or fence else line)
    return "\n".join(kept)


def dead_references(source: Source) -> Iterator[str]:
    """Links, and paths in backticks that begin with one of the project's folders."""
    text, folder = prose(source), (ROOT / source.path).parent
    for number, line in enumerate(text.splitlines(), 1):
        for target in re.findall(r"\]\(<?([^)\s>]+)", line):
            path = target.partition("#")[0]
            if path and not re.match(r"[a-z][a-z+.-]*:", path) and not (folder / path).exists():
                yield source.at(number, f"link to {target} leads nowhere")
        for path in re.findall(rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*)`", line):
            if not (ROOT / path).exists():
                yield source.at(number, f"{path} does not exist")


def test_every_markdown_file_has_one_title_and_live_references() -> None:
    found = []
    for source in markdown():
        titles = re.findall(r"^# ", prose(source), re.MULTILINE)
        found += [] if len(titles) == 1 else [f"{source.path}: {len(titles)} titles, expected one"]
        found += dead_references(source)
    assert found == []


@pytest.mark.parametrize("pattern", [UNFINISHED, PRIVATE_PATH, REGISTRY], ids=lambda p: p.pattern)
def test_no_file_holds_unfinished_work_private_paths_or_hosts(
    pattern: re.Pattern[str],
) -> None:
    lines = [(s, i, x) for s in texts() for i, x in enumerate(s.text.splitlines(), 1)]
    assert [s.at(i, x.strip()) for s, i, x in lines if pattern.search(x)] == []


# ---- the rules themselves ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (sizes, "state/x.py", "pass\n" * 501),
        (sizes, "state/x.py", "def f():\n" + "    pass\n" * 50),
        (parameters, "state/x.py", "def f(self, a, b, c, d, e, *, f, g): ..."),
        (parameters, "state/x.py", "def f(a=[]): ..."),
        (parameters, "state/x.py", "def f(*, a=dict()): ..."),
        (docstrings, "state/x.py", "import os"),
        (direction, "state/x.py", "import weir.checkpoint.metadata"),
        (direction, "state/x.py", "from weir import runtime"),
        (direction, "state/x.py", "def f():\n    from ..runtime import operator"),
        (direction, "state/x.py", "from weir.testing import ManualClock"),
        (direction, "state/x.py", "from pyspark.sql import SparkSession"),
        (direction, "novel/x.py", ""),
        (forbidden, "state/x.py", "print(1)"),
        (forbidden, "state/x.py", "class A:\n    def f(self):\n        return hash(self)"),
        (forbidden, "state/x.py", "import time as t\nwait = t.sleep"),
        (forbidden, "state/x.py", "from time import time"),
        (forbidden, "state/x.py", "from datetime import datetime\ndatetime.now()"),
        (forbidden, "state/x.py", "import random"),
        (forbidden, "state/x.py", "import numpy as np\nnp.random.rand()"),
        (broad_handlers, "state/x.py", "try:\n    f()\nexcept (OSError, Exception):\n    pass"),
        (broad_handlers, "state/x.py", "try:\n    f()\nexcept:\n    raise_later()"),
    ],
)
def test_a_rule_finds_what_it_forbids(rule: Callable, path: str, text: str) -> None:
    assert len(list(rule(Source(f"src/weir/{path}", text)))) >= 1


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (direction, "from weir.state.ttl import x\nfrom . import y\nfrom weir.backend import z"),
        (forbidden, "class A:\n    def __hash__(self):\n        return hash(1)\nA().print()"),
        (forbidden, "import time\ntime.monotonic_ns()"),
        (broad_handlers, "try:\n    f()\nexcept Exception as e:\n    raise ValueError from e"),
        (parameters, "def f(self, a, b, c, d, e, f=()): ..."),
    ],
)
def test_a_rule_lets_good_code_pass(rule: Callable, text: str) -> None:
    assert list(rule(Source("src/weir/state/x.py", text))) == []
