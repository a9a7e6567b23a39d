"""reduce, sum, min, max, min_by, max_by and the map family, through the whole runtime."""

from __future__ import annotations

from collections import Counter

import pytest

from weir.common.typeinfo import Types
from weir.datastream import StreamExecutionEnvironment
from weir.testing.harness import JobHarness, collect


def environment():
    return StreamExecutionEnvironment()


def run(env, parallelism=2, take=None):
    return JobHarness(env.build_graph(), parallelism).start().run(take)


def per_key(records):
    by_key = {}
    for r in records:
        by_key.setdefault(r[0], []).append(r)
    return by_key


PAIRS = [("a", 3, "x"), ("b", 1, "y"), ("a", 1, "z"), ("a", 2, "w"), ("b", 5, "v")]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda s: s.sum(1), [("a", 3, "x"), ("a", 4, "x"), ("a", 6, "x")]),
        (lambda s: s.min(1), [("a", 3, "x"), ("a", 1, "x"), ("a", 1, "x")]),
        (lambda s: s.max(1), [("a", 3, "x"), ("a", 3, "x"), ("a", 3, "x")]),
        (lambda s: s.min_by(1), [("a", 3, "x"), ("a", 1, "z"), ("a", 1, "z")]),
        (lambda s: s.max_by(1), [("a", 3, "x"), ("a", 3, "x"), ("a", 3, "x")]),
        (
            lambda s: s.reduce(lambda a, b: (a[0], a[1] * 10 + b[1], b[2])),
            [("a", 3, "x"), ("a", 31, "z"), ("a", 312, "w")],
        ),
    ],
)
@pytest.mark.parametrize("take", [None, 1])
def test_a_rolling_aggregate_emits_the_new_result_for_every_record(call, expected, take):
    env = environment()
    collect(call(env.from_collection(PAIRS).key_by(lambda r: r[0])))
    assert per_key(run(env, take=take).collected())["a"] == expected


def test_stateless_functions_run_on_the_source_side_in_order():
    env = environment()
    stream = env.from_sequence(1, 10).map(lambda n: n * n).filter(lambda n: n % 2 == 0)
    collect(stream.flat_map(lambda n: [n, -n]))
    assert Counter(run(env).collected()) == Counter([4, -4, 16, -16, 36, -36, 64, -64, 100, -100])


def test_project_keeps_fields_in_the_given_order():
    env = environment()
    typed = env.from_collection(PAIRS, Types.TUPLE([Types.STRING(), Types.INT(), Types.STRING()]))
    collect(typed.project(2, 0))
    assert sorted(run(env).collected()) == sorted((p[2], p[0]) for p in PAIRS)
