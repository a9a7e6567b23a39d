"""sum, min and max over columns: the same results and the same state as record by record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.programs import environment, started

from weir.common.typeinfo import Types
from weir.errors import UsageError
from weir.runtime.rolling import RollingAggregate
from weir.testing.harness import collect

LONG = Types.LONG()
NAMED = Types.ROW_NAMED(["key", "other", "n"], [Types.STRING(), Types.STRING(), Types.INT()])
TYPES = {
    "tuple": (Types.TUPLE([LONG, Types.STRING(), LONG]), 2),
    "row": (NAMED, "n"),
    "float": (Types.TUPLE([LONG, Types.STRING(), Types.DOUBLE()]), 2),
}
BIG = (1 << 63) - 1


def aggregated(records, declared, op, field, take=None, *, columns=True, **options):
    """Run the program; by columns, or with a key function that only records can answer."""
    env = environment()
    source = env.from_collection(records, declared).map(lambda r: r, declared)
    name = declared.get_field_names()[0]
    keyed = source.key_by(lambda r: r[0]) if columns else source.key_by(lambda r: (r[0],)[0])
    assert name
    collect(getattr(keyed, op)(field).uid("aggregate"))
    job = started(env, **options)
    while not job.sources.exhausted:
        job.run_epoch(take=take)
        job.checkpoint()
    return job


def by_key(job):
    found = {}
    for record in job.collected():
        found.setdefault(record[0], []).append(tuple(record))
    return found


numbers = st.integers(-(1 << 40), 1 << 40)
keys = st.integers(0, 5)


@pytest.mark.slow
@given(
    st.lists(st.tuples(keys, st.text("ab", max_size=2), numbers), max_size=40),
    st.sampled_from(["sum", "min", "max"]),
    st.sampled_from([None, 3, 17]),
)
def test_columns_and_records_agree(records, op, take):
    declared = TYPES["tuple"][0]
    fast = aggregated(records, declared, op, 2, take)
    slow = aggregated(records, declared, op, 2, take, columns=False)
    assert by_key(fast) == by_key(slow)


@pytest.fixture
def counted(monkeypatch):
    """Count the batches that were aggregated as columns, and those that were refused."""
    taken = []
    process = RollingAggregate.process_columns

    def counting(self, batch, edge):
        taken.append(process(self, batch, edge))
        return taken[-1]

    monkeypatch.setattr(RollingAggregate, "process_columns", counting)
    return taken


@pytest.mark.parametrize("op", ["sum", "min", "max"])
def test_named_rows_with_string_keys_keep_the_first_record_of_their_key(counted, op):
    records = [("a", "x", 5), ("b", "y", -1), ("a", "z", 3), ("a", "w", 9), ("b", "v", 4)]
    job = aggregated(records, NAMED, op, "n", 2)
    results = {"sum": [5, 8, 17], "min": [5, 3, 3], "max": [5, 5, 9]}[op]
    assert by_key(job)["a"] == [("a", "x", n) for n in results]
    assert set(counted) == {True}


def test_least_and_greatest_of_floats_are_exact_and_odd_ones_go_record_by_record(counted):
    declared = TYPES["float"][0]
    plain = [(1, "a", 2.5), (1, "b", -1.25), (2, "c", 1e300), (1, "d", 7.0)]
    assert by_key(aggregated(plain, declared, "min", 2))[1][-1] == (1, "a", -1.25)
    assert by_key(aggregated(plain, declared, "max", 2))[1][-1] == (1, "a", 7.0)
    assert set(counted) == {True}
    counted.clear()
    assert by_key(aggregated([(1, "a", 0.0), (1, "b", -0.0)], declared, "min", 2))[1]
    assert by_key(aggregated(plain, declared, "sum", 2))[1][-1] == (1, "a", 8.25)
    assert set(counted) == {False}


@pytest.mark.parametrize(
    "records",
    [
        [(1, "a", BIG - 5), (1, "b", 3)],
        [(1, "a", BIG - 5)] * 1 + [(2, "b", BIG - 5), (2, "c", -7)],
        [(1, None, 4), (1, "b", None)],
    ],
)
def test_what_columns_cannot_do_exactly_goes_record_by_record(counted, records):
    declared = TYPES["tuple"][0]
    if records[1][2] is None:
        with pytest.raises(Exception, match="NoneType"):
            aggregated(records, declared, "sum", 2)
    else:
        slow = aggregated(records, declared, "sum", 2, columns=False)
        counted.clear()
        assert by_key(aggregated(records, declared, "sum", 2)) == by_key(slow)
    assert False in counted


def test_an_int_that_grows_out_of_its_type_is_refused_as_for_records():
    declared = Types.TUPLE([LONG, Types.INT()])
    job = aggregated([(1, (1 << 31) - 1)], declared, "sum", 1)
    assert by_key(job) == {1: [(1, (1 << 31) - 1)]}
    with pytest.raises(UsageError, match="cannot hold 2147483652"):
        aggregated([(1, (1 << 31) - 1), (1, 5)], declared, "sum", 1)


def test_results_go_on_from_a_checkpoint_with_another_parallelism(counted):
    records = [(n % 7, str(n), n) for n in range(40)]
    declared = TYPES["tuple"][0]
    whole = by_key(aggregated(records, declared, "sum", 2, 5))
    env = environment()
    stream = env.from_collection(records, declared).map(lambda r: r, declared)
    collect(stream.key_by(lambda r: r[0]).sum(2).uid("aggregate"))
    job = started(env)
    job.run_epoch(take=20)
    job.checkpoint()
    before = list(job.collected())
    later = job.restart(3).run(take=5)
    found = {}
    for record in [*before, *later.collected()]:
        found.setdefault(record[0], []).append(record)
    assert found == whole
    assert set(counted) == {True}
