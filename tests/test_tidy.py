"""The house rules as tests: sizes, import direction, forbidden calls, Markdown, portable text.

Every rule yields findings such as ``src/weir/x.py:12: ...``; a test shows all of them at once.
The exceptions are the tables below; a new entry needs a reason beside it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A package may import itself and the rows below its own, not its neighbours in the same row.
LAYERS = (
    ("cli",),
    ("demo", "moving"),
    ("cep", "state_processor"),
    ("datastream",),
    ("spark",),
    ("queryable",),
    ("rest",),
    ("offline",),
    ("jobmanager",),
    ("slot",),
    ("runtime",),
    ("window",),
    ("checkpoint", "connector", "state"),
    ("backend",),
    ("snapshot", "storage"),
    ("graph",),
    ("codec", "tls"),
    ("config", "metrics", "table"),
    ("common",),
    ("keygroup",),
    ("keys",),
    ("clock", "failpoint", "ids", "nfa", "notices"),
    ("errors", "version"),
)
# The package's own door and the shipped test tools may import anything; nobody imports the latter.
UNLAYERED = {"__init__", "__main__", "testing"}

# The same inside of a package. What is not named there is below every row, and free among itself.
ROOMS = {
    "backend": (
        ("factory",),
        ("changelog", "hashmap", "rocksdb"),
    ),
}

# The modules that import others by a string, with their reasons in their docstrings.
MAY_IMPORT_BY_NAME = {
    "src/weir/backend/registry.py",
    "src/weir/cli/main.py",
    "src/weir/moving/look.py",
}
BY_NAME = {"importlib.import_module", "__import__"}

# Third-party packages that are kept in one room.
HOMES = {
    "pyspark": {"spark", "state_processor", "testing"},
    "py4j": {"spark", "testing"},
    "click": {"cli"},
    "rich": {"cli"},
    "rocksdict": {"backend"},
    "cryptography": {"cli"},
    "confluent_kafka": {"connector"},
    "fastavro": {"connector"},
    "psycopg": {"connector"},
    "pymysql": {"connector"},
    "duckdb": {"queryable"},
}

# What of Spark is private, and the one module that may use it.
SPARK_INTERNALS = "src/weir/spark/internals.py"
SPARK_PRIVATE = {"_jdf", "_jc", "_jsc", "_jvm", "_jsparkSession"}
SPARK_PRIVATE_MODULES = ("pyspark.daemon", "pyspark.sql.classic", "pyspark.sql.pandas")

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
    "src/weir/connector/formats/column_files.py",
    "src/weir/connector/kafka/decoder.py",
    "src/weir/connector/kafka/deadline.py",
    "src/weir/jobmanager/background.py",
    "src/weir/jobmanager/driver_commits.py",
    "src/weir/jobmanager/overtake.py",
    "src/weir/jobmanager/supervisor.py",
    "src/weir/queryable/gathering.py",
    "src/weir/rest/handler.py",
    "src/weir/runtime/async_calls.py",
    "src/weir/runtime/metrics.py",
    "src/weir/runtime/raised.py",
    "src/weir/runtime/subtask.py",
    "src/weir/slot/between_records.py",
    "src/weir/slot/closing.py",
    "src/weir/slot/door.py",
    "src/weir/slot/main.py",
    "src/weir/slot/service.py",
    "src/weir/spark/function_source.py",
    "src/weir/runtime/program.py",
    "src/weir/spark/attempt.py",
    "src/weir/testing/campaign.py",
    "src/weir/testing/harness_slots.py",
    "src/weir/spark/internals.py",
}

# "file.py:Class.method" of long parameter lists that PyFlink's signature dictates.
PYFLINK_SIGNATURES: set[str] = set()

# Whose positional arguments are all of one meaning.
VARIADIC = {"one_of", "struct.pack", "log.debug", "log.info", "log.warning", "log.error"}

LINES_MAX = {"src": 500, "tests": 700}
FUNCTION_LINES_MAX = 50
PARAMETERS_MAX = 6
POSITIONAL_MAX = 4

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
    def module(self) -> str:
        """The dotted name under which the file is imported."""
        return self.path.removeprefix("src/").removesuffix(".py").replace("/", ".")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def _kinds(self) -> dict[type[ast.AST], list[ast.AST]]:
        """All nodes of the tree by their class: rules share one walk."""
        kinds: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        found: list[ast.AST] = [self.tree]
        for node in found:  # which grows meanwhile
            kinds[type(node)].append(node)
            for name in node._fields:
                value = getattr(node, name, None)
                if type(value) is list:
                    found += [v for v in value if isinstance(v, ast.AST)]
                elif isinstance(value, ast.AST):
                    found.append(value)
        return kinds

    def all(self, *kinds: type[ast.AST]) -> list[Any]:
        """Return all nodes of some classes."""
        return [node for kind in kinds for node in self._kinds.get(kind, ())]

    @cached_property
    def functions(self) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        """All functions with their names, in front of which stand the names that they are in."""
        found, scopes = [], [("", self.tree)]
        for prefix, scope in scopes:  # which grows meanwhile
            for node in _within(scope):
                if not isinstance(node, ast.ClassDef):
                    found.append((prefix + node.name, node))
                scopes.append((f"{prefix}{node.name}.", node))
        return found

    def at(self, node: ast.AST | int, message: str) -> str:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.path}:{line}: {message}"


def read(paths: Iterator[Path]) -> list[Source]:
    return [Source(p.relative_to(ROOT).as_posix(), p.read_text("utf-8")) for p in sorted(paths)]


@cache
def python(folder: str) -> list[Source]:
    return read(p for p in (ROOT / folder).rglob("*.py") if p.is_file())


@cache
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


Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _within(scope: ast.AST) -> list[Scope]:
    """The functions and classes of a scope, without those of the scopes in it."""
    found: list[Scope] = []
    statements = list(scope.body)
    for statement in statements:  # which grows meanwhile
        if isinstance(statement, Scope):
            found.append(statement)
            continue
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            statements += getattr(statement, name, ())
    return found


def dotted(node: ast.AST) -> str:
    """Return names with dots between them as text, "" for every other expression."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def example_lines(source: Source) -> int:
    """Count the lines of examples in docstrings of classes, with what parts them from the text."""
    documented = (ast.get_docstring(node) or "" for node in source.all(ast.ClassDef))
    return sum(
        len(text.partition("\nExample:\n")[2].splitlines()) + 3
        for text in documented
        if "\nExample:\n" in text
    )


