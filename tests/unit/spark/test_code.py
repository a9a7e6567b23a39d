"""Shipping the user's modules: what is executed is what this process packed."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zipfile
from pathlib import Path

import pytest

from weir.spark.code import _archive, _modules


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
