"""Looking at a program's text for what it would meet; the program itself is never run.

Names that are imported from `pyflink` or `weir` are looked for in Weir's own modules, which are
imported for that, by the strings that stand in the program. What a variable holds is not known, so
methods are told by their names; a program that calls its own `cache` is told about PyFlink's.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeGuard

from weir import cep, common, datastream
from weir.config.effective import Settings
from weir.config.effects import WITHOUT_EFFECT, reason_of
from weir.config.options import OPTION_BY_KEY
from weir.errors import UsageError
from weir.moving.facts import FACTS, INSTEAD, METHODS, Meets

_PACKAGES: Final = ("pyflink", "weir")
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_SETTERS: Final = frozenset(
    {"set", "set_string", "set_integer", "set_boolean", "set_float", "set_bytes"}
)
_JAVA: Final = re.compile(r"_?(get_java|j)_[a-z_]+\Z")
_STATEFUL: Final = re.compile(r"get_\w*state\Z")


@dataclass(frozen=True)
class Finding:
    """What one place of a program meets; `what` is the word that stands there."""

    line: int
    column: int
    meets: Meets
    what: str
    text: str


def look_at(text: str, name: str) -> list[Finding]:
    """Return what a program would meet, in the order of its lines; the same thing once.

    Raises:
        UsageError: the text is no Python, or no program of PyFlink or Weir.
    """
    try:
        tree = ast.parse(text, name)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = "" if line is None else f", line {line}"
        msg = f"{name!r} cannot be read as Python{where}: {error}"
        raise UsageError(msg) from error
    imported = _imported(tree)
    if not imported:
        msg = f"{name!r} imports neither pyflink nor weir: name the file that builds the program"
        raise UsageError(msg)
    found: dict[tuple[Meets, str], Finding] = {}
    places = [*_names(tree, imported), *_calls(tree), *_settings(tree), *_uids(tree)]
    for finding in sorted(places, key=lambda f: (f.line, f.column)):
        found.setdefault((finding.meets, finding.what), finding)
    return list(found.values())


def _found(node: ast.expr | ast.stmt, meets: Meets, what: str, text: str) -> Finding:
    # In a chain of calls over several lines the line of the name is that of its end.
    line = (node.end_lineno or node.lineno) if isinstance(node, ast.Attribute) else node.lineno
    return Finding(line, node.col_offset, meets, what=what, text=text)


def plain(text: str) -> str:
    """Return Markdown as it reads on a terminal: links become their words."""
    return _LINK.sub(r"\1", text)


# ---- names -------------------------------------------------------------------------------------


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return what the program's names stand for: dotted names of PyFlink's or Weir's modules."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in _PACKAGES:
                    top = alias.name.split(".")[0]
                    known[alias.asname or top] = alias.name if alias.asname else top
        elif _is_ours(node):
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return known


def _is_ours(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    if not isinstance(node, ast.ImportFrom) or node.level:
        return False
    return str(node.module).split(".")[0] in _PACKAGES


def _names(tree: ast.Module, imported: Mapping[str, str]) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.split(".")[0] in _PACKAGES]
        elif _is_ours(node):
            names = [f"{node.module}.{a.name}" for a in node.names if a.name != "*"]
            names = names or [str(node.module)]
        elif isinstance(node, ast.Attribute):
            first, _, rest = _dotted(node).partition(".")
            # Of a chain only modules are followed: a class's members are told by their names.
            names = [f"{imported[first]}.{rest}"] if _is_module(imported.get(first)) else []
        else:
            continue
        for name in names:
            yield from _judge_name(node, name)


def _judge_name(node: ast.expr | ast.stmt, name: str) -> Iterator[Finding]:
    inside, last = name.partition(".")[2], name.rpartition(".")[2]
    reason = _missing(inside)
    if reason is not None:
        text = f"not there: {reason}"
        yield _found(node, Meets.REFUSED, name, text)
    for fact in FACTS:
        if last in fact.names:
            text = _said(fact.text, fact.pyflink)
            yield _found(node, fact.meets, last, text)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _is_module(name: str | None) -> bool:
    return name in _PACKAGES or (name is not None and _module(name.partition(".")[2]) is not None)


@cache
def _missing(inside: str) -> str | None:
    """Return why a dotted name below the package cannot be imported, None if it can be."""
    if not inside or _module(inside) is not None:
        return None
    place, _, name = inside.rpartition(".")
    module = _module(place)
    if module is None and place:
        # A member of a class: the class is what counts.
        outer = _missing(place)
        return outer or (_instead(inside) if _object(place) is None else None)
    try:
        getattr(importlib.import_module("weir") if module is None else module, name)
    except (AttributeError, ImportError) as error:
        # A module may itself say what to use; Python's own words are of no help.
        own = str(error)
        reason = own.partition(" is not in Weir: ")[2] or own
        return _instead(inside) if "has no attribute" in own or not own else reason
    return None


def _object(inside: str) -> Any:
    place, _, name = inside.rpartition(".")
    return getattr(_module(place), name, None)


def _instead(inside: str) -> str:
    parts = inside.split(".")
    for count in range(len(parts), 0, -1):
        advice = INSTEAD.get(".".join(parts[:count]))
        if advice is not None:
            return advice
    return "Weir has no such name"


@cache
def _module(inside: str) -> Any:
    """Return the module of Weir at PyFlink's path, None if there is none."""
    if not inside:
        return None
    try:
        return importlib.import_module(f"weir.{inside}")
    except ImportError:
        return None