def sizes(source: Source) -> Iterator[str]:
    limit = LINES_MAX[source.path.split("/")[0]]
    count = len(source.text.splitlines()) - example_lines(source)
    if count > limit:
        yield source.at(1, f"{count} lines, at most {limit}")
    for name, node in source.functions:
        length = node.end_lineno - node.lineno + 1
        if ast.get_docstring(node) is not None:
            length -= node.body[0].end_lineno - node.body[0].lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield source.at(node, f"{name} has {length} lines, at most {FUNCTION_LINES_MAX}")


def parameters(source: Source) -> Iterator[str]:
    for name, node in source.functions:
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


def named_arguments(source: Source) -> Iterator[str]:
    """Beyond a few arguments nobody sees at the call which is which."""
    for node in source.all(ast.Call):
        if len(node.args) > POSITIONAL_MAX:
            called = ast.unparse(node.func)
            if called not in VARIADIC:
                count = len(node.args)
                yield source.at(
                    node, f"{called} gets {count} arguments by position, at most {POSITIONAL_MAX}"
                )


def docstrings(source: Source) -> Iterator[str]:
    if not ast.get_docstring(source.tree):
        yield source.at(1, "no module docstring")


def imports(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    """What a file imports, wherever it does: names out of packages count as modules."""
    package = source.path.removeprefix("src/").split("/")[:-1]
    for node in source.all(ast.Import):
        yield from ((node, alias.name) for alias in node.names)
    for node in source.all(ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*base, *filter(None, [node.module])])
        yield from ((node, f"{module}.{alias.name}") for alias in node.names)


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


def aliases(source: Source) -> dict[str, str]:
    """What the names stand for that a file imports under another name, or out of a module."""
    known: dict[str, str] = {}
    for node in source.all(ast.Import):
        known |= {a.asname or a.name.split(".")[0]: a.name for a in node.names if a.asname}
    for node in source.all(ast.ImportFrom):
        if not node.level:
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return known


