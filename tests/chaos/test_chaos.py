"""A few real faults on Spark in every test run; `make chaos` does as many as wanted."""

from __future__ import annotations

import pytest
from tests.chaos.faults import Kind, choose
from tests.chaos.plan import Plan
from tests.chaos.recount import expected, judge
from tests.chaos.run import ChaosRun

ROWS = [{"key": 3, "amount": 5, "seq": 0}, {"key": 3, "amount": 5, "seq": 1}]
# Quick ones, and one start of Spark among them: every kind is in longer runs.
QUICK = (
    Kind.SLOT,
    Kind.WORKER,
    Kind.ALL_SLOTS,
    Kind.STARTING_SLOT,
    Kind.RESCALE,
    Kind.SAVEPOINT,
    Kind.FULL,
    Kind.READ_ONLY,
    Kind.FROZEN_DRIVER,
    Kind.DRIVER,
)


def test_a_seed_gives_the_same_faults_again():
    once, again = (choose(7, 40, list(Kind)) for _ in range(2))
    assert once == again
    assert {fault.kind for fault in once} == set(Kind)
    assert choose(8, 40, list(Kind)) != once


def test_the_judge_sees_what_is_lost_twice_and_wrong(tmp_path):
    (tmp_path / "output").mkdir()
    (tmp_path / "transactions" / "done").mkdir(parents=True)
    files, transactions = (list(lines.elements()) for lines in expected(ROWS))
    (tmp_path / "output" / "a").write_text("".join(f"{line}\n" for line in files))
    done = tmp_path / "transactions" / "done" / "t"
    done.write_text("".join(f"{line}\n" for line in transactions))
    assert judge(tmp_path, ROWS).exact
    (tmp_path / "output" / "a").write_text(f"{files[0]}\n" * 2 + "('total', 9, 9, 9, 9)\n")
    done.write_text("")
    found = judge(tmp_path, ROWS)
    assert (found.duplicated, found.wrong) == (1, 1)
    assert found.lost == len(files) - 1 + len(transactions)
    (tmp_path / "transactions" / "ledger").write_text("abort of committed x\n")
    assert judge(tmp_path, ROWS).complaints == 1


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_ten_faults_lose_and_duplicate_nothing(tmp_path):
    said: list[str] = []
    plan = Plan(seed=11, faults=10, backend="hashmap-incremental", mode="aligned", kinds=QUICK)
    outcome = ChaosRun(tmp_path, plan, said.append).run()
    summary = "\n".join([*said, *outcome.summary(plan)])
    assert outcome.verdict.exact, summary
    assert outcome.left_over == [], summary
    assert outcome.faulty == [], summary
    assert len(outcome.recoveries) == 10, summary
