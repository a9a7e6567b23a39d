"""The crash-on-demand storage crashes where it was told, and only there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weir.errors import StorageError
from weir.storage import LocalStorage, MemoryStorage, Storage
from weir.testing.faulty_storage import (
    CrashMoment,
    FaultPlan,
    FaultyStorage,
    SimulatedCrash,
    StorageCall,
)


def write(storage: Storage, path: str, data: bytes) -> None:
    with storage.open_write(path) as file:
        file.write(data)


def test_calls_are_numbered_and_recorded() -> None:
    storage = FaultyStorage(MemoryStorage())
    storage.create("a", b"1")
    write(storage, "b", b"2")
    storage.read("a")
    assert storage.trace == [
        StorageCall(1, "create", "a"),
        StorageCall(2, "open_write", "b"),
        StorageCall(3, "read", "a"),
    ]


@pytest.mark.parametrize(
    ("moment", "visible"),
    [(CrashMoment.BEFORE, False), (CrashMoment.MIDDLE, False), (CrashMoment.AFTER, True)],
)
@pytest.mark.parametrize("operation", ["create", "open_write"])
def test_a_crash_around_a_write_leaves_all_or_nothing_visible(
    tmp_path: Path, operation: str, moment: CrashMoment, visible: bool
) -> None:
    inner = LocalStorage(str(tmp_path))
    storage = FaultyStorage(inner, FaultPlan(crash_at=1, moment=moment))
    save = FaultyStorage.create if operation == "create" else write
    with pytest.raises(SimulatedCrash):
        save(storage, "f", b"data")
    assert inner.exists("f") is visible
    torn = moment is CrashMoment.MIDDLE
    assert any(name.startswith(".f") for name in os.listdir(tmp_path)) is torn


def test_a_dead_storage_stays_dead() -> None:
    inner = MemoryStorage()
    storage = FaultyStorage(inner, FaultPlan(crash_at=2))
    storage.create("a", b"")
    for _ in range(3):
        with pytest.raises(SimulatedCrash):
            storage.delete("a")
    assert inner.exists("a")
    assert len(storage.trace) == 2


def test_a_crash_in_the_middle_of_a_tree_leaves_a_part_of_it() -> None:
    inner = MemoryStorage()
    for name in ("1", "2", "sub/3", "4"):
        inner.create(f"d/{name}", b"")
    storage = FaultyStorage(inner, FaultPlan(crash_at=1, moment=CrashMoment.MIDDLE))
    with pytest.raises(SimulatedCrash):
        storage.delete_tree("d")
    assert inner.list("d") == ["4", "sub"]


def test_refusals_come_once_or_always() -> None:
    storage = FaultyStorage(MemoryStorage(), FaultPlan(fail_at=frozenset({1}), fail_from=3))
    with pytest.raises(StorageError):
        storage.create("a", b"")
    storage.create("a", b"")
    for _ in range(3):
        with pytest.raises(StorageError, match="on purpose"):
            storage.read("a")


def test_refusals_can_be_asked_for_one_operation() -> None:
    storage = FaultyStorage(MemoryStorage(), FaultPlan(fail_from=1, only="delete"))
    storage.create("a", b"")
    with pytest.raises(StorageError):
        storage.delete("a")
    storage.fail_next("read")
    with pytest.raises(StorageError):
        storage.read("a")
    assert storage.read("a") == b""


def test_a_seed_always_gives_the_same_crash_within_the_points() -> None:
    plans = [FaultPlan.from_seed(seed, 7) for seed in range(200)]
    assert plans == [FaultPlan.from_seed(seed, 7) for seed in range(200)]
    assert {plan.crash_at for plan in plans} == set(range(1, 8))
    assert {plan.moment for plan in plans} == set(CrashMoment)