def rooms(source: Source) -> Iterator[str]:
    """The sub-packages of a package keep to their rows."""
    rows = ROOMS.get(source.package, ())
    row = {name: i for i, names in enumerate(rows) for name in names}
    inside = f"weir.{source.package}."
    here = source.module.removeprefix(inside).split(".")[0]
    for node, module in imports(source):
        there = module.removeprefix(inside).split(".")[0]
        if not module.startswith(inside) or there == here or there not in row:
            continue
        if row[there] <= row.get(here, len(rows)):
            yield source.at(node, f"{inside}{here} may not import {inside}{there}")


def by_name(source: Source) -> Iterator[str]:
    """Imports by a string would hide from the other rules."""
    if source.path in MAY_IMPORT_BY_NAME:
        return
    known = aliases(source)
    for node in source.all(ast.Call):
        first, _, rest = dotted(node.func).partition(".")
        if f"{known.get(first, first)}.{rest}".strip(".") in BY_NAME:
            texts = [str(n.value) for n in ast.walk(node) if isinstance(n, ast.Constant)]
            if any(text.split(".")[0] == "weir" for text in texts):
                yield source.at(node, "imports a module of weir by a string")


def typing_imports(source: Source) -> Iterator[str]:
    """Who needs a type needs its module: an import for type checkers alone hides a cycle."""
    for node in source.all(ast.If):
        if "TYPE_CHECKING" in ast.unparse(node.test):
            body = ast.Module(node.body, [])
            for statement, module in imports(Source(source.path, ast.unparse(body))):
                if module.split(".")[0] == "weir":
                    line = node.lineno + statement.lineno
                    yield source.at(line, f"imports {module} for type checkers alone")


def cycles(sources: Iterable[Source]) -> Iterator[str]:
    """No module imports itself through others, also not later or for type checkers alone."""
    files = {source.module.removesuffix(".__init__"): source for source in sources}
    graph: dict[str, set[str]] = {}
    for name, source in files.items():
        nearest = {near for _, module in imports(source) if (near := _module(module, files))}
        graph[name] = nearest - {name}
    while names := _cycle(graph):
        yield files[names[0]].at(1, "imports itself: " + " imports ".join(names))
        graph[names[0]].remove(names[1])  # and look for further ones


def _cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as found:
        return list(reversed(found.args[1]))
    return []


def _module(name: str, files: dict[str, Source]) -> str | None:
    """The module that an imported name is, or is in."""
    return next((n for n in (name, name.rpartition(".")[0]) if n in files), None)


def forbidden(source: Source) -> Iterator[str]:
    known, allowed = aliases(source), MAY_USE.get(source.path, set())
    in_dunder = {
        id(n) for f in source.all(ast.FunctionDef) if f.name == "__hash__" for n in ast.walk(f)
    }

    for node in source.all(ast.Call, ast.Attribute, ast.Import, ast.ImportFrom):
        names: list[str] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            # Inside __hash__ the salted hash is what the language asks for.
            names = [] if id(node) in in_dunder else [known.get(node.func.id, node.func.id)]
        elif isinstance(node, ast.Attribute):
            first, _, rest = dotted(node).partition(".")
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
    for node in source.all(ast.ExceptHandler):
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        broad = any(k is None or dotted(k) in {"Exception", "BaseException"} for k in kinds)
        if broad and not isinstance(node.body[-1], ast.Raise):
            yield source.at(node, "catches everything and does not raise")


def spark_internals(source: Source) -> Iterator[str]:
    """What a new version of Spark may change is used in one module."""
    if source.path == SPARK_INTERNALS:
        return
    for node in source.all(ast.Attribute):
        if node.attr in SPARK_PRIVATE:
            yield source.at(node, f"uses {node.attr}, which belongs to {SPARK_INTERNALS}")
    for node, module in imports(source):
        top, *names = module.split(".")
        inside = any(f"{module}.".startswith(f"{name}.") for name in SPARK_PRIVATE_MODULES)
        if top == "pyspark" and (inside or any(name.startswith("_") for name in names)):
            yield source.at(node, f"imports {module}, which belongs to {SPARK_INTERNALS}")


