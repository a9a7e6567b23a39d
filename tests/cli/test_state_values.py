"""`weir state cat`, `diff` and `export`: values as people and tools read them."""

from __future__ import annotations

import csv
import json

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.unit.offline.samples import KEYS, armed, job, take_savepoint

from weir.cli.main import cli
from weir.offline import read_snapshot
from weir.offline.export import read_file


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("WEIR_CONF_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A job with three checkpoints and a savepoint: the places of two checkpoints and of it."""
    root = tmp_path_factory.mktemp("state")
    harness = job(root, "hashmap-incremental")
    for _ in range(3):
        harness.run_epoch(take=6, checkpoint=True)
    place = take_savepoint(harness)
    harness.end_slots()
    armed.append(True)
    yield root / harness.job_id / "chk-1", root / harness.job_id / "chk-3", root / place
    armed.clear()


def invoke(*arguments, code=0):
    result = CliRunner().invoke(cli, ["state", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_cat_prints_a_table_whose_rows_can_be_limited(stored):
    lines = invoke("cat", stored[1], "everything", "total").splitlines()
    assert lines[0].split() == ["key_group", "key", "value", "ttl_timestamp"]
    assert len(lines) == 1 + KEYS
    short = invoke("cat", stored[1], "everything", "total", "--limit", 2).splitlines()
    assert short[:3] == lines[:3]
    assert "and more" in short[3]


def test_cat_finds_keys_and_key_groups(stored):
    [row] = invoke("cat", stored[1], "everything", "total", "--key", 3, "--format", "json").split(
        "\n"
    )[:-1]
    assert json.loads(row)["key"] == 3
    halves = [
        invoke("cat", stored[1], "everything", "total", "--key-groups", part, "--format", "json")
        for part in ("0-63", "64-127")
    ]
    assert "".join(halves) == invoke("cat", stored[1], "everything", "total", "--format", "json")
    assert "is no key" in invoke("cat", stored[1], "everything", "total", "--key", "x", code=2)
    assert "no range" in invoke(
        "cat", stored[1], "everything", "total", "--key-groups", "a-b", code=2
    )


def test_cat_shows_positions_operators_and_asks_for_what_is_missing(stored):
    assert "numbers" in invoke("cat", stored[1], "--of", "sources")
    assert "ValueState" in invoke("cat", stored[1], "--of", "operators")
    assert invoke("cat", stored[1], "--of", "in-flight").split()[0] == "subtask"
    assert "everything" in invoke("cat", stored[1], code=2)
    assert "'seen'" in invoke("cat", stored[1], "everything", code=2)
    assert "--unpickle" in invoke("cat", stored[1], "everything", "bombs", code=2)


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
@pytest.mark.parametrize("name", ["total", "seen", "_timer.event", "buffer"])
def test_what_is_exported_can_be_read_back_the_same(stored, form, name, tmp_path):
    file = tmp_path / f"values.{form}"
    said = invoke("export", stored[2], "everything", name, "-o", file)
    table = read_snapshot(str(stored[2])).table("everything", name)
    expected = [row for batch in table.batches() for row in batch.to_pylist()]
    for row in expected:
        row.pop("key_group", None)
    assert said.startswith(f"{len(expected):,} rows")
    found = [r for b in read_file(str(file), form, table.schema) for r in b.to_pylist()]
    assert found == expected
    if form == "parquet":
        assert pq.read_table(file).num_rows == len(expected)
    elif form == "csv":
        with file.open(newline="") as lines:
            assert len(list(csv.DictReader(lines))) == len(expected)


def test_an_export_replaces_nothing_and_leaves_nothing_half_written(stored, tmp_path):
    file = tmp_path / "values.json"
    file.write_text("mine")
    assert "exists" in invoke("export", stored[2], "everything", "total", "-o", file, code=2)
    assert file.read_text() == "mine"
    other = tmp_path / "bombs.csv"
    assert "--unpickle" in invoke("export", stored[2], "everything", "bombs", "-o", other, code=2)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["values.json"]
    assert "--format" in invoke("export", stored[2], "everything", "total", "-o", "x", code=2)


def test_diff_tells_what_was_added_removed_and_changed_with_examples(stored):
    said = invoke("diff", stored[0], stored[1], "everything", "total")
    head, *examples = said.splitlines()
    assert head == "everything / total (ValueState): 1 added, 0 removed, 6 changed, 0 equal"
    assert any(line.startswith("  ~ 1: (1, 0) -> (24, 0)") for line in examples)
    assert examples[-1] == "  … and 2 more"
    back = json.loads(invoke("diff", stored[1], stored[0], "everything", "total", "--json"))
    assert (back[0]["added"], back[0]["removed"], back[0]["changed"]) == (0, 1, 6)


def test_diff_of_everything_names_states_that_need_unpickling_and_moved_sources(stored):
    said = invoke("diff", stored[0], stored[1])
    assert "numbers / position (source): 0 added, 0 removed, 1 changed" in said
    assert "--unpickle" in said
    assert invoke("diff", stored[1], stored[1], "everything", "total") == "Nothing differs.\n"
    invoke("diff", stored[0], stored[1], "everything", "total", "--exit-code", code=1)
    assert "neither side" in invoke("diff", stored[0], stored[1], "everything", "x", code=2)


def values(place, name="total"):
    table = read_snapshot(str(place)).table("everything", name)
    return {row["key"]: row["value"] for b in table.batches() for row in b.to_pylist()}


@pytest.mark.parametrize(
    ("form", "text"),
    [("json", "[" * 100_000), ("json", "7\n"), ("csv", f"key,value\n1,{'9' * 200_000}\n")],
)
def test_a_file_that_cannot_be_imported_is_named(stored, form, text, tmp_path):
    file = tmp_path / f"values.{form}"
    file.write_text(text)
    target = tmp_path / "savepoint-new"
    words = ("import", stored[2], "everything", "total", file, "--to", target)
    assert "values" in invoke(*words, code=2) or form == "json"
    assert not target.exists()


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_what_is_exported_changed_and_imported_is_in_the_new_savepoint(stored, form, tmp_path):
    file = tmp_path / f"values.{form}"
    invoke("export", stored[2], "everything", "total", "-o", file)
    said = invoke(
        "import", stored[2], "everything", "total", file, "--to", tmp_path / "savepoint-new"
    )
    assert "savepoint-new" in said
    assert values(tmp_path / "savepoint-new") == values(stored[2])
    again = invoke("diff", stored[2], tmp_path / "savepoint-new", "everything", "total")
    assert again == "Nothing differs.\n"
    assert "not empty" in invoke(
        "import", stored[2], "everything", "total", file, "--to", stored[2], code=2
    )


def test_edit_sets_deletes_renames_and_moves(stored, tmp_path):
    target = tmp_path / "savepoint-edited"
    changes = ["--set", "everything", "total", "3", "99", "--delete", "everything", "total", "4"]
    changes += ["--rename-state", "everything", "seen", "known"]
    changes += ["--position", "numbers", '{"next": 7}', "--rename-operator", "everything", "all"]
    invoke("edit", stored[2], "--to", target, *changes)
    edited = read_snapshot(str(target))
    table = edited.table("all", "total")
    found = {row["key"]: row["value"] for b in table.batches() for row in b.to_pylist()}
    before = values(stored[2])
    assert found == {k: 99 if k == 3 else v for k, v in before.items() if k != 4}
    assert "known" in {state.name for state in edited.states()}
    assert edited.sources().rows[0][2] == '{"next": 7}'


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--delete", "everything", "total", "777"], "no key '777'"),
        (["--set", "everything", "total", "3", "x"], "column 'value' expects"),
        (["--set", "everything", "seen", "3", "1"], "is a MapState"),
        (["--rename-state", "everything", "seen", "total"], "already"),
        (["--remove-operator", "x"], "no operator 'x'"),
    ],
)
def test_an_edit_that_cannot_be_is_refused_and_leaves_nothing(stored, changes, message, tmp_path):
    target = tmp_path / "savepoint-edited"
    assert message in invoke("edit", stored[2], "--to", target, *changes, code=2)
    assert not target.exists()
