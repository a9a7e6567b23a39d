"""A few faults between real servers in every test run; `make ends` does as many as wanted."""

from __future__ import annotations

from collections import Counter

import pytest
from tests import brokers
from tests.chaos.ends import expected, verdict
from tests.chaos.faults import NEED_ENDS, Kind, choose
from tests.chaos.plan import AT_THE_ENDS, Plan, Wishes, deal
from tests.chaos.run import WIDTHS, ChaosRun
from tests.chaos.servers import without_servers

# Each once; the others are in longer runs.
QUICK = (
    Kind.SLOT,
    Kind.STARTING_SLOT,
    Kind.WORKER,
    Kind.DRIVER,
    Kind.ZOMBIE,
    Kind.BROKER,
    Kind.DATABASE,
    Kind.RESCALE,
)
ROWS = [{"seq": i, "key": i % 2, "amount": 3} for i in range(4)]


def test_every_server_and_every_zombie_has_its_turn():
    (plan,) = deal(Wishes(faults=40, seed=5, ends=True), {"ends": ""})
    assert (plan.ends, plan.faults, plan.kinds) == (True, 40, AT_THE_ENDS)
    assert set(plan.kinds) >= NEED_ENDS
    done = Counter(fault.kind for fault in choose(plan.seed, plan.faults, list(plan.kinds)))
    assert min(done.values()) >= 3
    # Three rescalings at least: from 2 to 3, to 1, to 2.
    assert WIDTHS == (3, 1, 2)
    assert all(Plan(1, 1, ends=True).refuses(kind) == "" for kind in AT_THE_ENDS)
    assert Plan(1, 1).refuses(Kind.BROKER) == "needs --ends"


def test_the_verdict_sees_what_is_lost_twice_and_wrong_in_either_server():
    wanted = Counter(expected(ROWS))
    assert list(wanted) == [(0, 0, 3, 1), (1, 1, 3, 1), (2, 0, 6, 2), (3, 1, 6, 2)]
    assert verdict(wanted, {"a": wanted, "b": wanted}).exact
    twice = wanted + Counter([(0, 0, 3, 1), (9, 9, 9, 9)])
    found = verdict(wanted, {"a": wanted - Counter([(3, 1, 6, 2)]), "b": twice})
    assert (found.right, found.lost, found.duplicated, found.wrong) == (7, 1, 1, 1)
    assert not found.exact
    assert found.places == (
        "in a: right 3, lost 1, duplicated 0, wrong 0",
        "in b: right 4, lost 0, duplicated 1, wrong 1",
    )


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.timeout(900)
def test_eight_faults_between_servers_lose_and_duplicate_nothing(tmp_path):
    if reason := without_servers():
        brokers.refuse(reason)
    said: list[str] = []
    plan = Plan(seed=3, faults=8, backend="hashmap-incremental", kinds=QUICK, ends=True)
    try:
        outcome = ChaosRun(tmp_path, plan, said.append).run()
    except brokers.Unavailable as reason:
        brokers.refuse(reason)
    summary = "\n".join([*said, *outcome.summary(plan)])
    assert outcome.verdict.exact, summary
    assert outcome.left_over == [], summary
    assert outcome.faulty == [], summary
    assert {fault.kind for fault in outcome.recoveries} == set(QUICK), summary
    assert outcome.widths == [3], summary
    assert outcome.zombies >= 2, summary
