"""What users' functions return is taken to its end, and no exception for that end."""

from __future__ import annotations

from itertools import chain, count, islice, takewhile

import pytest

from weir.runtime.raised import whole


class Numbers:
    """An iterator in Python, which ends in a method of its own."""

    def __init__(self, last):
        self._left = iter(range(last))

    def __iter__(self):
        return self

    def __next__(self):
        return self._advance()

    def _advance(self):
        return next(self._left)


def ends_at_two(value):
    if value == 2:
        next(iter(()))
    return value


@pytest.mark.parametrize(
    "results",
    [
        lambda: [0, 1, 2],
        lambda: (0, 1, 2),
        lambda: range(3),
        lambda: {0: "a", 1: "b", 2: "c"},
        lambda: map(int, "012"),
        lambda: map(int, Numbers(3)),
        lambda: chain(map(int, "01"), (n for n in [2])),
        lambda: takewhile(lambda n: n < 3, count()),
        lambda: (n for n in range(3)),
        lambda: Numbers(3),
        lambda: islice(Numbers(9), 3),
    ],
)
def test_what_ends_by_itself_is_taken_whole(results):
    assert list(whole(results())) == [0, 1, 2]


@pytest.mark.parametrize(
    "results",
    [
        lambda: map(ends_at_two, range(9)),
        lambda: filter(ends_at_two, range(9)),
        lambda: islice(map(ends_at_two, range(9)), 9),
        lambda: takewhile(ends_at_two, range(1, 9)),
        lambda: map(ends_at_two, map(ends_at_two, [2])),
    ],
)
def test_a_function_that_raises_stop_iteration_ends_nothing(results):
    with pytest.raises(StopIteration):
        whole(results())


def test_a_generator_stays_what_it_is():
    endless = (n for n in count())
    assert whole(endless) is endless
