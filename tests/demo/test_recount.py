"""The demo's input and its judge: both have to be above suspicion."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weir.demo.payments import InputShape, event_time_ms, payments, rules_of, write_input
from weir.demo.recount import Comparison, compare, expected_output, read_output
from weir.demo.topics import expected_totals

SHAPE = InputShape(rows=3_000, files=5, seed=7)


def by_hand(source):
    """The output as a loop over all payments would make it."""
    rules = sorted(
        (row["from_ms"], row["limit_cents"], row["version"])
        for path in sorted((source / "rules").iterdir())
        for row in pq.read_table(path).to_pylist()
    )
    totals, merchants, rows = {}, {}, []
    for path in sorted((source / "payments").iterdir()):
        for paid in pq.read_table(path).to_pylist():
            card = paid["card"]
            totals[card] = totals.get(card, 0) + paid["amount_cents"]
            merchants.setdefault(card, set()).add(paid["merchant"])
            _, limit, version = [r for r in rules if r[0] <= paid["event_time_ms"]][-1]
            flagged = paid["amount_cents"] > limit
            rows.append((paid["seq"], card, totals[card], len(merchants[card]), flagged, version))
    return rows


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "input"
    write_input(SHAPE, folder)
    return folder


@pytest.fixture
def right(source):
    return expected_output(source)


def test_the_recount_agrees_with_a_loop_over_all_payments(source, right):
    rows = list(zip(*(column.tolist() for column in right.values()), strict=True))
    assert rows == by_hand(source)


def test_the_recount_of_topics_agrees_with_a_loop_over_all_payments():
    paid = payments(SHAPE, 0, SHAPE.rows)
    totals, counts, rows = {}, {}, []
    for seq, card, amount in zip(
        *(paid[n].tolist() for n in ("seq", "card", "amount_cents")), strict=True
    ):
        totals[card] = totals.get(card, 0) + amount
        counts[card] = counts.get(card, 0) + 1
        rows.append((seq, card, totals[card], counts[card]))
    columns = expected_totals(SHAPE)
    assert list(columns) == ["seq", "card", "total_cents", "payments"]
    assert list(zip(*(column.tolist() for column in columns.values()), strict=True)) == rows
    assert max(counts.values()) > 1
    wrong = {**columns, "payments": columns["payments"] + (columns["seq"] == 5)}
    assert compare(columns, wrong) == Comparison(3_000, 3_000, 0, 0, different=1)


def test_the_input_has_something_to_find(source, right):
    assert len(set(right["card"])) < SHAPE.rows  # cards come again
    assert right["merchants"].max() > 1
    assert 0 < right["flagged"].sum() < SHAPE.rows
    assert set(right["rule"]) == set(range(1, len(rules_of(SHAPE)) + 1))


def test_the_same_seed_gives_the_same_payments_and_another_seed_others():
    once, again = payments(SHAPE, 100, 200), payments(SHAPE, 100, 200)
    other = payments(InputShape(3_000, 5, 8), 100, 200)
    assert all((once[name] == again[name]).all() for name in once)
    assert (once["card"] != other["card"]).any()


def test_no_rule_applies_before_the_file_that_it_comes_with(source):
    for number, path in enumerate(sorted((source / "rules").iterdir())):
        first = event_time_ms(SHAPE.bounds(number)[0])
        assert all(row["from_ms"] >= first for row in pq.read_table(path).to_pylist())


def test_files_are_streamed_in_order_of_their_numbers(source):
    files = sorted((source / "payments").iterdir())
    times = [path.stat().st_mtime for path in files]
    assert times == sorted(set(times))


def test_right_output_in_any_order_is_exact(right):
    shuffled = {name: column[::-1] for name, column in right.items()}
    assert compare(right, shuffled) == Comparison(3_000, 3_000, 0, 0, 0)
    assert compare(right, shuffled).exact


@pytest.mark.parametrize("name", ["card", "total_cents", "merchants", "flagged", "rule"])
def test_one_wrong_value_is_found_in_every_column(right, name):
    wrong = {key: column.copy() for key, column in right.items()}
    wrong[name][1234] = not wrong[name][1234] if name == "flagged" else wrong[name][1234] + 1
    found = compare(right, wrong)
    assert (found.lost, found.duplicated, found.different) == (0, 0, 1)
    assert not found.exact


def test_lost_and_duplicated_rows_do_not_make_up_for_each_other(right):
    rows = np.r_[np.arange(1, 3_000), 17]
    found = compare(right, {name: column[rows] for name, column in right.items()})
    assert found == Comparison(3_000, 3_000, lost=1, duplicated=1, different=0)
    assert not found.exact


def test_a_row_that_nobody_expected_is_a_difference(right):
    extra = {name: np.r_[column, column[-1:]] for name, column in right.items()}
    extra["seq"][-1] = 99_999
    found = compare(right, extra)
    assert (found.lost, found.duplicated, found.different) == (0, 0, 1)
    assert not found.exact


def test_no_output_at_all_is_all_lost(right, tmp_path):
    found = compare(right, read_output(tmp_path))
    assert (found.got, found.lost, found.exact) == (0, 3_000, False)


def test_files_that_are_not_committed_do_not_count(right, tmp_path):
    table = pa.table(right)
    pq.write_table(table.slice(0, 2_000), tmp_path / "part-0.parquet")
    pq.write_table(table.slice(2_000), tmp_path / ".part-1.parquet")
    assert compare(right, read_output(tmp_path)).lost == 1_000
