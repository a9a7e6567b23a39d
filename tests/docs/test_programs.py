"""What the documentation shows as Python works, and prints what the documentation says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, Block, python_blocks

BLOCKS = python_blocks()
PLAIN = [b for b in BLOCKS if not b.is_program]
PROGRAMS = [b for b in BLOCKS if b.is_program]


def test_the_pages_have_programs_and_every_output_belongs_to_one() -> None:
    assert len(PROGRAMS) >= 5
    assert [b.name for b in PLAIN if b.output is not None] == []
    assert [b.name for b in PROGRAMS if b.output is None] == []


@pytest.mark.parametrize("block", PLAIN, ids=lambda b: b.name)
def test_a_block_without_spark_runs(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    exec(compile(block.text, block.name, "exec"), namespace)
    tests = [value for name, value in namespace.items() if name.startswith("test_")]
    assert bool(tests) is block.is_test
    for test in tests:
        test()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_every_program_prints_what_its_page_says(tmp_path: Path) -> None:
    programs, outputs = tmp_path / "programs.json", tmp_path / "outputs.json"
    programs.write_text(json.dumps({b.name: b.text for b in PROGRAMS}), "utf-8")
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run_programs.py")), programs, outputs],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert json.loads(outputs.read_text("utf-8")) == {b.name: b.output for b in PROGRAMS}
