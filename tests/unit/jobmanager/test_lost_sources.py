"""The position of a source is state: a program without the source is refused."""

from __future__ import annotations

import pytest

from weir.checkpoint.metadata import CheckpointMetadata, SourceLayout, SourcePositions
from weir.common.typeinfo import Types
from weir.datastream import StreamExecutionEnvironment
from weir.errors import IncompatibleStateError
from weir.graph.plan import compile_plan
from weir.jobmanager.assignments import refuse_lost_sources
from weir.jobmanager.recovery import RestorePoint


def plan(*uids):
    env = StreamExecutionEnvironment()
    for uid in uids:
        env.from_collection([1], Types.LONG()).uid(uid).print()
    return compile_plan(env.build_graph(), 1)


def point(batch_id, *uids):
    layout = tuple(SourceLayout(uid, i) for i, uid in enumerate(uids))
    positions = SourcePositions(batch_id=batch_id, layout=layout)
    metadata = CheckpointMetadata(3, "j", "job", 0, "savepoint", 1, positions)
    return RestorePoint("file:///x", "savepoint-1", metadata)


def test_a_removed_source_is_refused_and_an_added_one_is_fine():
    refuse_lost_sources(plan("a", "b"), point(4, "a"), False)
    with pytest.raises(IncompatibleStateError, match=r"savepoint 3.*'b'.*allowNonRestoredState"):
        refuse_lost_sources(plan("a", "c"), point(4, "a", "b"), False)
    refuse_lost_sources(plan("a", "c"), point(4, "a", "b"), True)


def test_a_source_that_was_never_read_may_go():
    refuse_lost_sources(plan("a"), point(None, "a", "b"), False)
