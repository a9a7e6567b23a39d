"""What the operator that finds patterns refuses of the partial matches that it is restored from."""

from __future__ import annotations

import pytest
from tests.window_driver import Driver

from weir.cep import CEP, Pattern
from weir.common import Types
from weir.errors import CorruptStateError
from weir.keygroup import key_group

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def program(stream):
    """Odd numbers, then an even one."""
    found = Pattern.begin("a").where(lambda e: e[1] % 2 == 1).one_or_more()
    found = found.followed_by("b").where(lambda e: e[1] % 2 == 0)
    return CEP.pattern(stream, found).select(lambda m: [e[1] for e in m["a"] + m["b"]])


def begun():
    """An operator that has taken 1 and 3, so that three partial matches wait for an even number."""
    driver = Driver(program, types=PAIR, kind="cep")
    return driver.epoch(("k", 1, 5), ("k", 3, 6)).watermark(6)


def replaced(driver, change):
    """Let what is stored be something else, behind right checksums."""
    op = driver.op
    op.backend.current.key = "k"
    op.backend.current.group = key_group("k", op.node.max_parallelism)
    op._partial.update(change(*op._partial.value()))
    return driver.restore()


def test_partial_matches_that_were_stored_go_on():
    driver = replaced(begun(), lambda *stored: stored)
    assert [v for v, _ in driver.epoch(("k", 4, 7)).watermark(7).take()] == [
        [1, 3, 4],
        [1, 4],
        [3, 4],
    ]
    driver.close()


# A node that is missing would be made by the next event, and would come behind itself for ever.
@pytest.mark.parametrize(
    "change",
    [
        lambda signature, runs, waiting, nodes: (
            signature,
            [(state, max(nodes)[0] + 1, *rest) for state, _, *rest in runs],
            waiting,
            nodes,
        ),
        lambda signature, runs, waiting, nodes: (
            signature,
            runs,
            waiting,
            [(number, stage, event, number) for number, stage, event, _ in nodes],
        ),
    ],
    ids=["a run without its node", "a node behind itself"],
)
def test_partial_matches_without_a_beginning_are_refused(change):
    driver = replaced(begun(), change)
    with pytest.raises(CorruptStateError, match=r"'CepOperator'.*partial matches.*damaged.*node"):
        driver.epoch(("k", 4, 7)).watermark(7)
    driver.close()
