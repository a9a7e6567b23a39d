"""How faults are dealt out to runs, what runs are repeated by, and what a stuck run tells."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys

import pytest
from tests.chaos import __main__ as command
from tests.chaos import job as jobs
from tests.chaos.__main__ import Judging, attack_all, wishes_of
from tests.chaos.faults import (
    AWAY_S,
    DAMAGING,
    FROZEN_S,
    LEASE_S,
    NEED_BUCKET,
    NEED_CLUSTER,
    NEED_ENDS,
    Fault,
    Kind,
    choose,
)
from tests.chaos.job import StuckError
from tests.chaos.plan import BACKENDS, EXACT_MODES, Plan, Wishes, deal
from tests.chaos.recount import Verdict, expected, judge
from tests.chaos.report import Outcome
from tests.chaos.run import CLUSTER_WIDTHS, ChaosRun

ALL_HERE = {"clock": "", "s3": "", "cluster": "", "ends": ""}
NONE_HERE = {"clock": "no clock", "s3": "no s3", "cluster": "no cluster", "ends": "none"}
ROWS = [{"key": 3, "amount": 5, "seq": 0}, {"key": 3, "amount": 5, "seq": 1}]


def test_a_tenth_each_goes_to_clocks_buckets_clusters_and_at_least_once():
    plans = deal(Wishes(faults=100, seed=7), ALL_HERE)
    assert sum(plan.faults for plan in plans) == 100
    clocked, bucket, cluster, twice = plans[-4:]
    assert [p.faults for p in (clocked, bucket, cluster, twice)] == [10, 10, 10, 10]
    assert Kind.CLOCK in clocked.kinds
    assert (bucket.storage, set(bucket.kinds)) == ("s3", {Kind.SLOT, *NEED_BUCKET})
    more = {Kind.SLOT, Kind.WORKER, Kind.RESCALE, *NEED_CLUSTER}
    assert (cluster.cluster, set(cluster.kinds)) == (True, more)
    assert (twice.mode, twice.exactly_once) == ("at-least-once", False)
    assert all(Kind.CLOCK not in plan.kinds for plan in plans[:-4])
    assert [plan.seed for plan in plans] == list(range(7, 7 + len(plans)))
    assert deal(Wishes(faults=100, seed=7), ALL_HERE) == plans


def test_many_faults_go_to_every_pair_of_a_backend_and_a_mode():
    pairs = set(itertools.product(BACKENDS, EXACT_MODES))
    many = deal(Wishes(faults=50, seed=7), NONE_HERE)
    assert {(p.backend, p.mode) for p in many if p.exactly_once} == pairs
    # With few, the pairs are those of the seed; some seeds come to all.
    few = [deal(Wishes(faults=20, seed=seed), NONE_HERE) for seed in (7, 8)]
    assert [len({p.backend for p in plans if p.exactly_once}) for plans in few] == [5, 5]
    assert {(p.backend, p.mode) for plans in few for p in plans if p.exactly_once} == pairs


def test_a_mode_that_is_asked_for_is_that_of_all_runs():
    plans = deal(Wishes(faults=100, mode="unaligned"), ALL_HERE)
    assert {plan.mode for plan in plans} == {"unaligned"}


def test_every_kind_has_its_turn_although_no_run_has_as_many_faults():
    plans = deal(Wishes(faults=100, seed=7), ALL_HERE)
    struck = {
        fault.kind for plan in plans for fault in choose(plan.seed, plan.faults, list(plan.kinds))
    }
    # FULL and READ_ONLY need root, and the others servers.
    wanted = {kind for kind in Kind if kind not in NEED_ENDS}
    lacking = {kind for kind in wanted if Plan(0, 0).refuses(kind) == "needs root"}
    assert struck == wanted - lacking


def test_what_cannot_be_had_here_is_done_by_the_others():
    plans = deal(Wishes(faults=100), NONE_HERE)
    assert sum(plan.faults for plan in plans) == 100
    assert not any(plan.cluster or plan.storage == "s3" for plan in plans)


def test_every_second_run_that_damages_a_living_job_has_local_copies():
    plans = deal(Wishes(faults=100, kinds=tuple(DAMAGING)), ALL_HERE)
    local = [plan.local_recovery for plan in plans]
    assert local == [n % 2 == 1 for n in range(len(plans))]
    assert Plan(1, 1, local_recovery=True).settings["execution.state-recovery.from-local"] == "true"
    assert not any(p.local_recovery for p in deal(Wishes(kinds=(Kind.SLOT,)), ALL_HERE))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "wishes",
    [{"faults": 100}, {"faults": 20}, {"ends": True}, {"cluster": True}, {"storage": "s3"}],
)
def test_the_command_of_a_run_repeats_it_alone(wishes, seed):
    for plan in deal(Wishes(**{"faults": 9, **wishes, "seed": seed}), ALL_HERE):
        words = plan.command.removeprefix('make chaos ARGS="').removesuffix('"')
        again, _ = wishes_of(shlex.split(words))
        assert deal(again, ALL_HERE) == [plan]


def test_outputs_between_servers_are_never_judged_loosely(capsys):
    with pytest.raises(SystemExit):
        wishes_of(["--ends", "--mode", "at-least-once"])
    assert "exactly once" in capsys.readouterr().err


def test_a_driver_stops_for_longer_and_for_shorter_than_the_lease_by_turns():
    assert AWAY_S < LEASE_S < FROZEN_S
    lasting = [f.lasts for f in choose(11, 4, [Kind.FROZEN_DRIVER])]
    assert lasting == [AWAY_S, FROZEN_S, AWAY_S, FROZEN_S]
    for kind in (Kind.FROZEN_WORKER, Kind.FROZEN_JVM, Kind.FROZEN_EXECUTOR):
        assert {f.lasts for f in choose(1, 3, [kind])} == {FROZEN_S}


def test_a_cluster_is_rescaled_down_and_up():
    assert CLUSTER_WIDTHS == (1, 2)


# ---- the judge ----------------------------------------------------------------------------------


def test_at_least_once_allows_duplicates_and_other_sums_and_no_loss(tmp_path):
    (tmp_path / "output").mkdir()
    done = tmp_path / "transactions" / "done"
    done.mkdir(parents=True)
    files, transactions = (list(lines.elements()) for lines in expected(ROWS))
    (done / "t").write_text("".join(f"{line}\n" for line in transactions))
    # The second row was counted twice.
    other = [("total", 1, 3, 15, 1) if line[:2] == ("total", 1) else line for line in files]
    (tmp_path / "output" / "a").write_text("".join(f"{line}\n" for line in [*other, other[0]]))
    assert not judge(tmp_path, ROWS).exact
    found = judge(tmp_path, ROWS, exactly_once=False)
    assert found.exact
    assert (found.lost, found.duplicated, found.wrong) == (0, 1, 0)
    (tmp_path / "output" / "a").write_text("".join(f"{line}\n" for line in other[1:]))
    assert judge(tmp_path, ROWS, exactly_once=False).lost == 1
    (tmp_path / "output" / "b").write_text("('total', 7, 3, 5, 1)\n")
    assert judge(tmp_path, ROWS, exactly_once=False).wrong == 1


@pytest.fixture
def run(tmp_path):
    """A run whose driver is never started."""
    made = ChaosRun(tmp_path / "root", Plan(1, 2, kinds=(Kind.SLOT,)), lambda text: None)
    yield made
    made._job.end()


def test_a_run_that_is_stuck_is_judged_and_not_good(run, monkeypatch):
    def stuck(faults):
        msg = "nothing came"
        raise StuckError(msg)

    run._job.feed.add()
    monkeypatch.setattr(run, "_attack", stuck)
    found = run.run()
    assert not found.good
    assert found.verdict.lost > 0
    assert "stuck: nothing came" in found.faulty[0]


def test_the_runs_after_one_without_a_result_are_carried_out(monkeypatch, capsys, tmp_path):
    tried = []

    class Impossible:
        def __init__(self, root, plan, say):
            tried.append(plan.seed)
            root.rmdir()
            msg = "no disk"
            raise OSError(msg)

    monkeypatch.setattr(command, "ChaosRun", Impossible)
    assert not attack_all([Plan(1, 1), Plan(2, 1)], Judging(tmp_path / "report.md"))
    assert tried == [1, 2]
    said = capsys.readouterr().out
    # What is about to happen is said before it can go wrong.
    assert said.index("--seed 1 ") < said.index("no disk")


def test_processes_and_temporary_files_that_are_left_over_are_found(run, monkeypatch):
    job = run._job
    monkeypatch.setattr(jobs, "LEAVE_S", 0.1)
    assert job.left_over() == []
    temporary = jobs.Path(job._environment["TMPDIR"])
    assert temporary.is_relative_to(job.root)
    (temporary / "weir-slots-abc").mkdir()
    # Nothing of it is in the command line.
    words = [sys.executable, "-c", "input()"]
    with subprocess.Popen(words, env=job._environment, stdin=subprocess.PIPE) as left:
        found = job.left_over()
        left.kill()
    assert found == [f"process {left.pid} ({' '.join(words)} )", "temporary weir-slots-abc"]


class Nobody:
    """Processes of a job of which none is there, until somebody looks the n-th time."""

    driver = 0

    def __init__(self, misses):
        self._misses = misses

    def slots(self):
        self._misses -= 1
        return [1] if self._misses < 0 else []

    def kill(self, pids, how=None):
        return len(pids)


@pytest.mark.parametrize(("misses", "counted"), [(0, True), (2, True), (3, False)])
def test_a_fault_that_hits_nobody_is_tried_again_and_then_missed(run, monkeypatch, misses, counted):
    target = Nobody(misses)
    monkeypatch.setattr(run._job, "target", lambda: target)
    monkeypatch.setattr(run._job, "await_row", lambda row, seconds, what: 0.0)
    (fault,) = choose(1, 1, [Kind.SLOT], double=0.0)
    assert (run._survive(fault) is not None) == counted


class Cli:
    """`weir` of a job that does nothing, and refuses what is wanted so."""

    def __init__(self, refuses):
        self._refuses = refuses
        self.asked = []
        self._words = [sys.executable, "-c", "input()"]
        self.driver = None

    def ensure_driver(self):
        if self.driver is None:
            self.driver = subprocess.Popen(self._words, stdin=subprocess.PIPE)
        return self.driver

    def weir(self, *words):
        self.asked.append(" ".join(map(str, words)))
        refused = self._refuses(self)
        if words[:2] == ("stop", "--drain") and not refused:
            self.end()
        return subprocess.CompletedProcess(words, int(refused), "", "broken" if refused else "")

    def end(self):
        if self.driver is not None:
            self.driver.kill()
            self.driver.communicate()


@pytest.fixture
def attacked(tmp_path, monkeypatch):
    """A function that carries out a run of a kind of fault, on a job whose rows always come."""
    made = []

    def attack(kind, refuses):
        root, plan = tmp_path / str(len(made)), Plan(1, 1, kinds=(kind,))
        run, cli = ChaosRun(root, plan, lambda text: None), Cli(refuses)
        made.append((run, cli))
        verdict = Verdict(1, 0, 0, 0, complaints=0, examples=())
        job = {
            "ensure_driver": lambda: setattr(run._job, "driver", cli.ensure_driver()) or cli.driver,
            "await_row": lambda row, seconds, what: 0.0,
            "judge": lambda: verdict,
            "left_over": list,
            "weir": cli.weir,
        }
        for name, does in job.items():
            monkeypatch.setattr(run._job, name, does)
        monkeypatch.setattr(run._job.reader, "has_all", lambda rows: True)
        return run.run(), cli

    yield attack
    for run, cli in made:
        cli.end()
        run._job.end()


@pytest.mark.parametrize("kind", [Kind.SAVEPOINT, Kind.RESCALE, Kind.STOP])
def test_a_run_whose_job_never_does_what_it_is_asked_for_is_not_good(attacked, kind):
    found, cli = attacked(kind, lambda cli: "--drain" not in cli.asked[-1])
    assert not found.good
    assert [fault.kind for fault in found.refused] == [kind]
    assert cli.asked[:-1] == [cli.asked[0]] * 3
    said = "\n".join(found.summary(Plan(1, 1)))
    assert f"refused, whenever asked: 1: {kind.name}" in said
    assert "nobody was there" not in said


@pytest.mark.parametrize("kind", [Kind.SAVEPOINT, Kind.RESCALE])
def test_what_a_job_refuses_once_while_it_recovers_is_asked_for_again(attacked, kind):
    found, _ = attacked(kind, lambda cli: len(cli.asked) == 1)
    assert found.good
    assert [fault.kind for fault in found.recoveries] == [kind]


def test_a_drain_is_tried_again_and_one_that_never_works_is_not_good(attacked):
    found, cli = attacked(Kind.SAVEPOINT, lambda cli: len(cli.asked) == 2)
    assert found.good
    assert len(cli.asked) == 3
    found, _ = attacked(Kind.SAVEPOINT, lambda cli: "--drain" in cli.asked[-1])
    assert not found.good
    assert found.faulty == ["weir stop --drain: broken"]


def test_a_run_of_which_nothing_can_be_had_here_is_not_good(attacked):
    found, _ = attacked(Kind.FLAKY, lambda cli: False)
    assert found.skipped
    assert not found.good


def finished(struck, missed=()):
    verdict = Verdict(1, 0, 0, 0, complaints=0, examples=())
    found = Outcome(verdict, 1, dict.fromkeys(struck, 1.0), {}, [], drivers=1)
    found.missed, found.planned = list(missed), [*struck, *missed]
    return found


def test_a_kind_that_strikes_in_no_run_is_named_and_fails_all(monkeypatch, capsys):
    slot, worker = Fault(1, Kind.SLOT, 0), Fault(2, Kind.WORKER, 0)
    idle = [finished([slot], [worker]), finished([slot])]
    assert all(outcome.good for outcome in idle)
    for outcomes, well in ((idle, False), ([idle[0], finished([worker])], True)):
        left = iter(outcomes)
        monkeypatch.setattr(command, "attack", lambda plan, left=left: next(left))
        assert attack_all([Plan(1, 2), Plan(2, 1)], Judging()) is well
        assert ("never struck: WORKER" in capsys.readouterr().out) is not well


@pytest.mark.parametrize(("patience", "well"), [(1.0, False), (2.0, True)])
def test_slow_recovery_fails_all_runs_only_where_limits_are_asked_for(
    monkeypatch, capsys, patience, well
):
    slow = finished([Fault(1, Kind.SLOT, 0)])
    slow.recoveries[Fault(1, Kind.SLOT, 0)] = 6.0
    monkeypatch.setattr(command, "attack", lambda plan: slow)
    plan = Plan(1, 1, patience=patience)
    assert attack_all([plan], Judging())
    assert "limit" not in capsys.readouterr().out
    assert attack_all([plan], Judging(limits=True)) is well
    assert ("BROKEN: p50 6.0 s" in capsys.readouterr().out) is not well