# ---- methods -----------------------------------------------------------------------------------


def _calls(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        called = node.attr
        for fact in FACTS:
            if called in fact.calls:
                text = _said(fact.text, fact.pyflink)
                yield _found(node, fact.meets, f"{called}()", text)
        if called in METHODS and called not in _members():
            yield _found(node, Meets.REFUSED, f"{called}()", f"not there: {METHODS[called]}")
        elif _JAVA.match(called) and called not in _members():
            text = "not there: there is no Java behind a program"
            yield _found(node, Meets.REFUSED, called, text)


def _said(text: str, pyflink: str) -> str:
    return plain(f"{text} (PyFlink: {pyflink})" if pyflink else text)


@cache
def _members() -> frozenset[str]:
    """Return the names of all members of Weir's public classes."""
    modules = [cep, common, datastream]
    for package in (common, datastream):
        found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        public = [m.name for m in found if not m.name.rpartition(".")[2].startswith("_")]
        modules += [importlib.import_module(name) for name in public]
    classes = {c for m in modules for c in vars(m).values() if isinstance(c, type)}
    return frozenset(name for c in classes for name in dir(c))


# ---- settings ----------------------------------------------------------------------------------


def _settings(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _SETTERS and node.args:
                yield from _judge_key(node.args[0], certain=True)
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                yield from _judge_key(key, certain=False)


def _judge_key(node: ast.expr | None, *, certain: bool) -> Iterator[Finding]:
    """Judge what may be a key of a configuration; in a dict only known ones are taken for one."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return
    key = node.value
    option = OPTION_BY_KEY.get(key)
    reason = WITHOUT_EFFECT.get(key if option is None else option.key)
    if reason is None and certain:
        reason = reason_of(key)
    if reason is not None:
        yield _found(node, Meets.IGNORED, key, reason)
    elif certain and "." in key:
        for unknown in Settings([{key: ""}]).unknown_keys():
            meets = Meets.REFUSED if unknown.fatal else Meets.IGNORED
            yield _found(node, meets, key, str(unknown))


# ---- advice ------------------------------------------------------------------------------------


def _uids(tree: ast.Module) -> Iterator[Finding]:
    """Say once that a program with state gives no uid at all."""
    members = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    if any(node.attr in ("uid", "set_uid_hash") for node in members):
        return
    for node in members:
        if _STATEFUL.match(node.attr) or node.attr in ("reduce", "aggregate", "sum"):
            text = (
                'no operator has a uid: give each one with state one, .uid("..."), so that a '
                "changed program finds its state in a savepoint"
            )
            yield _found(node, Meets.ADVICE, "uid", text)
            return
