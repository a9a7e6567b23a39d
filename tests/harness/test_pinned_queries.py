"""Checkpoints that are read stay until they were read; who does not go on reading is given up."""

from __future__ import annotations

import threading

import pytest
from tests.harness.querying import KEYS, expected, job_of, queries_of

from weir.checkpoint.held import HeldCheckpoints
from weir.checkpoint.paths import METADATA_NAME
from weir.jobmanager.queries import (
    KeyRange,
    QueryLimitError,
    StateTooOldError,
    StateUnavailableError,
    Terms,
)
from weir.queryable.committed import OpenedCheckpoint
from weir.queryable.protocol import facts_of
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import settings_of
from weir.testing.clock import ManualClock

LIVE, COMMITTED = Terms("live"), Terms("committed")


@pytest.fixture(params=["hashmap", "hashmap-changelog", "rocksdb-incremental"])
def job(request, tmp_path):
    backend = settings_of(request.param)
    made = job_of(60, storage=LocalStorage(str(tmp_path)), backend=backend)
    made.run_epoch(take=20, checkpoint=True)
    return made


def checkpoints_of(job):
    """The numbers of the checkpoints that there are."""
    storage, job_id = job.supervisor.spec.storage, job.job_id
    found = [name for name in storage.list(job_id) if name.startswith("chk-")]
    whole = (n for n in found if METADATA_NAME in storage.list(f"{job_id}/{n}"))
    return sorted(int(name.removeprefix("chk-")) for name in whole)


def totals(batches):
    return {row["key"]: row["value"] for batch in batches for row in batch.to_pylist()}


def wanted(numbers):
    return {key: expected(numbers, key)["total"] for key in range(KEYS)}


def test_a_stream_is_of_one_checkpoint_however_many_come_meanwhile(job):
    queries = queries_of(job)
    schema, rows = queries.stream("q-total", COMMITTED)
    begun = [next(rows)]
    for _ in range(3):
        job.run_epoch(take=5, checkpoint=True)
    assert checkpoints_of(job) == [1, 4], "what nobody reads is deleted as ever"
    assert totals([*begun, *rows]) == wanted(range(1, 21))
    assert facts_of(schema).checkpoint_id == 1
    job.run_epoch(take=5, checkpoint=True)
    assert checkpoints_of(job) == [5]
    assert totals(queries.stream("q-total", COMMITTED)[1]) == wanted(range(1, 41))


def test_a_stream_that_is_closed_holds_nothing(job):
    queries = queries_of(job)
    _, rows = queries.stream("q-total", COMMITTED)
    next(rows)
    rows.close()
    _, never_begun = queries.stream("q-total", COMMITTED)
    del never_begun
    job.run_epoch(take=5, checkpoint=True)
    assert checkpoints_of(job) == [2]


def test_who_does_not_read_on_is_given_up_and_keeps_neither_place_nor_files(job):
    queries = queries_of(job, at_once=1, timeout_ms=1000)
    _, rows = queries.stream("q-total", COMMITTED)
    next(rows)
    job.clock.advance(1000)
    with pytest.raises(QueryLimitError, match="1 queries are being answered"):
        queries.get("q-total", [1], LIVE)
    next(rows)
    job.clock.advance(1001)
    assert queries.get("q-total", [1], LIVE).table.num_rows == 1
    job.clock.advance(1001)
    job.run_epoch(take=5, checkpoint=True)
    assert checkpoints_of(job) == [2]
    with pytest.raises(QueryLimitError, match="not read for more than 1000 ms"):
        next(rows)
    with queries.limits.admitted(), pytest.raises(QueryLimitError):
        queries.stream("q-total", LIVE)
    assert totals(queries.stream("q-total", LIVE)[1]) == wanted(range(1, 26))


def test_the_end_of_a_job_takes_what_is_held_with_it(job):
    queries = queries_of(job)
    _, rows = queries.stream("q-total", COMMITTED)
    next(rows)
    job.run_epoch(take=5, checkpoint=True)
    assert checkpoints_of(job) == [1, 2]
    job.run()
    assert checkpoints_of(job) == []
    assert job.supervisor.spec.storage.list(f"{job.job_id}/shared") == []


def test_a_stream_whose_files_are_lost_says_so(job):
    queries = queries_of(job)
    _, rows = queries.stream("q-total", COMMITTED)
    storage = job.supervisor.spec.storage
    for name in storage.list(job.job_id):
        storage.delete_tree(f"{job.job_id}/{name}")
    with pytest.raises(StateUnavailableError, match=r"'q-total' of checkpoint 1 cannot be read"):
        list(rows)


def test_the_schema_of_a_stream_tells_how_true_it_is(job):
    job.clock.advance(250)
    job.run_epoch(take=5)
    queries = queries_of(job)
    committed = facts_of(queries.stream("q-total", COMMITTED)[0])
    assert (committed.level, committed.checkpoint_id, committed.age_ms) == ("committed", 1, 250)
    live = facts_of(queries.stream("q-total", LIVE)[0])
    assert (live.level, live.checkpoint_id, live.age_ms) == ("live", 1, 0)
    with pytest.raises(StateTooOldError, match="250 ms old"):
        queries.stream("q-total", Terms("committed", max_age_ms=249))


