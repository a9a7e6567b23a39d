"""Shipping the user's modules: what is executed is what this process packed."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zipfile
from pathlib import Path

import pytest

import weir.cli.main
from weir.errors import UsageError
from weir.spark.code import (
    _archive,
    _modules,
    _renamed,
    directory_of,
    importable_beside,
    shippable,
    working_in,
)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a temporary directory of the host that nobody else uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    base = tmp_path / "program"
    (base / "package").mkdir(parents=True)
    (base / "main.py").write_text("import package")
    (base / "package" / "__init__.py").write_text(f"base = {str(base)!r}")
    return base


def names(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as packed:
        return sorted(packed.namelist())


def planted(shared: Path, base: Path) -> list[Path]:
    """Put an archive where its name could be foreseen, as it was once."""
    digest = hashlib.sha256()
    for path in sorted(_modules(base)):
        digest.update(str(path.relative_to(base)).encode() + b"\0" + path.read_bytes())
    name = f"weir-code-{os.getuid()}-{digest.hexdigest()[:16]}"
    with zipfile.ZipFile(shared / f"{name}.zip", "w") as out:
        out.writestr("sitecustomize.py", "raise SystemExit('executed')")
    victim = shared / "victim"
    victim.write_text("mine")
    link = shared / f"{name}.{os.getpid()}"
    link.symlink_to(victim)
    return [shared / f"{name}.zip", victim]


def test_an_archive_holds_the_modules_and_is_only_this_users(shared: Path, program: Path) -> None:
    archive = _archive(program, _modules(program))
    assert names(archive) == ["main.py", "package/__init__.py"]
    assert archive.parent.parent == shared
    assert stat.S_IMODE(archive.parent.stat().st_mode) == 0o700


def test_an_archive_that_somebody_planted_is_not_shipped(shared: Path, program: Path) -> None:
    evil, victim = planted(shared, program)
    archive = _archive(program, _modules(program))
    assert archive != evil
    assert "sitecustomize.py" not in names(archive)
    assert victim.read_text() == "mine"


def test_the_same_modules_are_packed_once_and_others_have_another_name(
    shared: Path, program: Path
) -> None:
    first = _archive(program, _modules(program))
    assert _archive(program, _modules(program)) == first
    (program / "main.py").write_text("import package, os")
    second = _archive(program, _modules(program))
    # Spark tells files apart by their names alone.
    assert second.name != first.name
    assert first.exists()


def test_an_archive_that_is_gone_is_packed_anew(shared: Path, program: Path) -> None:
    first = _archive(program, _modules(program))
    first.unlink()
    assert _archive(program, _modules(program)).exists()


def test_what_lies_beside_a_program_is_importable(program: Path) -> None:
    found = importable_beside(str(program / "main.py"), None)
    assert found is not None
    base, files = found
    assert base == program
    assert {path.name for path in files} == {"main.py", "__init__.py"}


def test_modules_of_a_package_are_not_importable_without_its_name(program: Path) -> None:
    """`python -m package.tool`: a `token.py` beside it would take the place of Python's own."""
    inner = program / "package"
    (inner / "tool.py").write_text("")
    (inner / "token.py").write_text("")
    found = importable_beside(str(inner / "tool.py"), "package")
    assert found is not None
    base, files = found
    assert sorted(str(path.relative_to(base)) for path in files) == [
        "main.py",
        "package/__init__.py",
        "package/token.py",
        "package/tool.py",
    ]


def test_nothing_of_an_installed_tool_is_shipped(tmp_path: Path) -> None:
    for place in ("bin/weir", "site-packages/tool/main.py"):
        path = tmp_path / place
        path.parent.mkdir(parents=True)
        path.write_text("")
        assert importable_beside(str(path), None) is None
    assert importable_beside(weir.cli.main.__file__, "weir.cli") is None
    assert importable_beside(None, None) is None


def test_files_and_zips_are_shipped_as_they_are_and_directories_as_zips(
    program: Path, shared: Path
) -> None:
    assert shippable(f"file://{program}/main.py") == str(program / "main.py")
    assert shippable("hdfs://nn/a.py") == "hdfs://nn/a.py"
    packed = Path(shippable(str(program)))
    assert "main.py" in zipfile.ZipFile(packed).namelist()
    assert stat.S_IMODE(packed.parent.stat().st_mode) == 0o700
    (program / "empty").mkdir()
    for wrong in ("empty", "none.py"):
        with pytest.raises(UsageError, match=f"python.files names .*{wrong}"):
            shippable(str(program / wrong))


def test_archives_that_change_get_another_directory(tmp_path: Path) -> None:
    assert directory_of(()) is None
    archive = tmp_path / "data.zip"
    archive.write_bytes(b"one")
    given = [f"{archive}#data", "hdfs://nn/more.zip"]
    first = directory_of(given)
    assert directory_of(given) == first
    assert directory_of([*given, "hdfs://nn/else.zip"]) != first
    archive.write_bytes(b"other")
    assert directory_of(given) != first


def test_an_archive_has_a_name_of_its_own_and_keeps_what_tells_its_kind(
    shared: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.b.tar.gz").write_bytes(b"packed")
    link = _renamed(tmp_path / "a.b.tar.gz", "weir-archives-1-0")
    assert link.name == "weir-archives-1-0.tar.gz"
    assert link.read_bytes() == b"packed"
    assert _renamed(tmp_path / "a.b.tar.gz", "weir-archives-1-0") == link
    assert _renamed(tmp_path / "v1.2.zip", "weir-archives-1-1").suffixes == [".zip"]


def test_a_working_directory_is_left_again(tmp_path: Path) -> None:
    before = os.getcwd()
    with working_in(str(tmp_path)):
        assert os.getcwd() == str(tmp_path.resolve())
    assert os.getcwd() == before
    with pytest.raises(FileNotFoundError), working_in(str(tmp_path)):
        Path("none").read_text()
    assert os.getcwd() == before
    with working_in(None):
        assert os.getcwd() == before
