"""Runs are in the right order and share processes, and one that fails costs nobody else."""

from dataclasses import replace

import pytest
from benchmarks.contenders.protocol import WORKLOAD_EPOCH, Outcome, Task
from benchmarks.processes import ContenderProcess
from benchmarks.runner import ENDED, Runner, task_of
from benchmarks.schedule import Run, parts
from benchmarks.workloads.checksum import Checksum
from benchmarks.workloads.dataset import Dataset

from benchmarks import environments, plan, runner

# ---- the schedule --------------------------------------------------------------------------------


def names(runs: list[Run], *, verify: bool) -> list[str]:
    chosen = [run for run in runs if run.verify == verify and not run.warms_up]
    return [run.contender.name for run in chosen]


def test_a_full_run_has_a_part_for_every_workload_and_environment() -> None:
    groups = parts("full", plan.pairs("full", set(), set()))
    keys = [{(run.workload, run.contender.environment) for run in runs} for runs in groups]
    together = {("a-10k", "weir"), ("a-5m", "weir")}
    assert all(len(key) == 1 or key == together for key in keys)
    assert len(set.union(*keys)) == sum(map(len, keys)) == len(groups) + 1


def test_workloads_that_an_aim_compares_take_turns() -> None:
    (runs,) = parts("full", plan.pairs("full", {"a-10k", "a-5m"}, {"weir-hashmap"}))
    measured = [run.workload for run in runs if not run.verify and not run.warms_up]
    assert measured == [*("a-10k", "a-5m"), *("a-5m", "a-10k")] * 2 + ["a-10k", "a-5m"]


def test_a_round_measures_the_floors_beside_weir() -> None:
    (runs,) = parts("full", plan.pairs("full", {"c-sum"}, {"identity", "weir-hashmap"}))
    assert names(runs, verify=False) == [
        *("identity", "weir-hashmap"),
        *("weir-hashmap", "identity"),
        *("identity", "weir-hashmap"),
        *("weir-hashmap", "identity"),
        *("identity", "weir-hashmap"),
    ]


def test_rounds_that_warm_up_come_before_those_that_count() -> None:
    (runs,) = parts("full", plan.pairs("full", {"c-sum"}, {"identity", "weir-hashmap"}))
    order = [(run.verify, run.warms_up) for run in runs]
    assert order == [(True, False)] * 2 + [(False, True)] * 4 + [(False, False)] * 10
    (quick,) = parts("quick", plan.pairs("quick", {"c-sum"}, {"identity", "weir-hashmap"}))
    assert not any(run.warms_up for run in quick)
    epochs = parts("full", plan.pairs("full", {WORKLOAD_EPOCH}, {"weir-hashmap"}))
    assert not any(run.warms_up for runs in epochs for run in runs)


def test_contenders_are_verified_first_and_rounds_begin_with_another_one_each() -> None:
    three = ("weir-hashmap", "weir-hashmap-incremental", "weir-hashmap-unchecked")
    chosen = plan.pairs("full", {"a-10k"}, set(three))
    (runs,) = parts("full", chosen)
    order = list(three)
    assert names(runs, verify=True) == order
    turned = order + order[1:] + order[:1] + order[2:] + order[:2]
    # What an aim depends on is measured more often.
    assert names(runs, verify=False) == [*turned, "weir-hashmap", "weir-hashmap"]


def test_rounds_depend_on_aims_speed_and_wishes() -> None:
    fast, slow = plan.CONTENDER["weir-hashmap"], plan.CONTENDER["tws-row"]
    assert plan.rounds_for("full", fast, "c-sum") == 5
    assert plan.rounds_for("full", fast, "d") == 3
    assert plan.rounds_for("full", fast, "d", 5) == 5
    assert plan.rounds_for("full", slow, "a-100k") == 3
    assert plan.rounds_for("quick", fast, "c-sum") == 1
    assert plan.rounds_for("smoke", fast, "c-sum") == 0
    assert plan.rounds_for("smoke", fast, WORKLOAD_EPOCH) == 1


def test_a_quick_run_is_one_process_that_checks_three_results() -> None:
    (runs,) = parts("quick", plan.pairs("quick", set(), set()))
    assert [(r.contender.name, r.workload) for r in runs if r.verify] == list(plan.QUICK_CHECKED)
    assert len(names(runs, verify=False)) == sum(len(w) for w in plan.QUICK_PAIRS.values())