def types_of_decoders(source: Source) -> Iterator[str]:
    """Types are given to decoders that are built at import, never on first use by some thread."""
    for node in source.all(ast.Call):
        called = dotted(node.func)
        given = {keyword.arg for keyword in node.keywords}
        if getattr(node.func, "attr", called) == "decode" and "type" in given:
            yield source.at(node, "decodes a type that has no decoder yet: build one at import")
        if called.startswith("msgspec.") and called.endswith(".convert"):
            yield source.at(node, "converts to a type on first use: build a decoder at import")


RULES = (
    sizes,
    parameters,
    named_arguments,
    docstrings,
    direction,
    rooms,
    by_name,
    typing_imports,
    forbidden,
    broad_handlers,
    spark_internals,
    types_of_decoders,
)


def test_the_package_keeps_the_rules() -> None:
    """One test for all: each process that has one of them would read the package again."""
    package = python("src/weir")
    found = [finding for rule in RULES for source in package for finding in rule(source)]
    assert [*found, *cycles(package)] == []


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


def unportable(source: Source) -> Iterator[str]:
    """Unfinished work, private paths and hosts of registries."""
    for pattern in (UNFINISHED, PRIVATE_PATH, REGISTRY):
        for match in pattern.finditer(source.text):
            before = source.text[: match.start()]
            yield source.at(before.count("\n") + 1, f"holds {match.group()!r}")


def test_no_file_holds_unfinished_work_private_paths_or_hosts() -> None:
    assert [finding for source in texts() for finding in unportable(source)] == []


# ---- the rules themselves ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (sizes, "state/x.py", "pass\n" * 501),
        (sizes, "state/x.py", "def f():\n" + "    pass\n" * 50),
        (parameters, "state/x.py", "def f(self, a, b, c, d, e, *, f, g): ..."),
        (parameters, "state/x.py", "def f(a=[]): ..."),
        (parameters, "state/x.py", "def f(*, a=dict()): ..."),
        (named_arguments, "state/x.py", "f(1, 2, 3, 4, 5)"),
        (named_arguments, "state/x.py", "a.f(1, 2, 3, *rest, 5, x=6)"),
        (docstrings, "state/x.py", "import os"),
        (direction, "state/x.py", "import weir.checkpoint.metadata"),
        (direction, "state/x.py", "from weir import runtime"),
        (direction, "state/x.py", "def f():\n    from ..runtime import operator"),
        (direction, "state/x.py", "from weir.testing import ManualClock"),
        (direction, "state/x.py", "from pyspark.sql import SparkSession"),
        (direction, "novel/x.py", ""),
        (rooms, "backend/rocksdb/x.py", "from weir.backend.hashmap.table import StateTable"),
        (rooms, "backend/rocksdb/x.py", "from weir.backend import factory"),
        (rooms, "backend/hashmap/x.py", "def f():\n    from ..changelog import log"),
        (rooms, "backend/restored.py", "import weir.backend.rocksdb.expand"),
        (rooms, "backend/restored.py", "from weir.backend.factory import create_backend"),
        (by_name, "state/x.py", "import importlib\nimportlib.import_module(f'weir.{name}')"),
        (by_name, "state/x.py", "from importlib import import_module as m\nm('weir.x')"),
        (typing_imports, "state/x.py", "if TYPE_CHECKING:\n    from weir.state import y"),
        (typing_imports, "state/x.py", "if t.TYPE_CHECKING:\n    import os, weir.state.y"),
        (forbidden, "state/x.py", "print(1)"),
        (forbidden, "state/x.py", "class A:\n    def f(self):\n        return hash(self)"),
        (forbidden, "state/x.py", "import time as t\nwait = t.sleep"),
        (forbidden, "state/x.py", "from time import time"),
        (forbidden, "state/x.py", "from datetime import datetime\ndatetime.now()"),
        (forbidden, "state/x.py", "import random"),
        (forbidden, "state/x.py", "import numpy as np\nnp.random.rand()"),
        (broad_handlers, "state/x.py", "try:\n    f()\nexcept (OSError, Exception):\n    pass"),
        (broad_handlers, "state/x.py", "try:\n    f()\nexcept:\n    raise_later()"),
        (spark_internals, "spark/x.py", "rows = frame._jdf.queryExecution()"),
        (spark_internals, "spark/x.py", "def f(spark):\n    return spark.sparkContext._jsc"),
        (spark_internals, "spark/x.py", "from pyspark.sql.column import _to_seq"),
        (spark_internals, "spark/x.py", "import pyspark.sql._typing as t"),
        (spark_internals, "testing/x.py", "from pyspark.daemon import manager"),
        (types_of_decoders, "slot/x.py", "msgspec.msgpack.decode(data, type=Acknowledge)"),
        (types_of_decoders, "slot/x.py", "msgspec.convert(data, Acknowledge)"),
    ],
)
def test_a_rule_finds_what_it_forbids(rule: Callable, path: str, text: str) -> None:
    assert len(list(rule(Source(f"src/weir/{path}", text)))) >= 1


