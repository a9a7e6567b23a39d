"""What tasks of Spark do with rows that become state, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.keygroup import key_group
from weir.offline.writing import Target, state_kind
from weir.snapshot import SnapshotReader
from weir.spark.salts import salts
from weir.spark.savepoints import _Task

WIDTH, GROUPS = 3, 16
KIND = state_kind("VALUE", key=Types.LONG(), value=Types.STRING())


def task_at(path: Path) -> _Task:
    target = Target.at(str(path / "savepoint"))
    return _Task(target, ("0" * 32, WIDTH, GROUPS), "s", (KIND, False, False))


def batch_of(keys: list[int | None], **more: list[int]) -> pa.RecordBatch:
    values = [None if key is None else f"v{key}" for key in keys]
    columns = {"key": pa.array(keys, pa.int64()), "value": pa.array(values, pa.string())}
    return pa.RecordBatch.from_pydict({**columns, **more})


def test_rows_reach_the_subtask_of_their_key_and_lie_in_the_order_of_groups(tmp_path: Path) -> None:
    task = task_at(tmp_path)
    # A column of key groups is not believed; rows of one batch go to several subtasks.
    given = [
        batch_of(list(range(n, 500, 5)), key_group=[7] * len(range(n, 500, 5))) for n in range(5)
    ]
    placed = list(task.place([*given, batch_of([])]))
    subtask_of = {salt: index for index, salt in enumerate(salts(WIDTH))}
    owned: list[list[pa.RecordBatch]] = [[] for _ in range(WIDTH)]
    for batch in placed:
        assert batch.num_rows <= WIDTH, "rows are packed"
        for place, salt in enumerate(batch.column(0).to_pylist()):
            owned[subtask_of[salt]].append(batch.slice(place, 1))
    found: dict[int, str] = {}
    for index in range(WIDTH):
        file = task.written(index, owned[index])
        data = (tmp_path / "savepoint" / file.path).read_bytes()
        reader = SnapshotReader(lambda at, n, data=data: data[at : at + n], len(data), "file")
        groups = reader.operator("0" * 32)["keyed"]["s"]["groups"]
        assert list(map(int, groups)) == sorted(map(int, groups))
        for group, parts in groups.items():
            assert int(group) * WIDTH // GROUPS == index
            for section in reader.sections(parts):
                for key, value in task.layout().format.decode(section, "file"):
                    assert key_group(key, GROUPS) == int(group)
                    found[key] = value
    assert found == {key: f"v{key}" for key in range(500)}


def test_a_key_that_is_null_or_there_twice_is_refused(tmp_path: Path) -> None:
    task = task_at(tmp_path)
    with pytest.raises(UsageError, match="a key cannot be null"):
        list(task.place([batch_of([1, None])]))
    twice = list(task.place([batch_of([1]), batch_of([1])]))
    with pytest.raises(UsageError, match="is there twice"):
        task.written(key_group(1, GROUPS) * WIDTH // GROUPS, twice)
