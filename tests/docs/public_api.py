"""Writes down the public API: every public module, its names, and how they are called.

Public is every module of `weir.common` and `weir.datastream` without an underscore in its path,
which are PyFlink's paths, and the doors in `DOORS`. A name has one home, where its members are
listed; other modules that export it point there.

`python tests/docs/public_api.py` writes `tests/public_api.txt` and `docs/reference/api.md` anew.
"""

import enum
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
LOCK = ROOT / "tests" / "public_api.txt"
PAGE = ROOT / "docs" / "reference" / "api.md"

DOORS = (
    "weir",
    "weir.cep",
    # Below the backends, which implement its classes; programs import weir.datastream.state.
    "weir.common.state",
    # PyFlink has no Spark to write by.
    "weir.datastream.connectors.spark",
    "weir.errors",
    "weir.offline",
    "weir.state_processor",
    "weir.testing",
)
PACKAGES = ("weir.common", "weir.datastream")

HEAD = """\
# Public API

What programs may import. Everything else is Weir's own and may change in any release: modules that
are not listed here, and names that begin with an underscore. Module paths and names below
`weir.common` and `weir.datastream` are PyFlink's, beside `weir.common.state`, which has the classes
of `weir.datastream.state`; a program moves by replacing `pyflink` with `weir`.
[Moving a PyFlink program](../guides/moving-a-pyflink-program.md) tells what differs, and
`help(name)` in Python tells what the methods do.

This page is made from the modules by `tests/docs/public_api.py`, and a test compares the two.
"""


def modules() -> list[ModuleType]:
    """Return the public modules, by name."""
    names = {*DOORS, *PACKAGES}
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        found = pkgutil.walk_packages(path, f"{package}.")
        names |= {m.name for m in found if "._" not in m.name}
    return [importlib.import_module(name) for name in sorted(names)]


def names_of(module: ModuleType) -> list[str]:
    """Return the names that a module exports: its `__all__`, or else what it defines."""
    declared = getattr(module, "__all__", None)
    if declared is not None:
        return sorted(declared)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


@dataclass(frozen=True)
class Api:
    """The public modules, and for each name in each module the module that is its home."""

    modules: list[ModuleType]
    homes: dict[tuple[str, str], str]

    @classmethod
    def of(cls, modules: list[ModuleType]) -> "Api":
        """Choose the homes: where a name is defined if that is public, else the longest path."""
        exporters: dict[int, list[str]] = {}
        for module in modules:
            for name in names_of(module):
                exporters.setdefault(id(getattr(module, name)), []).append(module.__name__)
        homes = {}
        for module in modules:
            for name in names_of(module):
                value = getattr(module, name)
                known = exporters[id(value)]
                defined = getattr(value, "__module__", None)
                # Equal constants, such as version strings, are not the same thing.
                ours = isinstance(value, type) or callable(value)
                home = defined if defined in known else max(known, key=lambda m: (len(m), m))
                homes[module.__name__, name] = home if ours else module.__name__
        return cls(modules, homes)

    def is_public(self, cls: type) -> bool:
        """Tell whether a class is listed with its own members somewhere."""
        return any(
            name == cls.__name__ and getattr(module, name) is cls
            for module in self.modules
            for name in names_of(module)
        )


def called(value: Any) -> str:
    """Return the parameters of a callable: names, kinds and defaults, without types."""
    signature = inspect.signature(value)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def constructor(cls: type) -> str:
    """Return how a class is called; nothing when its constructor is not ours."""
    if issubclass(cls, enum.Enum):
        return ""
    for base in cls.__mro__:
        if {"__init__", "__new__"} & vars(base).keys():
            own = base.__module__.startswith("weir") or hasattr(base, "__struct_fields__")
            return called(cls) if own and not getattr(base, "_is_protocol", False) else ""
    return ""


def members(cls: type, api: Api) -> Iterator[str]:
    """Yield the public members of a class, with those of bases that are not public."""
    seen = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("weir") or (base is not cls and api.is_public(base)):
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            yield from member(name, value, api)


def member(name: str, value: Any, api: Api) -> Iterator[str]:
    """Yield the line of one member, and the lines inside a nested class."""
    if isinstance(value, (staticmethod, classmethod)):
        yield f"{name}{called(value.__func__)}  [{type(value).__name__}]"
    elif inspect.isfunction(value):
        yield f"{name}{called(value)}"
    elif isinstance(value, type):
        yield f"{name}{constructor(value)}  [class]"
        yield from (f"{name}.{line}" for line in members(value, api))
    elif isinstance(value, (enum.Enum, int, str, float)):
        yield f"{name} = {value.value if isinstance(value, enum.Enum) else value!r}"
    else:
        yield name


def lines(api: Api) -> list[str]:
    """Return the whole API, one line for each name and each member."""
    found = []
    for module in api.modules:
        for name in names_of(module):
            value, home = getattr(module, name), api.homes[module.__name__, name]
            start = f"{module.__name__}: {name}"
            if home != module.__name__:
                found.append(f"{start} -> {home}")
            elif isinstance(value, type):
                found.append(f"{start}{constructor(value)}  [class]")
                found += [f"{start}.{line}" for line in members(value, api)]
            else:
                found.append(start + (called(value) if inspect.isfunction(value) else ""))
    return sorted(found)


def summary(value: Any) -> str:
    """Return the first sentence that a docstring gives, on one line."""
    text = inspect.getdoc(value) or ""
    return " ".join(text.partition("\n\n")[0].split())


def row(module: ModuleType, name: str, api: Api) -> str:
    """Return the table row of a name that has its home in the module."""
    value = getattr(module, name)
    if isinstance(value, type):
        return f"| `{name}{constructor(value)}` | {summary(value)} |"
    if inspect.isfunction(value):
        return f"| `{name}{called(value)}` | {summary(value)} |"
    return f"| `{name}` | a {type(value).__name__} |"


def render(api: Api) -> str:
    """Return the reference page."""
    parts = [HEAD]
    for module in api.modules:
        names = names_of(module)
        here = [n for n in names if api.homes[module.__name__, n] == module.__name__]
        parts.append(f"## {module.__name__}\n\n{summary(module)}\n")
        if here:
            rows = [row(module, name, api) for name in here]
            parts.append("\n".join(["| name | what it is |", "|---|---|", *rows]) + "\n")
        elsewhere: dict[str, list[str]] = {}
        for name in names:
            elsewhere.setdefault(api.homes[module.__name__, name], []).append(f"`{name}`")
        elsewhere.pop(module.__name__, None)
        if elsewhere:
            rows = [f"| {', '.join(known)} | `{home}` |" for home, known in elsewhere.items()]
            parts.append("\n".join(["| names | explained under |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def main() -> None:
    """Write both files."""
    api = Api.of(modules())
    LOCK.write_text("\n".join(lines(api)) + "\n", "utf-8")
    PAGE.write_text(render(api), "utf-8")


if __name__ == "__main__":
    main()
