"""The table of operator kinds: complete on both sides, and the one place that decides by kind."""

from __future__ import annotations

import pytest
from tests.unit.graph.every_kind import every_kind

from weir.errors import UsageError
from weir.graph import kinds
from weir.graph.kinds import KINDS, Kind, KindState, SourceSideRule
from weir.graph.plan import compile_plan, runs_on_source_side
from weir.graph.transformation import Edge, StreamGraph, Transformation
from weir.graph.uids import is_stateful
from weir.runtime.catalog import SLOT_OPERATORS, SOURCE_OPERATORS

# Ids as savepoints of earlier releases have them.
IDS = {
    "source": "d4b25dd46988ceb388897e9c99967d44",
    "map": "ff47f7ee0dba56967df2bf64e9d6eaf7",
    "flat_map": "89584dc328513319348264b8ca55cbca",
    "filter": "1c01ce10c0382229aa154eda2fafed38",
    "project": "bd214395aae5696f3441fa3008c85821",
    "timestamps": "d3d1b77a4c4d7bf3232a729397f0e7bf",
    "process": "2978edcdad5c727fbff1648a025fdfa3",
    "reduce": "d436f2c1324fbd52b77c68152948173d",
    "aggregate": "585138bd76745b9daff1366f5b4c6a55",
    "window": "8955459040bf893f19fdcd8c430af7e4",
    "cep": "d0deb325f37482abbb0f915804f2b9f2",
    "co_map": "a1ca357bdcc4ac4902445636237e76cd",
    "co_flat_map": "3f6901403a7b0314a177f8f7d5ac8dd6",
    "co_process": "7638a54ac5bd1e9ce888bf9a16f82bc4",
    "broadcast_process": "050fec21d6bc185187206c6678872dc5",
    "interval_join": "a8ac79c38b3fe7c8d61745edbff1ef03",
    "async_wait": "c2d24761fb62051710f648ed5880a52e",
    "sink": "1d3f724c575c907f0632df332520c1db",
    "sink_v2": "0eb4cf755b70365bb4511a330628c4bc",
    "spark_sink": "bea6255ca9a8032f8150c72c5a517af2",
    "print": "6d9624e7aeb0d4b8a18b8e54c3986315",
    "collect": "5db5e4d8b6bcdfabd2cdbc4a2d9947f4",
}


def test_every_kind_that_programs_declare_has_a_row_and_every_row_is_declared():
    assert {t.kind for t in every_kind().transformations} == set(KINDS)


def test_every_row_has_a_constant_of_the_same_kind():
    assert [k for k in vars(kinds).values() if isinstance(k, Kind)] == list(KINDS.values())


def test_every_row_but_the_source_has_a_class_that_runs_it_in_a_slot():
    assert set(SLOT_OPERATORS) == {k for k in KINDS.values() if not k.is_source}


def test_every_row_that_may_run_next_to_a_source_has_a_class_for_it():
    may = {k for k in KINDS.values() if k.source_side is not SourceSideRule.NEVER}
    assert set(SOURCE_OPERATORS) == may - {kinds.SOURCE}


def test_operators_read_as_many_inputs_as_their_row_says():
    found = {t.kind: len(t.inputs) for t in every_kind().transformations}
    assert found == {kind.name: kind.inputs for kind in KINDS.values()}


def test_no_id_of_an_operator_changes():
    assert {op.kind: op.id for op in compile_plan(every_kind(), 1).operators} == IDS


def test_kinds_decide_who_has_state():
    found = {t.kind for t in every_kind().transformations if is_stateful(t)}
    always = {"broadcast_process", "sink_v2", "spark_sink"}
    kept = {"process", "reduce", "aggregate", "window", "interval_join", "cep"}
    assert found == always | kept
    assert {k.name for k in KINDS.values() if k.state is KindState.ALWAYS} == always


def test_kinds_decide_who_runs_next_to_the_source():
    found = {t.kind for t in every_kind().transformations if runs_on_source_side(t)}
    assert found == {"source", "map", "flat_map", "filter", "project", "timestamps"}


def graph_of(kind: str) -> StreamGraph:
    source = Transformation(1, "source", "numbers")
    return StreamGraph("job", [Transformation(2, kind, "mine", inputs=[[Edge(source)]])], 1)


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(UsageError, match=r"operator 'mine' is of kind 'zip'.*flat_map"):
        compile_plan(graph_of("zip"), 1)


def test_another_number_of_inputs_is_refused():
    with pytest.raises(UsageError, match=r"'mine' of kind 'co_map' has 1 inputs, expected 2"):
        compile_plan(graph_of("co_map"), 1)
