"""Write down the public names of PyFlink's DataStream API, from its sources in a git repository.

    python scripts/pyflink_names.py FLINK_GIT_DIR > tests/pyflink_names.txt

Only facts are taken: modules, classes with their bases, methods and parameter names. A line begins
with the versions that have it, a letter each; `.name` is a member of the class above.
`tests/test_pyflink_names.py` compares them with Weir.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

VERSIONS = {"a": "release-1.13.6", "b": "release-1.16.3", "c": "release-2.3.0"}
ROOT = "flink-python/pyflink/"
FOLDERS = ("common/", "datastream/", "metrics/")


def git(repository: str, *arguments: str) -> str:
    """Return what git says."""
    command = ["git", "--git-dir", repository, *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def sources(repository: str, tag: str) -> Iterator[tuple[str, str]]:
    """Yield the modules of the API without pyflink's own name, each with its text."""
    for path in git(repository, "ls-tree", "-r", "--name-only", tag, ROOT).splitlines():
        inside = path.removeprefix(ROOT)
        if inside.startswith(FOLDERS) and inside.endswith(".py") and "/tests/" not in inside:
            module = inside.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            yield module, git(repository, "show", f"{tag}:{path}")


def facts(text: str) -> Iterator[str]:
    """Yield what a module offers: classes, members, functions, and names it hands on."""
    tree = ast.parse(text)
    listed: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and public(node.name):
            listed.add(node.name)
            yield from of_class(node, "")
        elif isinstance(node, ast.FunctionDef) and public(node.name):
            listed.add(node.name)
            yield node.name + parameters(node)
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from sorted(set(ast.literal_eval(node.value)) - listed)


def of_class(node: ast.ClassDef, prefix: str) -> Iterator[str]:
    """Yield a class with its bases, then its members, nested classes included."""
    name = prefix + node.name
    bases = (ast.unparse(base).partition("[")[0] for base in node.bases)
    yield f"class {name}({','.join(b for b in bases if b not in ('object', 'ABC', 'Enum'))})"
    nested = []
    for member in node.body:
        if isinstance(member, ast.ClassDef) and public(member.name):
            nested.append(member)
        elif isinstance(member, ast.FunctionDef) and (
            public(member.name) or member.name == "__init__"
        ):
            plain = {ast.unparse(d) for d in member.decorator_list} & {"property"}
            yield f".{member.name}" + ("" if plain else parameters(member))
        elif isinstance(member, ast.Assign):
            names = [t.id for t in member.targets if isinstance(t, ast.Name) and public(t.id)]
            yield from (f".{name}" for name in names)
    for inner in nested:
        yield from of_class(inner, name + ".")


def parameters(node: ast.FunctionDef) -> str:
    """Return the names of parameters, without self and without objects of Java."""
    spec = node.args
    static = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
    names = [argument.arg for argument in (*spec.posonlyargs, *spec.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) and not static else names
    names += [f"*{spec.vararg.arg}"] if spec.vararg else []
    names += [argument.arg for argument in spec.kwonlyargs]
    names += [f"**{spec.kwarg.arg}"] if spec.kwarg else []
    return f"({','.join(name for name in names if not name.startswith('j_'))})"


def public(name: str) -> bool:
    """Tell whether a name is for users."""
    return not name.startswith("_")


def main(repository: str) -> None:
    """Print all modules in order, with all versions united."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    for letter, tag in VERSIONS.items():
        for module, text in sources(repository, tag):
            rows, owner = found.setdefault(module, {}), ""
            for fact in facts(text):
                owner = owner if fact.startswith(".") else fact.partition("(")[0]
                key = (owner, fact)
                rows[key] = rows.get(key, "").replace(letter, "") + letter
    lines = [f"# {letter} {tag.removeprefix('release-')}" for letter, tag in VERSIONS.items()]
    for module, rows in sorted(found.items()):
        owners = list(dict.fromkeys(owner for owner, _ in rows))
        ordered = sorted(rows.items(), key=lambda row: owners.index(row[0][0]))
        lines += [f"[{module}]", *(f"{letters} {fact}" for (_, fact), letters in ordered)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