def test_epochs_of_one_row_have_those_that_warm_up_and_those_that_count(tmp_path) -> None:
    task = task_of(Run(plan.CONTENDER["empty-same"], WORKLOAD_EPOCH, False), "full", tmp_path)
    assert (task.dataset["size"]["warm"], task.dataset["size"]["epochs"]) == (20, 80)


# ---- the runner ----------------------------------------------------------------------------------


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Replace processes by a function of a task; None means that the process ends there."""
    asked: list[list[str]] = []

    def install(answer):
        class Scripted:
            def __init__(self, contender):
                self.asked: list[str] = []
                asked.append(self.asked)

            def run(self, task):
                self.asked.append(task.contender)
                return answer(task)

            def close(self):
                self.asked.append("closed")

        monkeypatch.setattr(runner, "ContenderProcess", Scripted)
        return asked

    monkeypatch.setattr(environments, "try_to_make", lambda name: None)
    monkeypatch.setattr(
        runner,
        "prepare",
        lambda workload, size: Dataset(workload, size, tmp_path, Checksum(1, 2, 3), 1),
    )
    return install


def answer_of(task: Task) -> Outcome:
    outcome = Outcome(task.contender, task.workload, 10, seconds=1.0, startup=2.0, total=3.0)
    outcome.checksum = task.dataset["expected"] if task.verify else None
    return outcome


def run_all(*contenders: str, finished=lambda: None) -> Runner:
    found = Runner("full", plan.pairs("full", {"d"}, set(contenders)))
    found.run(finished)
    return found


def test_pairs_are_verified_and_measured_and_a_start_is_timed(script) -> None:
    script(answer_of)
    calls: list[int] = []
    found = run_all("weir-hashmap", "bytewax-2", finished=lambda: calls.append(1))
    assert {key: (c.checked, len(c.runs), c.why) for key, c in found.cells.items()} == {
        ("weir-hashmap", "d"): (True, 3, ""),
        ("bytewax-2", "d"): (True, 3, ""),
    }
    assert found.startups == {"weir-hashmap": 2.0, "bytewax-2": 2.0}
    assert len(calls) == 2


def test_times_behind_a_wrong_result_are_dropped(script) -> None:
    def wrong(task: Task) -> Outcome:
        outcome = answer_of(task)
        outcome.checksum = [0, "", ""] if task.verify else None
        return outcome

    script(wrong)
    cell = run_all("weir-hashmap").cells["weir-hashmap", "d"]
    assert (cell.checked, cell.runs) == (False, [])
    assert "wrong result" in cell.why


def test_a_process_that_ends_costs_one_contender_its_figures_and_no_other(script) -> None:
    asked = script(lambda task: None if task.contender == "weir-rocksdb" else answer_of(task))
    cells = run_all("identity", "weir-hashmap", "weir-rocksdb").cells
    assert cells["weir-rocksdb", "d"].why == ENDED
    assert [len(cells[name, "d"].runs) for name in ("identity", "weir-hashmap")] == [3, 3]
    # Verified once, warmed up twice, measured three times.
    assert asked[1:] == [
        ["identity"] * 6 + ["closed"],
        ["weir-hashmap", "weir-rocksdb", "closed"],
        ["weir-hashmap"] * 5 + ["closed"],
    ]


def test_a_real_process_answers_until_its_input_ends(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(environments, "HERE", tmp_path)
    task = Task("bytewax-2", "a-1k", {"size": {"keys": 3}}, str(tmp_path), False, 0.0)
    contender = replace(plan.CONTENDER["weir-hashmap"], module="tests.benchmarks.scripted")
    process = ContenderProcess(contender)
    first, second = process.run(task), process.run(task)
    third = process.run(replace(task, workload="end"))
    process.close()
    assert first is not None
    assert second is not None
    assert first.startup is not None
    assert first.startup > 0
    assert second.error == "ValueError: the second one fails"
    assert third is None
    assert "the second one fails" in (tmp_path / ".data/logs/weir-a-1k.log").read_text()


def test_an_environment_that_cannot_be_made_is_a_reason(script, monkeypatch) -> None:
    asked = script(answer_of)
    monkeypatch.setattr(environments, "try_to_make", lambda name: f"no {name}")
    assert run_all("bytewax-2").cells["bytewax-2", "d"].why == "no bytewax"
    assert asked == []
