"""Local directories: placed as configured, removed at the end, and also after a violent one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weir.backend.rocksdb.localdir import LocalDirectory, choose_base, remove_leftovers
from weir.errors import UsageError

KEY = "state.backend.rocksdb.localdir"
PLACEMENT = KEY + ".placement"


def test_without_configuration_the_slots_directory_is_used(tmp_path: Path) -> None:
    assert choose_base({}, tmp_path, "op", 0) == tmp_path
    assert choose_base({}, None, "op", 0).is_dir()


def test_directories_are_separated_by_commas_or_the_systems_separator(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    text = f"{a}, {b}{os.pathsep}{c}"
    found = [
        choose_base({KEY: text, PLACEMENT: "round-robin"}, None, "op", 0, turn) for turn in range(4)
    ]
    assert found == [a, b, c, a]


def test_directories_may_be_uris_of_local_files_and_no_others(tmp_path: Path) -> None:
    text = f"file://{tmp_path}/a:file:{tmp_path}/b,{tmp_path}/c"
    chosen = {choose_base({KEY: text}, None, "op", subtask) for subtask in range(40)}
    assert chosen == {tmp_path / name for name in "abc"}
    for wrong in ("hdfs://nn:8020/rocks", "rocks", "/a:rocks"):
        with pytest.raises(UsageError, match=f"{KEY} names"):
            choose_base({KEY: wrong}, None, "op", 0)


def test_random_placement_depends_on_operator_and_subtask_alone(tmp_path: Path) -> None:
    values = {KEY: ",".join(str(tmp_path / str(i)) for i in range(4))}
    found = {
        (operator, subtask): choose_base(values, None, operator, subtask)
        for operator in ("one", "two")
        for subtask in range(20)
    }
    assert all(choose_base(values, None, *key) == base for key, base in found.items())
    assert len(set(found.values())) == 4


def test_the_least_loaded_directory_has_the_fewest_databases(tmp_path: Path) -> None:
    values = {KEY: f"{tmp_path / 'a'},{tmp_path / 'b'}", PLACEMENT: "least-loaded"}
    made = [
        LocalDirectory(choose_base(values, None, "op", number), f"op-{number}")
        for number in range(6)
    ]
    assert sorted(d.path.parent.name for d in made) == ["a", "a", "a", "b", "b", "b"]
    for directory in made:
        directory.remove()
        directory.remove()
    assert not any((tmp_path / "a").iterdir())


@pytest.mark.slow
def test_directories_of_killed_processes_are_removed_and_those_of_living_ones_stay(
    tmp_path: Path,
) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from weir.backend.rocksdb.localdir import LocalDirectory\n"
        "made = LocalDirectory(Path(sys.argv[1]), 'op/0')\n"
        "(made.path / 'state').write_text('x')\n"
        "print(made.path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    left = Path(killed.stdout.strip())
    assert left.exists()
    alive = LocalDirectory(tmp_path, "other")
    assert not left.exists()
    assert remove_leftovers(tmp_path) == []
    assert alive.path.exists()
    alive.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_process_that_ends_in_order_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from weir.backend.rocksdb.localdir import LocalDirectory\n"
        "made = LocalDirectory(Path(sys.argv[1]), 'op')\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("theirs", ["lock", "directory"])
def test_what_belongs_to_another_user_is_no_leftover(tmp_path: Path, theirs: str) -> None:
    directory, lock = tmp_path / "weir-rocksdb-1-x-0", tmp_path / "weir-rocksdb-1-x-0.lock"
    directory.mkdir()
    lock.touch()
    os.chown(lock if theirs == "lock" else directory, 65534, 65534)
    assert remove_leftovers(tmp_path) == []
    assert directory.exists()
    assert lock.exists()


def test_links_in_place_of_leftovers_lead_nowhere(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    base = tmp_path / "base"
    base.mkdir()
    (base / "weir-rocksdb-1-x-0.lock").symlink_to(victim / "file")
    (base / "weir-rocksdb-2-x-0.lock").touch()
    (base / "weir-rocksdb-2-x-0").symlink_to(victim)
    remove_leftovers(base)
    assert (victim / "file").read_text() == "mine"
