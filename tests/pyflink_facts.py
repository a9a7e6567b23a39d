"""PyFlink's public names and signatures as data, and how Weir's are compared with them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("pyflink_names.txt")


@dataclass
class Name:
    """A name of a module: a class with bases and members, a function, or something handed on.

    Members and functions have the parameter lists of all versions; None stands for no call.
    """

    bases: list[str] = field(default_factory=list)
    members: dict[str, list[list[str] | None]] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)


@cache
def names() -> dict[str, dict[str, Name]]:
    """Return the names of all modules."""
    found: dict[str, dict[str, Name]] = {}
    module: dict[str, Name] = {}
    owner = Name()
    for line in DATA.read_text("utf-8").splitlines():
        if line.startswith("["):
            module = found.setdefault(line.strip("[]"), {})
        elif not line.startswith("#"):
            fact = line.partition(" ")[2]
            is_class, fact = fact.startswith("class "), fact.removeprefix("class ")
            name, bracket, rest = fact.partition("(")
            parameters = [p for p in rest.rstrip(")").split(",") if p]
            if name.startswith("."):
                calls = owner.members.setdefault(name[1:], [])
                calls.append(parameters if bracket else None)
                continue
            owner = module.setdefault(name, Name())
            if is_class:
                owner.bases += [base for base in parameters if base not in owner.bases]
            elif bracket:
                owner.calls.append(parameters)
    return found


@cache
def classes() -> dict[str, Name]:
    """Return all classes by name, wherever they are."""
    return {name: facts for module in names().values() for name, facts in module.items()}


def members(facts: Name, seen: frozenset[str] = frozenset()) -> dict[str, list[list[str] | None]]:
    """Return the members of a class, also those of its bases in PyFlink."""
    found: dict[str, list[list[str] | None]] = {}
    for base in facts.bases:
        simple = base.rpartition(".")[2]
        if simple in classes() and simple not in seen:
            found |= {
                name: calls
                for name, calls in members(classes()[simple], seen | {simple}).items()
                if name != "__init__"
            }
    return found | facts.members


def gaps() -> Iterator[str]:
    """Yield what PyFlink has and Weir has not: 'module', 'module name' or 'module name.member'."""
    for module, found in names().items():
        try:
            here = importlib.import_module(f"weir.{module}")
        except ImportError:
            yield module
            continue
        for name, facts in found.items():
            yield from _gaps_of(module, name, facts, here)


def _gaps_of(module: str, name: str, facts: Name, here: Any) -> Iterator[str]:
    target = _reach(here, name)
    if target is None:
        yield f"{module} {name}"
        return
    for parameters in facts.calls:
        yield from (f"{module} {name}({p})" for p in _refused(target, parameters))
    for member, calls in members(facts).items():
        if not hasattr(target, member):
            yield f"{module} {name}.{member}"
            continue
        bound = target if member == "__init__" else getattr(target, member)
        for call in calls:
            if call is not None:
                yield from (f"{module} {name}.{member}({p})" for p in _refused(bound, call))


def _reach(here: Any, name: str) -> Any:
    try:
        for part in name.split("."):
            here = getattr(here, part)
    except (AttributeError, ImportError):
        return None
    return here


def _refused(target: Any, parameters: list[str]) -> list[str]:
    """Return the parameters that cannot be given by their name."""
    if not callable(target):
        return ["no call"]
    try:
        signature = inspect.signature(target)
    except ValueError:
        return []
    there = signature.parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in there):
        return []
    by_name = {p.name for p in there if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    many = any(p.kind is p.VAR_POSITIONAL for p in there)
    return [p for p in parameters if not (many if p.startswith("*") else p in by_name)]