def test_a_live_scan_is_as_old_as_the_key_group_that_was_read_first(job):
    queries = queries_of(job)
    queries.states()
    groups = queries._live.groups

    def slow(*asked):
        for found in groups(*asked):
            yield found
            job.clock.advance(10)

    queries._live.groups = slow
    facts = queries.scan("q-total", KeyRange(), LIVE).facts
    assert facts.age_ms == 160, "there are sixteen key groups"
    assert queries.scan("q-total", KeyRange(), Terms("live", max_age_ms=160)).facts.age_ms == 160
    with pytest.raises(StateTooOldError, match="rows that were read first are 160 ms old"):
        queries.scan("q-total", KeyRange(), Terms("live", max_age_ms=159))


def test_a_look_up_of_many_committed_keys_has_a_time_limit(job):
    queries = queries_of(job, timeout_ms=1000)
    opened = queries.committed(lambda pinned: pinned.opened)
    read = opened.group

    def slow(state, group):
        job.clock.advance(400)
        return read(state, group)

    opened.group = slow
    assert queries.get("q-total", [1, 2], COMMITTED).table.num_rows == 2
    with pytest.raises(QueryLimitError, match="look-up took more than 1000 ms"):
        queries.get("q-total", range(KEYS), COMMITTED)


def test_decoded_key_groups_are_kept_by_their_bytes(job):
    queries = queries_of(job)
    known = queries.catalog.find("q-seen")
    contents = queries.committed(lambda pinned: pinned.opened).contents
    groups = sorted({known.group_of(key) for key in range(KEYS)})
    assert len(groups) > 2
    for most, kept in ((0, groups[-1:]), (1 << 20, groups)):
        opened = OpenedCheckpoint(contents, bytes_kept=most)
        for group in groups:
            assert opened.group(known, group)
        assert [at[2] for at in opened._groups] == kept
    sizes = [size for _, size in opened._groups.values()]
    small = OpenedCheckpoint(contents, bytes_kept=sum(sizes[-2:]))
    for group in groups:
        small.group(known, group)
    assert [at[2] for at in small._groups] == groups[-2:]


def test_who_reads_a_state_waits_for_nobody_who_reads_another_one(job):
    queries = queries_of(job)
    total, seen = (queries.catalog.find(name) for name in ("q-total", "q-seen"))
    contents = queries.committed(lambda pinned: pinned.opened).contents
    begun, go, prepared = threading.Event(), threading.Event(), []

    class Slow:
        """The table of one state takes its time."""

        def __init__(self, table):
            self.table = table

        def prepared(self):
            if self.table.name == "total":
                prepared.append(self)
                begun.set()
                assert go.wait(30)
            return self.table.prepared()

    class Contents:
        snapshot = contents.snapshot

        def keyed_state(self, *at):
            return Slow(contents.keyed_state(*at))

    opened = OpenedCheckpoint(Contents())
    found = []
    reading = [threading.Thread(target=lambda: found.append(opened.table(total))) for _ in range(2)]
    for thread in reading:
        thread.start()
    assert begun.wait(30)
    assert opened.table(seen).name == "seen"
    assert found == []
    go.set()
    for thread in reading:
        thread.join(30)
    assert [table.name for table in found] == ["total", "total"]
    assert len(prepared) == 1


def test_the_lease_begins_anew_when_a_state_was_looked_through(job):
    """However long that took: newer checkpoints do not take the files of the rest away."""
    queries = queries_of(job, timeout_ms=60_000)
    known = queries.catalog.find("q-total")
    lease_ms = 2 * 60_000

    def read(pinned):
        table = pinned.opened.table

        def slow(state):
            job.clock.advance(lease_ms - 1)
            return table(state)

        pinned.opened.table = slow
        rows = iter(pinned.batches(known))
        begun = [next(rows)]
        pinned.opened.table = table
        job.clock.advance(2)
        job.run_epoch(take=5, checkpoint=True)
        assert checkpoints_of(job) == [1, 2]
        return totals([*begun, *rows])

    assert queries.committed(read) == wanted(range(1, 21))


def test_a_checkpoint_is_let_go_when_nobody_holds_it_or_its_lease_is_over():
    clock = ManualClock()
    held = HeldCheckpoints(clock)
    assert held.take(1) is None
    held.add(1)
    one, other = held.take(1, 1000), held.take(1, 1000)
    one.release()
    one.release()
    assert not held.let_go(1)
    clock.advance(900)
    other.renew()
    clock.advance(1000)
    assert not held.let_go(1)
    clock.advance(1)
    assert held.let_go(1)
    assert held.take(1) is None
    other.release()
    assert held.let_go(1), "it is asked again where a deletion failed"
