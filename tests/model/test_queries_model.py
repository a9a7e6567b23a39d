"""Queries against plain dicts: whatever a job goes through, answers are those of their moments.

Live answers show all records that were handled, committed ones those before the last checkpoint,
also while the job is down. Nobody who looks changes anything.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.examples import examples
from tests.harness.querying import KEYS, KINDS, descriptors, expected, job_of, queries_of

from weir.codec.portable import portable
from weir.common.typeinfo import Types
from weir.errors import WeirError
from weir.jobmanager.queries import (
    KeyRange,
    StateUnavailableError,
    Terms,
    UnknownKeyOrNamespaceError,
)
from weir.queryable.client import _read_by
from weir.queryable.immutable import state_of, state_with, stored_by_key
from weir.queryable.protocol import QueryRequest
from weir.testing.campaign_backends import settings_of

RECORDS = 400
NAMES = [name for name in KINDS if name != "expiring"]


def stored(kind: str, state: Any) -> Any:
    if kind == "total":
        return state.value()
    return dict(state.items()) if kind == "parity" else state.get()


class QueriesModel(RuleBasedStateMachine):
    """Drives a job, and counts how many records are in its state and in its last checkpoint."""

    @initialize(
        backend=st.sampled_from(["hashmap", "hashmap-incremental", "hashmap-changelog", "rocksdb"]),
        parallelism=st.integers(1, 3),
    )
    def start(self, backend: str, parallelism: int) -> None:
        self.job = job_of(RECORDS, parallelism, backend=settings_of(backend))
        self.queries = queries_of(self.job)
        self.queries.states()
        self.handled = 0
        self.committed: int | None = None
        self.down = False

    @precondition(lambda self: not self.down)
    @rule(count=st.integers(0, 12), checkpoint=st.booleans())
    def run(self, count: int, checkpoint: bool) -> None:
        count = min(count, RECORDS - 1 - self.handled)
        self.job.run_epoch(take=count, checkpoint=checkpoint)
        self.handled += count
        if checkpoint:
            self.committed = self.handled

    @precondition(lambda self: not self.down)
    @rule()
    def kill(self) -> None:
        self.job.kill_slot(0)
        self.down = True
        try:
            self.job.run_epoch(take=0)
        except WeirError:
            return
        raise AssertionError

    @precondition(lambda self: self.down)
    @rule()
    def recover(self) -> None:
        self.job.fail_over()
        self.job.run_epoch(take=0)
        self.down = False
        self.handled = self.committed or 0

    @precondition(lambda self: not self.down)
    @rule(parallelism=st.integers(1, 3))
    def rescale(self, parallelism: int) -> None:
        asked = self.job.control.rescale(parallelism)
        self.job.turn_until(asked.done)
        asked.result(0)
        self.committed = self.handled

    @rule(name=st.sampled_from(NAMES), keys=st.lists(st.integers(-1, KEYS), max_size=4))
    def look_live(self, name: str, keys: list[int]) -> None:
        terms = Terms("live")
        if not self.down:
            self.check(name, keys, terms, self.handled)
            return
        try:
            self.queries.get(f"q-{name}", range(KEYS), terms)
        except StateUnavailableError:
            return
        raise AssertionError

    @rule(name=st.sampled_from(NAMES), keys=st.lists(st.integers(-1, KEYS), max_size=4))
    def look_committed(self, name: str, keys: list[int]) -> None:
        if self.committed is not None:
            self.check(name, keys, Terms("committed"), self.committed)

    @rule(
        level=st.sampled_from(["live", "committed"]),
        low=st.none() | st.integers(0, KEYS),
        high=st.none() | st.integers(0, KEYS),
        limit=st.none() | st.integers(0, KEYS),
    )
    def scan(self, level: Any, low: int | None, high: int | None, limit: int | None) -> None:
        records = self.handled if level == "live" else self.committed
        if records is None or (level == "live" and self.down):
            return
        wanted = KeyRange(low=low, high=high)
        table = self.queries.scan("q-total", wanted, Terms(level, limit=limit)).table
        numbers = range(1, records + 1)
        inside = [
            (key, total)
            for key in range(KEYS)
            if (total := expected(numbers, key)["total"]) is not None
            and (low is None or key >= low)
            and (high is None or key < high)
        ]
        found = list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
        assert found == inside[:limit]

    def check(self, name: str, keys: list[int], terms: Terms, records: int) -> None:
        table = self.queries.get(f"q-{name}", keys, terms).table
        assert set(table["key"].to_pylist()) <= set(keys)
        for key in keys:
            answer = self.queries.get(f"q-{name}", [key], terms)
            try:
                found = stored(name, state_of(descriptors()[name], answer))
            except UnknownKeyOrNamespaceError:
                found = None
            assert found == expected(range(1, records + 1), key)[name]
        if terms.level == "live":
            self.check_entries(name, keys, records)

    def check_entries(self, name: str, keys: list[int], records: int) -> None:
        """Ask as clients do that read by the types of the state."""
        descriptor, of = descriptors()[name], portable(Types.LONG())
        read_by = _read_by(descriptor)
        assert read_by is not None
        entries = self.queries.entries(f"q-{name}", keys, read_by)
        assert entries is not None
        request = QueryRequest("", "", key_type=of.type_info.to_json(), read_by=read_by)
        values = stored_by_key(entries, request).values
        for key in keys:
            one = values.get(of.codec.encode(key))
            found = None if one is None else state_with(descriptor, one, entries.facts)
            shown = None if found is None else stored(name, found)
            assert shown == expected(range(1, records + 1), key)[name]

    def teardown(self) -> None:
        if hasattr(self, "job") and not self.down:
            for name in NAMES:
                self.check(name, list(range(KEYS)), Terms("live"), self.handled)
            self.job.end_slots()


TestQueriesModel = QueriesModel.TestCase
TestQueriesModel.settings = settings(
    max_examples=examples(30), stateful_step_count=20, deadline=None
)
