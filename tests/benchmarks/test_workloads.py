"""Input is the same every time, and the expected results are right by a second computation."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from benchmarks.workloads.catalogue import (
    ALL,
    BY_NAME,
    CLOSING_KEY,
    FLUSH_AT,
    GAP_MS,
    REGIONS,
    RULES,
    SLIDE_MS,
    TUMBLE_MS,
    WINDOW_MS,
    Workload,
)
from benchmarks.workloads.checksum import Checksum, of_columns, of_rows
from benchmarks.workloads.dataset import Size, generate, prepare, with_csv
from benchmarks.workloads.expected import BY_KIND
from benchmarks.workloads.rows import BLOCK, partition_of, rules

SMALL = Size(2, BLOCK, 50)
KINDS = list({workload.kind: workload for workload in ALL}.values())


def rows_of(workload: Workload, size: Size) -> list[tuple]:
    columns = [part for epoch in generate(workload, size) for part in epoch]
    return [row for part in columns for row in zip(*(c.tolist() for c in part), strict=True)]


# ---- input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", KINDS, ids=lambda w: w.kind)
def test_input_is_the_same_every_time(workload: Workload) -> None:
    assert rows_of(workload, SMALL) == rows_of(workload, SMALL)


@pytest.mark.parametrize("workload", KINDS, ids=lambda w: w.kind)
def test_fewer_rows_are_the_beginning_of_more(workload: Workload) -> None:
    few = Counter(rows_of(workload, Size(1, BLOCK, 50)))
    many = Counter(rows_of(workload, Size(1, 3 * BLOCK, 50)))
    assert few <= many


def test_all_rows_of_a_key_are_in_one_partition() -> None:
    for partitions in generate(BY_NAME["a-1k"], Size(2, 2 * BLOCK, 500)):
        assert all((partition_of(part[0]) == p).all() for p, part in enumerate(partitions))
        assert all(len(part[0]) > BLOCK // 2 for part in partitions)


def test_every_column_of_a_workload_has_values() -> None:
    for workload in KINDS:
        for partitions in generate(workload, SMALL):
            assert {len(part) for part in partitions} == {len(workload.columns)}


# ---- expected results, computed another way ------------------------------------------------------


def by_key(rows: list[tuple]) -> dict:
    found = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def in_windows(rows: list[tuple], keyed: bool = True, size=TUMBLE_MS, slide=TUMBLE_MS) -> dict:
    """Return the rows of each window, by (key, end), found by asking every window."""
    times = [row[-1] for row in rows]
    first = min(times) // slide * slide + slide
    found = {}
    for end in range(first, max(times) + size + 1, slide):
        inside = [row for row in rows if end - size <= row[-1] < end]
        for key, group in (by_key(inside) if keyed else {None: inside}).items():
            if group:
                found[key, end] = group
    return found


def hot_items(rows: list[tuple]) -> list[tuple]:
    counts = {w: len(g) for w, g in in_windows(rows, slide=SLIDE_MS).items()}
    most = {end: n for n, end in sorted((n, end) for (_, end), n in counts.items())}
    return [(key, n, end) for (key, end), n in counts.items() if n == most[end]]


def sessions(rows: list[tuple]) -> list[tuple]:
    """Join every two bids that are close enough, whatever lies between them."""
    found = []
    for key, group in by_key(rows).items():
        times = sorted(row[-1] for row in group)
        starts = [t for t in times if not any(t - GAP_MS <= s < t for s in times)]
        for start, following in zip(starts, [*starts[1:], float("inf")], strict=True):
            inside = [t for t in times if start <= t < following]
            found.append((key, len(inside), start, max(inside) + GAP_MS))
    return found


WINDOWS = {
    "window-sum": lambda rows: [
        (key, sum(r[1] for r in group), end) for (key, end), group in in_windows(rows).items()
    ],
    "window-process": lambda rows: [
        (key, len(group), np.ptp([r[1] for r in group]).item(), end)
        for (key, end), group in in_windows(rows).items()
    ],
    "hot-items": hot_items,
    "highest-bid": lambda rows: [
        (*max(group, key=lambda r: r[2])[:3], end)
        for (_, end), group in in_windows(rows, keyed=False).items()
    ],
    "new-users": lambda rows: [
        (key, end)
        for (key, end), group in in_windows(rows).items()
        if {r[1] for r in group} == {1, 2}
    ],
    "sessions": sessions,
    "processing-time": lambda rows: [(row[0],) for row in rows],
}


def second_opinion(kind: str, rows: list[tuple]) -> list[tuple]:
    keyed = by_key(rows)
    if kind == "least":
        return [
            (key, row[1], min(r[1] for r in group[: n + 1]))
            for key, group in keyed.items()
            for n, row in enumerate(group)
        ]
    if kind == "wide":
        lows = second_opinion("least", [(r[0], r[1]) for r in rows])
        whole = [row for group in keyed.values() for row in group]
        return [(*row, low[2]) for row, low in zip(whole, lows, strict=True)]
    if kind == "distinct":
        return list(set(rows))
    if kind in ("reduce", "sum"):
        return [
            (key, total)
            for key, group in keyed.items()
            for total in np.cumsum([r[1] for r in group]).tolist()
        ]
    if kind == "flush":
        return [
            (key, sum(r[1] for r in group[n - FLUSH_AT : n]) // FLUSH_AT)
            for key, group in keyed.items()
            for n in range(FLUSH_AT, len(group) + 1, FLUSH_AT)
        ]
    if kind == "rules":
        limits = [threshold for _, threshold in rules()]
        matching = {k: [r for r in g if r[1] >= limits[r[1] % RULES]] for k, g in keyed.items()}
        return [
            (key, row[1] % RULES, n)
            for key, group in matching.items()
            for n, row in enumerate(group, 1)
        ]
    if kind in WINDOWS:
        return WINDOWS[kind]([row for row in rows if row[0] != CLOSING_KEY])
    counts = Counter(
        (key, ts // WINDOW_MS * WINDOW_MS + WINDOW_MS) for key, ts in rows if key != CLOSING_KEY
    )
    return [(*window, count) for window, count in counts.items()]


@pytest.mark.parametrize("workload", [w for w in KINDS if w.kind != "stages"], ids=lambda w: w.kind)
def test_the_expected_result_is_that_of_another_computation(workload: Workload) -> None:
    rows = rows_of(workload, SMALL)
    got = list(BY_KIND[workload.kind](iter(rows)))
    want = second_opinion(workload.kind, rows)
    assert Counter(got) == Counter(want)
    assert of_rows(got, workload.groups) == of_rows(want, workload.groups) != Checksum()


def test_two_stages_count_every_region_and_keep_the_first_stage() -> None:
    rows = rows_of(BY_NAME["f"], SMALL)
    got = list(BY_KIND["stages"](iter(rows)))
    sizes = Counter(value % REGIONS for _, value in rows)
    numbered = [(region, n) for region, size in sizes.items() for n in range(1, size + 1)]
    assert Counter(row[:2] for row in got) == Counter(numbered)
    lows = [(key, low) for key, _, low in second_opinion("least", rows)]
    assert Counter(row[2:] for row in got) == Counter(lows)


def test_no_rule_matches_in_the_warm_up() -> None:
    warm = rows_of(BY_NAME["e"], Size(1, BLOCK, 50))
    assert list(BY_KIND["rules"](iter(warm))) == []


@pytest.mark.parametrize("kind", sorted(WINDOWS))
def test_windows_of_every_size_end_while_rows_come(kind: str, tmp_path: Path) -> None:
    workload = next(w for w in ALL if w.kind == kind)
    for size in (Size(3, BLOCK, 166), Size(2, BLOCK, 110)):
        found = prepare(workload, size, tmp_path)
        assert 0 < found.warm_outputs < found.expected.count


def test_no_two_bids_have_one_price() -> None:
    prices = [row[2] for row in rows_of(BY_NAME["n7"], Size(4, 2 * BLOCK, 50))]
    real = [price for price in prices if price]
    assert len(set(real)) == len(real) == 8 * BLOCK


def test_sessions_are_joined_up_to_the_gap_and_not_beyond() -> None:
    bids = [(1, 0, 5, ts) for ts in (0, GAP_MS, 2 * GAP_MS + 1)]
    assert list(BY_KIND["sessions"](iter(bids))) == [
        (1, 2, 0, 2 * GAP_MS),
        (1, 1, 2 * GAP_MS + 1, 3 * GAP_MS + 1),
    ]


# ---- the checksum --------------------------------------------------------------------------------


def test_a_checksum_does_not_depend_on_order_and_parts_add_up() -> None:
    rows = [(n, n * 7 - 50, str(n)) for n in range(100)]
    groups = ((0, 1, 2),)
    whole = of_rows(rows, groups)
    assert of_rows(rows[::-1], groups) == whole
    assert of_rows(rows[:30], groups) + of_rows(rows[30:], groups) == whole
    assert Checksum.from_json(whole.to_json()) == whole


@pytest.mark.parametrize(
    "wrong",
    [
        [(1, 2), (3, 5)],
        [(1, 2)],
        [(1, 2), (3, 4), (3, 4)],
        [(2, 1), (4, 3)],
        [(1, 4), (3, 2)],
    ],
)
def test_a_checksum_notices_changed_lost_doubled_and_swapped_values(wrong: list[tuple]) -> None:
    assert of_rows([(1, 2), (3, 4)], ((0, 1),)) != of_rows(wrong, ((0, 1),))


def test_groups_of_columns_are_independent_of_their_pairing() -> None:
    one = of_columns([[1, 2], [10, 20]], ((0,), (1,)))
    other = of_columns([[1, 2], [20, 10]], ((0,), (1,)))
    assert one == other
    assert of_columns([[1, 2], [10, 20]], ((0, 1),)) != of_columns([[1, 2], [20, 10]], ((0, 1),))


# ---- on disk -------------------------------------------------------------------------------------


def test_a_dataset_is_on_disk_in_order_and_as_csv(tmp_path: Path) -> None:
    workload = BY_NAME["c-sum"]
    dataset = with_csv(prepare(workload, SMALL, tmp_path))
    files = sorted(dataset.parquet.iterdir())
    times = [file.stat().st_mtime for file in files]
    assert times == sorted(set(times))
    stored = [row for file in files for row in zip(*pq.read_table(file).to_pydict().values())]  # noqa: B905
    assert stored == rows_of(workload, SMALL)
    text = "".join((dataset.csv / f"{part}.csv").read_text() for part in range(2))
    assert Counter(tuple(map(int, line.split(","))) for line in text.splitlines()) == Counter(
        stored
    )
    got = of_rows(BY_KIND["sum"](iter(stored)), workload.groups)
    assert (dataset.expected, dataset.warm_outputs) == (got, BLOCK)
    assert prepare(workload, SMALL, tmp_path) == dataset


def test_outputs_of_the_warm_up_are_counted_where_not_every_row_gives_one(tmp_path: Path) -> None:
    flushed = prepare(BY_NAME["d"], SMALL, tmp_path)
    first = rows_of(BY_NAME["d"], Size(1, BLOCK, 50))
    assert flushed.warm_outputs == len(list(BY_KIND["flush"](iter(first))))
    timers = prepare(BY_NAME["h"], Size(3, 3 * BLOCK, 50), tmp_path)
    # 15,000 rows are 1.5 s of event time: one window of each key has ended.
    assert timers.warm_outputs == 50