@pytest.mark.parametrize(
    "files",
    [
        {"state/a.py": "import weir.state.b", "state/b.py": "from weir.state import a"},
        {"state/a.py": "from . import b", "state/b.py": "def f():\n    from .a import x"},
        {"state/a.py": "if TYPE_CHECKING:\n    from .b import y", "state/b.py": "from .a import x"},
        {"state/__init__.py": "from weir.state.a import x", "state/a.py": "from weir import state"},
        {"a.py": "import weir.b", "b.py": "import weir.c", "c.py": "from weir.a import x"},
    ],
)
def test_a_cycle_is_found(files: dict[str, str]) -> None:
    sources = [Source(f"src/weir/{path}", text) for path, text in files.items()]
    found = list(cycles(sources))
    assert len(found) == 1
    assert all(source.module.removesuffix(".__init__") in found[0] for source in sources)


def test_all_cycles_are_shown_at_once() -> None:
    pairs = {"a": "b", "b": "a", "c": "d", "d": "c"}
    sources = [Source(f"src/weir/{name}.py", f"import weir.{x}") for name, x in pairs.items()]
    assert len(list(cycles(sources))) == 2


def test_imports_without_a_way_back_are_no_cycle() -> None:
    files = {
        "state/__init__.py": "from weir.state.a import x",
        "state/a.py": "import os\nfrom weir.state.b import y\nfrom weir.state.c import z",
        "state/b.py": "def f():\n    from .c import z",
        "state/c.py": "from collections import abc",
    }
    assert list(cycles(Source(f"src/weir/{path}", text) for path, text in files.items())) == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (direction, "from weir.state.ttl import x\nfrom . import y\nfrom weir.backend import z"),
        (forbidden, "class A:\n    def __hash__(self):\n        return hash(1)\nA().print()"),
        (forbidden, "import time\ntime.monotonic_ns()"),
        (broad_handlers, "try:\n    f()\nexcept Exception as e:\n    raise ValueError from e"),
        (parameters, "def f(self, a, b, c, d, e, f=()): ..."),
        (named_arguments, "f(1, 2, 3, *rest, x=5)\nstruct.pack(form, 1, 2, 3, 4)"),
        (spark_internals, "from pyspark.sql import DataFrame\nself._jar.x\nfrom a import _to_seq"),
        (types_of_decoders, "msgspec.msgpack.decode(data)\n_decoder.decode(data)"),
        (rooms, "from weir.backend.rocksdb import backend\nfrom weir.backend import factory"),
        (by_name, "import importlib\nimportlib.import_module('rocksdict')"),
        (typing_imports, "if TYPE_CHECKING:\n    import decimal\nfrom weir.state import y"),
    ],
)
def test_a_rule_lets_good_code_pass(rule: Callable, text: str) -> None:
    assert list(rule(Source("src/weir/state/x.py", text))) == []


def test_one_module_may_use_what_spark_keeps_private() -> None:
    text = "from pyspark.sql.classic.column import _to_seq\nframe._jdf"
    assert list(spark_internals(Source(SPARK_INTERNALS, text))) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("backend/factory.py", "import weir.backend.changelog.log\nfrom . import registry"),
        ("backend/rocksdb/x.py", "from weir.backend.rocksdb.keys import y\nfrom .. import base"),
        ("backend/changes.py", "from weir.backend.base import KeyedBackend\nimport weir.clock"),
    ],
)
def test_rooms_may_use_what_is_below_them(path: str, text: str) -> None:
    assert list(rooms(Source(f"src/weir/{path}", text))) == []
