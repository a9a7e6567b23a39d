"""When a slot gives up for lack of memory, and what it says about it."""

from __future__ import annotations

import threading

import pytest

from weir.slot.cgroup import memory_folders
from weir.slot.memory_watch import Space, decide, own_bytes, spaces, watch_memory

MB = 1 << 20


def test_a_slot_may_use_what_its_limit_says_and_no_more():
    assert decide(100 * MB, 100 * MB, []) is None
    found = decide(100 * MB + 1, 100 * MB, [])
    assert found == "it uses 100 MB, and taskmanager.memory.process.size is 100 MB"


def test_with_a_limit_the_rest_of_the_host_does_not_matter():
    assert decide(90 * MB, 100 * MB, [Space("its host", 100 * MB, 0)]) is None


@pytest.mark.parametrize(
    ("own", "available", "gives_up"),
    [(4000, 100, True), (4000, 1000, False), (2000, 100, False), (2500, 127, True)],
)
def test_without_a_limit_a_slot_with_half_of_the_memory_gives_up_before_it_is_out(
    own, available, gives_up
):
    space = Space("its container", 5000 * MB, available * MB)
    assert (decide(own * MB, None, [space]) is not None) is gives_up


def test_the_reason_names_the_container_and_what_is_left():
    found = decide(4300 * MB, None, [Space("its container", 5000 * MB, 60 * MB)])
    assert found == "it uses 4300 MB, and of the 5000 MB of its container only 60 MB are left"


def files(folder, **texts):
    for name, text in texts.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


def test_memory_of_a_container_and_its_host_is_read(tmp_path):
    files(
        tmp_path,
        memory_max=f"{1000 * MB}\n",
        memory_current=f"{900 * MB}\n",
        memory_stat=f"anon {800 * MB}\ninactive_file {50 * MB}\n",
    )
    info = tmp_path / "meminfo"
    info.write_text("MemTotal: 8192 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n")
    assert spaces([tmp_path / "none", tmp_path], info) == [
        Space("its container", 1000 * MB, 150 * MB),
        Space("its host", 8 * MB, MB),
    ]


def test_a_container_without_a_limit_is_its_host(tmp_path):
    files(tmp_path, memory_max="max\n", memory_current="1\n", memory_stat="anon 1\n")
    assert spaces([tmp_path], tmp_path / "none") == []


def test_memory_of_a_container_in_the_older_form_is_read(tmp_path):
    group = tmp_path
    (group / "memory.limit_in_bytes").write_text("1000\n")
    (group / "memory.usage_in_bytes").write_text("900\n")
    (group / "memory.stat").write_text("total_inactive_file 10\n")
    assert spaces([tmp_path], tmp_path / "none") == [Space("its container", 1000, 110)]


def test_memory_is_watched_until_there_is_a_reason():
    reasons = []
    watch_memory(1, threading.Event(), reasons.append)
    assert "it uses" in reasons[0]
    assert own_bytes() > MB


def test_nobody_is_watched_who_leaves():
    leaving = threading.Event()
    leaving.set()
    watch_memory(1, leaving, lambda reason: pytest.fail(reason))


def test_the_control_groups_of_a_process_are_found_its_own_first(tmp_path):
    membership = tmp_path / "cgroup"
    membership.write_text("4:cpu,memory:/docker/abc\n3:cpuset:/other\n0::/user.slice/job.scope\n")
    found = memory_folders(tmp_path, membership)
    assert [str(folder.relative_to(tmp_path)) for folder in found] == [
        "memory/docker/abc",
        "memory/docker",
        "memory",
        "user.slice/job.scope",
        "user.slice",
        ".",
    ]
    assert memory_folders(tmp_path, tmp_path / "none") == []
