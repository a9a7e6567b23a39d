"""Positions that another job can start from, without Spark."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import pytest
from tests.unit.spark.test_positions import META, entry

from weir.checkpoint.metadata import SourceLayout, SourcePositions, layout_of
from weir.connector.spool import Spool, spool_collection, spool_sequence
from weir.errors import CorruptStateError, IncompatibleStateError
from weir.spark.positions import prepare_query_dir, read_positions
from weir.spark.resume import EMBEDDED_BYTES_MAX, Describer, Resume
from weir.storage.local import LocalStorage


@pytest.fixture
def query(tmp_path):
    """The query directory of a job with a collection, a file source, Kafka and a DataFrame."""
    folder = tmp_path / "query-0"
    offsets = [
        json.dumps({"logOffset": 1}),
        json.dumps({"logOffset": 2}),
        json.dumps({"topic": {"0": 7}}),
        json.dumps({"logOffset": 0}),
    ]
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "5").write_text("\n".join(["v1", META, *offsets]))
    logs = {0: 2, 1: 4, 3: 1}
    for source, batches in logs.items():
        (folder / "sources" / str(source)).mkdir(parents=True)
        for batch in range(batches):
            name = f"part-{batch}%20a.parquet" if source == 3 else f"f{batch}"
            text = "\n".join(["v1", entry(batch, name)])
            (folder / "sources" / str(source) / str(batch)).write_text(text)
    (folder / "sources" / "2").mkdir()
    (folder / "sources" / "2" / "0").write_text("\x00v1\n{}")
    return folder


@pytest.fixture
def describer(tmp_path):
    path = spool_collection(tmp_path / "spool" / "0", list(range(10)), None, 4, skip=0)
    kept = tmp_path / "spool" / "3" / "dataframe"
    kept.mkdir(parents=True)
    for name in ("part-0 a", "part-1", "part-2"):
        (kept / f"{name}.parquet").write_text(name)
    return Describer({0: Spool(path, 100)}, {3: kept})


UIDS = ["numbers", "files", "kafka", "table"]


def test_a_savepoint_needs_nothing_of_the_job_that_took_it(tmp_path, query, describer):
    raw = read_positions(query, 5, layout_of(UIDS))
    target = tmp_path / "savepoint-1"
    storage = LocalStorage(str(tmp_path))
    found = describer.describe(raw, f"{storage.uri}/savepoint-1")
    shutil.rmtree(query)
    shutil.rmtree(tmp_path / "spool")
    assert str(tmp_path) not in repr(found)
    resume = Resume(found, storage, "savepoint-1")
    assert resume.records("numbers") == 108
    assert resume.records("files") == 0
    table = tmp_path / "new" / "table"
    assert resume.take_kept("table", table)
    assert sorted(p.name for p in table.iterdir()) == ["part-1.parquet", "part-2.parquet"]
    assert not resume.take_kept("new", tmp_path / "new" / "none")
    assert sorted(p.name for p in target.iterdir()) == ["spool-3"]
    new = tmp_path / "query"
    prepare_query_dir(new, found, layout_of(["kafka", "numbers", "files", "table"]), {1, 3})
    lines = (new / "offsets" / "0").read_text().splitlines()[2:]
    assert lines == [json.dumps({"topic": {"0": 7}}), "-", json.dumps({"logOffset": 2}), "-"]
    assert (new / "sources" / "0" / "0").read_text() == "\x00v1\n{}"
    assert sorted(p.name for p in (new / "sources" / "2").iterdir()) == ["0", "1", "2"]
    assert not (new / "sources" / "1").exists()
    assert not (new / "sources" / "3").exists()


def test_a_checkpoint_holds_short_logs_and_names_long_ones(tmp_path, query, describer):
    long = entry(3, "x" * EMBEDDED_BYTES_MAX)
    (query / "sources" / "1" / "3").write_text(f"v1\n{long}")
    raw = read_positions(query, 5, layout_of(UIDS))
    found = describer.describe(raw, None)
    assert "sources/2/0" in found.source_logs
    assert not [name for name in found.source_logs if name.startswith("sources/1/")]
    prepare_query_dir(tmp_path / "new", found, layout_of(["files"]))
    assert sorted(p.name for p in (tmp_path / "new/sources/0").iterdir()) == ["0", "1", "2"]
    resume = Resume(found, LocalStorage(str(tmp_path)), "job/chk-1")
    assert resume.take_kept("table", tmp_path / "copied")
    assert len(list((tmp_path / "copied").iterdir())) == 2
    shutil.rmtree(query)
    with pytest.raises(CorruptStateError, match=r"weir\.work-dir"):
        prepare_query_dir(tmp_path / "other", found, layout_of(["files"]))
    prepare_query_dir(tmp_path / "third", found, layout_of(["kafka"]))
    shutil.rmtree(tmp_path / "spool")
    with pytest.raises(CorruptStateError, match="'table' that checkpoint 'job/chk-1'"):
        resume.take_kept("table", tmp_path / "again")


def test_a_job_goes_on_in_its_own_logs(tmp_path, query, describer):
    found = describer.describe(read_positions(query, 5, layout_of(UIDS)), None)
    prepare_query_dir(tmp_path / "new", found, layout_of(UIDS))
    lines = (tmp_path / "new" / "offsets" / "0").read_text().splitlines()
    assert lines[2] == json.dumps({"logOffset": 1})
    assert sorted(p.name for p in (tmp_path / "new/sources/0").iterdir()) == ["0", "1"]


def test_positions_that_did_not_count_records_are_refused():
    old = SourcePositions(3, ("v1", META, "-"), (), {"@spool": "/x"}, layout_of(["numbers"]))
    with pytest.raises(IncompatibleStateError, match="'numbers' were read"):
        Resume(old, None, "chk-3").records("numbers")
    assert Resume(old, None, "chk-3").records("new") == 0


def test_a_spool_begins_behind_the_records_that_were_read(tmp_path):
    path = spool_collection(tmp_path / "a", list("abcdefgh"), None, 3, skip=2)
    spool = Spool(path, 2)
    assert [spool.records(n) for n in range(3)] == [2, 5, 8]
    assert spool.journaled() == 8
    numbers = Spool(spool_sequence(tmp_path / "b", 5, 20, 4, skip=3), 3)
    assert [numbers.records(n) for n in range(5)] == [3, 7, 11, 15, 16]
    first = pq.read_table(numbers.directory / "00000000.parquet")
    assert first.to_pydict() == {"start": [8], "stop": [12]}
    assert Spool(spool_collection(tmp_path / "c", list("ab"), None, 3, skip=2), 2).journaled() == 2


@pytest.mark.parametrize("spool", ["../x", "spool-0/..", ".", "", "spool-x", "a/b"])
def test_rows_are_not_looked_for_outside_of_the_savepoint(tmp_path, spool):
    layout = (SourceLayout("table", 0, spool=spool),)
    resume = Resume(SourcePositions(layout=layout), LocalStorage(str(tmp_path)), "savepoint-1")
    with pytest.raises(CorruptStateError, match=r"'table' are said to be in"):
        resume.take_kept("table", tmp_path / "new")
