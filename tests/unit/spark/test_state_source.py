"""Stored state as a data source, without a session: options, types, splits, rows."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql import types as T
from tests.harness.state_programs import STATES, every_kind, run_job

from weir.codec.portable import portable
from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.offline import read_snapshot
from weir.spark.state_source import ReadOptions, StateReader, StateSource, spark_type, splits_of


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("state")
    harness = run_job(every_kind(), root, 2)
    harness.run_epoch(take=12, checkpoint=True)
    harness.end_slots()
    return str(root / harness.job_id / "chk-1")


def rows(place, **options):
    reader = StateReader(ReadOptions.of({"path": place, "operator": "kinds", **options}))
    there = pickle.loads(pickle.dumps(reader))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    return parts, [row for part in parts for b in there.read(part) for row in b.to_pylist()]


@pytest.mark.parametrize("state", [*STATES, "buffer"])
def test_the_splits_of_a_state_are_the_state(place, state):
    table = read_snapshot(place).table("kinds", state)
    expected = [row for batch in table.batches() for row in batch.to_pylist()]
    parts, found = rows(place, state=state, splits="5")
    assert found == expected
    assert len(parts) == (1 if state == "buffer" else 5)
    source = StateSource({"path": place, "operator": "kinds", "state": state})
    assert source.schema().names == table.schema.names


def test_keys_and_key_groups_choose_rows(place):
    _, found = rows(place, state="total", keys="[3, 5, 99]")
    assert sorted(row["key"] for row in found) == [3, 5]
    _, one = rows(place, state="total", keys="3")
    assert [row["key"] for row in one] == [3]
    _, low = rows(place, state="total", keyGroups="0-63")
    _, high = rows(place, state="total", keygroups="64-127")
    _, everything = rows(place, state="total")
    assert low + high == everything
    assert rows(place, state="total", keyGroups="500-600")[1] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'path' is missing"),
        ({"path": "x", "operator": "o"}, "'state' is missing"),
        ({"path": "x", "operator": "o", "state": "s", "key": "1"}, "unknown option 'key'"),
        ({"path": "x", "operator": "o", "state": "s", "splits": "0"}, "from 1 on"),
    ],
)
def test_options_that_are_none_are_refused_by_name(options, message):
    with pytest.raises(UsageError, match=message):
        ReadOptions.of(options)


def test_settings_of_storages_are_options_with_a_dot():
    given = {"path": "x", "operator": "o", "state": "s", "s3.endpoint": "https://there"}
    assert ReadOptions.of(given).storage.s3_endpoint == "https://there"


def test_every_key_group_is_in_one_split():
    for width in (1, 2, 7, 128):
        for count in (1, 3, 8, 200):
            parts = splits_of(KeyGroupRange(0, width - 1), count)
            groups = [
                g for part in parts for g in range(part.key_groups[0], part.key_groups[1] + 1)
            ]
            assert groups == list(range(width))


def test_types_of_columns_are_sparks():
    point = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.MAP(Types.STRING(), Types.DOUBLE())])
    assert spark_type(portable(Types.LIST(point)).arrow).simpleString() == (
        "array<struct<a:int,b:map<string,double>>>"
    )
    assert spark_type(portable(Types.SQL_TIMESTAMP()).arrow) == T.TimestampNTZType()
    assert spark_type(portable(Types.TIMESTAMP_LTZ()).arrow) == T.TimestampType()
    with pytest.raises(UsageError, match="no type"):
        spark_type(pa.time64("us"))
