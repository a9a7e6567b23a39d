"""The table of contenders is complete, aims are judged rightly, pages are well-formed."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from benchmarks.__main__ import rewrite, write
from benchmarks.aims import AIMS, rate
from benchmarks.contenders.progress import Progress, read, steady_part
from benchmarks.contenders.protocol import WORKLOAD_EPOCH, Outcome, Task, of_marks
from benchmarks.runner import Cell, Runner, judge
from benchmarks.workloads.catalogue import ALL, BY_NAME
from benchmarks.workloads.checksum import Checksum, of_rows
from benchmarks.workloads.dataset import Dataset, Size

from benchmarks import chart, plan, report

RATES = {
    "identity": 1_000_000,
    "identity-bounded": 1_250_000,
    "weir-hashmap": 800_000,
    "weir-rocksdb": 500_000,
    "weir-hashmap-unchecked": 850_000,
    "tws-row": 8_000,
    "pyflink-thread-hashmap": 9_000,
    "pyflink-thread-rocksdb": 7_000,
    "bytewax-1": 150_000,
    "bytewax-2": 250_000,
}


def cell(contender: str, workload: str, *rates: float) -> Cell:
    runs = [Outcome(contender, workload, rows=1000, seconds=1000 / r, startup=2.5) for r in rates]
    return Cell(contender, workload, True, "", runs)


def figures() -> dict[tuple[str, str], Cell]:
    cells = {(name, "a-100k"): cell(name, "a-100k", r) for name, r in RATES.items()}
    for name, workload, r in (
        ("identity", "c-sum", 1_000_000),
        ("identity-bounded", "c-sum", 1_700_000),
        ("weir-hashmap", "c-sum", 850_000),
        ("weir-hashmap", "a-10k", 900_000),
        ("weir-hashmap", "a-5m", 500_000),
        ("identity", "w-sum", 1_000_000),
        ("jvm", "w-sum", 900_000),
        ("weir-hashmap", "w-sum", 630_000),
        ("weir-hashmap", "w-process", 400_000),
        ("pyflink-thread-hashmap", "w-process", 8_000),
    ):
        cells[name, workload] = cell(name, workload, r)
    for name, seconds in (("weir-hashmap", 0.2), ("empty-same", 0.15), ("empty-default", 0.3)):
        found = Cell(name, WORKLOAD_EPOCH, None, "", [Outcome(name, WORKLOAD_EPOCH)])
        found.runs[0].epochs = [seconds, seconds, 9.0]
        cells[name, WORKLOAD_EPOCH] = found
    return cells


SETTING = report.Setting("python -m benchmarks", "full", None, "2030-01-01", {"cores": "2"}, True)
STARTUPS = {"weir-hashmap": 6.25, "bytewax-1": 0.5}


# ---- the plan ------------------------------------------------------------------------------------


def test_every_contender_does_every_workload_or_says_why_not() -> None:
    for contender in plan.CONTENDERS:
        for workload in plan.WORKLOADS:
            reason = contender.refusal(workload)
            assert reason is None or len(reason) > 5
    done = {pair[1] for pair in plan.pairs("full", set(), set())}
    assert done == set(plan.WORKLOADS)
    for workload in ALL:
        names = {c.name for c in plan.CONTENDERS if c.refusal(workload.name) is None}
        assert {"identity", "weir-hashmap"} <= names


def test_all_kinds_of_work_are_there_and_peers_do_what_they_can() -> None:
    assert {workload.letter for workload in ALL} == set("abcdefghiwn")
    does = {c.name: {w.letter for w in ALL if c.refusal(w.name) is None} for c in plan.CONTENDERS}
    assert does["pyflink-thread-hashmap"] == set("abcdefghwn")
    assert does["pyflink-thread-rocksdb"] == does["pyflink-process-rocksdb"] == set("ad")
    assert does["tws-row"] == does["bytewax-2"] == set("abcdfgh")
    assert does["tws-pandas"] == does["apply"] == set("acdg")
    queried = {w.name for w in ALL if plan.CONTENDER["flink-sql"].refusal(w.name) is None}
    assert queried == {"w-sum", "n5", "n7", "n8", "n11"} == set(plan.QUERIED)
    on_jvm = {w.name for w in ALL if plan.CONTENDER["jvm"].refusal(w.name) is None}
    assert on_jvm == queried | {"n12", "c-reduce", "c-sum"}


def test_a_quick_run_is_weir_and_the_floors() -> None:
    chosen = plan.pairs("quick", set(), set())
    assert {contender.environment for contender, _ in chosen} == {"weir"}
    assert {"identity", "jvm", "weir-hashmap", "weir-rocksdb", "empty-same"} <= {
        contender.name for contender, _ in chosen
    }
    assert {pair[1][0] for pair in chosen} == set("abcdefghiwn")  # "epoch" begins with an e, too.
    assert set(plan.QUICK_CHECKED) <= {(contender.name, workload) for contender, workload in chosen}


def test_workloads_and_contenders_can_be_selected() -> None:
    chosen = plan.pairs("full", {"c"}, {"weir-hashmap", "jvm"})
    assert {(c.name, w) for c, w in chosen} == {
        ("weir-hashmap", "c-reduce"),
        ("weir-hashmap", "c-sum"),
        ("jvm", "c-reduce"),
        ("jvm", "c-sum"),
    }


def test_sizes_are_whole_blocks_and_smoke_is_small() -> None:
    for workload in ALL:
        for tier in plan.TIERS:
            for mode in plan.MODES:
                size = plan.size_for(workload, tier, mode)
                assert size.epoch_rows % 5_000 == 0
                assert size.rows > 0
            assert plan.size_for(workload, tier, "smoke").rows <= 20_000
        assert plan.size_for(workload, "fast", "full").keys == workload.keys
    assert plan.size_for(BY_NAME["a-5m"], "fast", "full").warm == 6


def test_one_row_floors_are_those_of_weirs_session_and_of_a_plain_one() -> None:
    assert plan.CONTENDER["empty-same"].environment == "weir"
    assert plan.CONTENDER["empty-default"].environment == "spark"


# ---- verdicts ------------------------------------------------------------------------------------


def verifying(expected: list) -> Task:
    return Task("weir-hashmap", "a-1k", {"expected": expected}, "", True, 0.0)


def test_a_wrong_checksum_leaves_no_time() -> None:
    found = cell("weir-hashmap", "a-100k", 5.0)
    judge(
        found, Outcome("weir-hashmap", "a-100k", checksum=[1, "a", "b"]), verifying([1, "a", "c"])
    )
    assert found.checked is False
    assert "wrong result" in found.why
    assert rate({("weir-hashmap", "a-100k"): found}, "weir-hashmap", "a-100k") is None


def test_a_right_checksum_lets_times_count() -> None:
    found = Cell("weir-hashmap", "a-1k")
    judge(found, Outcome("weir-hashmap", "a-1k", checksum=[1, "a", "b"]), verifying([1, "a", "b"]))
    timed = Task("weir-hashmap", "a-1k", {}, "", False, 0.0)
    judge(found, Outcome("weir-hashmap", "a-1k", rows=10, seconds=2.0), timed)
    assert rate({("weir-hashmap", "a-1k"): found}, "weir-hashmap", "a-1k") == 5.0


def test_a_measured_run_that_lost_rows_takes_the_time_away() -> None:
    found = cell("bytewax-1", "a-1k", 5.0)
    timed = Task("bytewax-1", "a-1k", {"expected": [10, "", ""]}, "", False, 0.0)
    judge(found, Outcome("bytewax-1", "a-1k", rows=10, seconds=1.0, outputs=10), timed)
    assert found.checked
    judge(found, Outcome("bytewax-1", "a-1k", rows=10, seconds=1.0, outputs=9), timed)
    assert rate({("bytewax-1", "a-1k"): found}, "bytewax-1", "a-1k") is None
    assert found.why == "9 output rows in a measured run, expected 10"


def test_aims_are_met_or_not_by_the_figures() -> None:
    verdicts = [aim.verdict(figures()) for aim in AIMS]
    values = [round(value, 3) for value, _ in verdicts if value is not None]
    aimed = [0.8, 0.5, 100, 88.889, 3.2, 0.85, 0.941, 1.8, 1.333, 0.63, 0.7, 50]
    assert values == [*aimed, 0.64, 0.5]
    assert [text for _, text in verdicts] == [
        "met",
        "met",
        "met",
        "met",
        "met",
        "not met",
        "met",
        "not met",
        "met",
        "not met",
        "met",
        "met",
        *["not measured"] * 5,
        "for comparison",
        "for comparison",
    ]
    assert [aim.limit for aim in AIMS[-8:]] == ["at least 50", *[""] * 7]


def test_a_time_without_a_check_counts_only_where_none_was_planned() -> None:
    found = cell("weir-hashmap", "d", 5.0)
    found.checked = None
    assert rate({("weir-hashmap", "d"): found}, "weir-hashmap", "d") is None
    found.exempt = True
    assert rate({("weir-hashmap", "d"): found}, "weir-hashmap", "d") == pytest.approx(5.0)
    found.checked = False
    assert rate({("weir-hashmap", "d"): found}, "weir-hashmap", "d") is None


def test_ratios_are_those_of_rounds_side_by_side() -> None:
    """Both were slow in the same minute: their ratio was not."""
    cells = {
        ("identity", "a-100k"): cell("identity", "a-100k", 10.0, 5.0, 10.0),
        ("weir-hashmap", "a-100k"): cell("weir-hashmap", "a-100k", 8.0, 4.0, 9.0),
    }
    aim = AIMS[0]
    assert [round(value, 3) for value in aim.figure(cells)] == [0.8, 0.8, 0.9]
    assert aim.verdict(cells) == (pytest.approx(0.8), "met")
    cells["weir-hashmap", "a-100k"] = cell("weir-hashmap", "a-100k", 8.0, 9.0)
    assert aim.figure(cells) == [pytest.approx(0.85)]


def test_what_the_aims_compare_can_be_selected_without_peers() -> None:
    chosen = plan.pairs("full", set(), set(), aims=True)
    assert {contender.environment for contender, _ in chosen} == {"weir", "spark"}
    cells = {(c.name, w): cell(c.name, w, 1.0) for c, w in chosen}
    for contender, workload in chosen:
        if workload == WORKLOAD_EPOCH:
            cells[contender.name, workload].runs[0].epochs = [1.0]
    judged = {aim.text for aim in AIMS if aim.bound and aim.verdict(cells)[0] is not None}
    peers = ("transformWithState", "PyFlink", "Bytewax")
    assert judged == {a.text for a in AIMS if a.bound and not any(p in a.text for p in peers)}


def test_an_aim_without_figures_is_not_measured() -> None:
    assert {aim.verdict({}) for aim in AIMS} == {(None, "not measured")}


def test_the_rate_is_the_median_of_the_rounds() -> None:
    cells = {("identity", "b"): cell("identity", "b", 10.0, 40.0, 20.0)}
    assert rate(cells, "identity", "b") == pytest.approx(20.0)


# ---- pages ---------------------------------------------------------------------------------------


def test_the_page_holds_every_figure_and_every_reason() -> None:
    cells = figures()
    cells["apply", "a-100k"] = Cell("apply", "a-100k", False, "wrong result: checksum 1 | 2")
    page = report.render(cells, SETTING, STARTUPS)
    for wanted in ("python -m benchmarks", "800,000", "0.80", "not met", "has no broadcast state"):
        assert wanted in page
    assert "| Weir, hashmap | 6.2 |" in page
    assert "| all but a-100k, d | PyFlink, thread mode, rocksdb |" in page
    assert "not complete" not in page
    assert "no time: wrong result: checksum 1 / 2" in page
    for line in page.splitlines():
        assert not line.startswith("|") or line.endswith("|")
    widths = re.findall(r"(?m)(^\|.*\n(?:\|.*\n)+)", page)
    assert widths
    assert all(len({row.count("|") for row in t.splitlines()}) == 1 for t in widths)


def test_a_page_of_an_empty_run_says_that_nothing_was_measured() -> None:
    page = report.render({}, SETTING, {})
    assert page.count("not measured") == len(AIMS)
    assert page.count("\n# ") == 0
    assert page.startswith("# ")


def test_a_page_says_what_is_doubtful_about_its_run() -> None:
    half = report.render(figures(), replace(SETTING, complete=False), {})
    assert "The run was not complete" in half
    quick = report.render(figures(), replace(SETTING, mode="quick"), {})
    assert "the other results of a quick run were not checked" in quick
    assert "Start-up" not in quick


def test_an_unfinished_run_leaves_a_page_in_a_new_folder(tmp_path) -> None:
    folder = tmp_path / "new" / "folder"
    begun = Runner("full", [])
    begun.cells |= figures()
    write(begun, replace(SETTING, complete=False), folder)
    assert "not complete" in (folder / "RESULTS.md").read_text()
    assert json.loads((folder / "results.json").read_text())["setting"]["complete"] is False
    again = tmp_path / "again"
    again.mkdir()
    rewrite(folder / "results.json", again)
    for page in ("RESULTS.md", "chart.svg"):
        assert (again / page).read_text() == (folder / page).read_text()
    write(begun, replace(SETTING, mode="smoke"), tmp_path / "smoke")
    assert not (tmp_path / "smoke").exists()


def test_the_chart_is_well_formed_and_its_bars_grow_with_the_rates() -> None:
    root = ElementTree.fromstring(chart.render(figures(), "2 cores & more"))
    name = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.attrib["width"]) for bar in root.iter(f"{name}rect")]
    assert len(widths) == len(RATES)
    assert widths == sorted(widths, reverse=True)
    texts = [text.text for text in root.iter(f"{name}text")]
    assert {"1", "0.31", "Weir, hashmap", "Bytewax, 2 workers"} <= set(texts)
    height = float(root.attrib["height"])
    assert all(float(text.attrib["y"]) < height for text in root.iter(f"{name}text"))
    assert "prefers-color-scheme: dark" in (root.find(f"{name}style").text or "")


def test_a_chart_without_figures_is_well_formed() -> None:
    assert "nothing was measured" in chart.render({}, "note")
    ElementTree.fromstring(chart.render({}, "note"))


# ---- progress ------------------------------------------------------------------------------------


def test_progress_of_several_subtasks_adds_up(tmp_path) -> None:
    rows = [(n, n * n) for n in range(1000)]
    groups = ((0, 1),)
    for part in (rows[:300], rows[300:]):
        progress = Progress(str(tmp_path), groups)
        for row in part:
            progress.row(row)
        progress.close()
    marks, checksum = read(tmp_path)
    assert checksum == of_rows(rows, groups)
    assert sum(count for _, count in marks) == 1000


def test_a_verifying_run_notes_larger_portions_and_gives_no_time(tmp_path) -> None:
    for groups, portions in ((None, 4), (((0,),), 1)):
        folder = tmp_path / str(portions)
        folder.mkdir()
        progress = Progress(str(folder), groups)
        for n in range(1_000):
            progress.row((n,))
        progress.close()
        assert len(read(folder)[0]) == portions
    form = Dataset(BY_NAME["d"], Size(2, 5_000, 7), tmp_path, Checksum(), 10).to_json()
    task = Task("bytewax-1", "d", form, "", True, 0.0)
    found = of_marks(task, [(1.0, 1_000)], of_rows([(1,)], ((0,),)))
    assert found.seconds is None
    assert found.checksum is not None
    timed = of_marks(replace(task, verify=False), [(1.0, 20), (3.0, 20)], Checksum())
    assert (timed.startup, timed.seconds, timed.outputs) == (1.0, 2.0, 40)


def test_results_that_come_in_a_burst_at_the_end_give_no_time(tmp_path) -> None:
    form = Dataset(BY_NAME["d"], Size(2, 5_000, 7), tmp_path, Checksum(), 10).to_json()
    task = Task("pyflink-thread-hashmap", "d", form, "", False, 0.0)
    found = of_marks(task, [(53.038, 40), (53.063, 41)], Checksum())
    assert (found.seconds, found.startup) == (None, 53.038)
    assert "do not tell how long the rows took" in (found.error or "")


def test_the_steady_part_begins_behind_the_warm_up() -> None:
    marks = [(1.0, 100), (2.0, 100), (3.0, 100), (4.0, 100)]
    assert steady_part(marks, 150) == (2.0, 4.0, 400)
    with pytest.raises(ValueError, match="none of them behind"):
        steady_part(marks, 400)
