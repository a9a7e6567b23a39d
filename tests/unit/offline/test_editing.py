"""Changes of one edit: the savepoint is that of the same changes written one by one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from weir.common.typeinfo import Types
from weir.datastream.state import ListStateDescriptor, ValueStateDescriptor
from weir.errors import UsageError
from weir.offline import SavepointEdit, read_snapshot
from weir.offline.edit_parts import prepared
from weir.offline.elements import MODES
from weir.runtime.sinks import COMMITTABLES

UIDS = ("a", "b", "c")
STATES = ("x", "y", "both")
TRANSACTIONS = [(1, "t1"), (1, "t2"), (2, "t3"), (2, "t4")]
ANY = (Types.PICKLED_BYTE_ARRAY(), None)


def rows(*values):
    return pa.table({"key": range(len(values)), "value": pa.array(values, pa.int64())})


def keyed(edit, uid, name, *values):
    state = ValueStateDescriptor(name, Types.LONG())
    return edit.with_rows(uid, state, rows(*values), key_type=Types.LONG())


def listed(edit, uid, name, *values):
    table = pa.table({"value": pa.array(values, pa.int64())})
    return edit.with_element_rows(uid, ListStateDescriptor(name, Types.LONG()), table)


def start(root):
    """A savepoint of two operators with keyed state, operator state, and what a sink prepared."""
    edit = SavepointEdit.new()
    for uid in ("a", "b"):
        edit.with_operator(uid, parallelism=2, max_parallelism=8)
        keyed(edit, uid, "x", 1, 2, 3, 4)
        keyed(edit, uid, "both", 5, 6)
        listed(edit, uid, "both", 7, 8, 9)
        elements = prepared(TRANSACTIONS, pickled=True)
        edit.with_operator_state(uid, COMMITTABLES, "UNION", ANY, elements)
    return edit.write(str(root / "start"))


def contents_of(place):
    """Everything that a savepoint holds, by operator, kind and name."""
    found = read_snapshot(str(place))
    states = {}
    for stored in found.states():
        at = stored.operator.id
        if stored.kind in MODES.values():
            held = sorted(map(repr, found.operator_state(at, stored.name).elements()))
            if stored.name == COMMITTABLES:
                held = sorted(row[1:] for row in found.transactions(at).rows)
        else:
            held = sorted(
                tuple(row.values())
                for batch in found.keyed_state(at, stored.name).batches()
                for row in batch.to_pylist()
            )
        states[stored.operator.uid, stored.kind, stored.name] = held
    operators = found.snapshot.metadata.operators
    return states, sorted((op.uid, op.max_parallelism) for op in operators)


uids = st.sampled_from(UIDS)
names = st.sampled_from(STATES)
values = st.lists(st.integers(0, 9), max_size=3)
changes = st.one_of(
    st.tuples(st.just("keyed"), uids, names, values),
    st.tuples(st.just("listed"), uids, names, values),
    st.tuples(st.just("remove_state"), uids, st.sampled_from([*STATES, COMMITTABLES])),
    st.tuples(st.just("with_max_parallelism"), uids, st.sampled_from([4, 8, 13])),
    st.tuples(st.just("change_operator_identifier"), uids, uids),
    st.tuples(st.just("remove_operator"), uids),
    st.tuples(st.just("with_operator"), uids),
    st.tuples(st.just("filter"), uids, st.sets(st.sampled_from([t for _, t in TRANSACTIONS]))),
)


def applied(edit, change):
    """Ask for a change; tell whether it was taken."""
    what, uid, *rest = change
    try:
        if what == "keyed":
            keyed(edit, uid, rest[0], *rest[1])
        elif what == "listed":
            listed(edit, uid, rest[0], *rest[1])
        elif what == "with_operator":
            edit.with_operator(uid, parallelism=2, max_parallelism=8)
        elif what == "filter":
            edit.filter_transactions(uid, lambda _, transaction: transaction not in rest[0])
        else:
            getattr(edit, what)(uid, *rest)
    except UsageError:
        return False
    return True


def check(root, chain):
    place = start(root)
    together = SavepointEdit.of(read_snapshot(place))
    for number, change in enumerate(chain):
        alone = SavepointEdit.of(read_snapshot(place))
        assert applied(together, change) == applied(alone, change), change
        place = alone.write(str(root / f"step-{number}"))
    assert contents_of(together.write(str(root / "together"))) == contents_of(place)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(chain=st.lists(changes, min_size=2, max_size=6))
def test_changes_of_one_edit_are_those_that_are_written_one_by_one(tmp_path_factory, chain):
    check(tmp_path_factory.mktemp("edits"), chain)


CHAINS = {
    "removed after it moved": [("with_max_parallelism", "a", 13), ("remove_state", "a", "x")],
    "moved after it was removed": [("remove_state", "a", "x"), ("with_max_parallelism", "a", 13)],
    "removed after rows": [("keyed", "a", "x", [9]), ("remove_state", "a", "x")],
    "rows after it was removed": [("remove_state", "a", "x"), ("keyed", "a", "x", [9])],
    "elements removed": [("listed", "a", "y", [9]), ("remove_state", "a", "y")],
    "one of two kinds comes back": [("remove_state", "a", "both"), ("keyed", "a", "both", [9])],
    "one of two kinds is given": [("listed", "a", "both", [9])],
    "filtered twice": [("filter", "a", {"t1"}), ("filter", "a", {"t3"})],
    "filtered after it was removed": [("remove_state", "a", COMMITTABLES), ("filter", "a", set())],
    "filtered under another uid": [
        ("filter", "a", {"t1"}),
        ("change_operator_identifier", "a", "c"),
        ("filter", "c", {"t2"}),
    ],
    "a new operator has no transactions": [
        ("remove_operator", "a"),
        ("with_operator", "a"),
        ("filter", "a", {"t1"}),
    ],
}


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_asked_last_counts(tmp_path, name):
    check(tmp_path, CHAINS[name])


def test_transactions_that_were_dropped_stay_so(tmp_path):
    edit = SavepointEdit.of(read_snapshot(start(tmp_path)))
    edit.filter_transactions("a", lambda _, found: found != "t1")
    edit.filter_transactions("a", lambda number, _: number == 1)
    found = read_snapshot(edit.write(str(tmp_path / "left")))
    assert [row[1:] for row in found.transactions("a").rows] == [(1, "t2")]
    assert len(found.transactions("b").rows) == len(TRANSACTIONS)
