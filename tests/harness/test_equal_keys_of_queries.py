"""Whoever asks for a key finds what an equal key has: live, committed and in files."""

from __future__ import annotations

import math
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.harness.programs import environment, started
from tests.harness.querying import queries_of

from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.state import ValueStateDescriptor
from weir.jobmanager.queries import QueryError, Terms
from weir.keygroup import KeyGroupRange
from weir.keys import one_nan
from weir.offline import read_snapshot
from weir.offline.key_readers import ReadKeys
from weir.queryable.immutable import state_of
from weir.state_processor import KeyedStateReaderFunction, SavepointKeyFilter
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import settings_of
from weir.testing.equal_keys import Name, Pair, equal_keys
from weir.testing.harness import collect

pytestmark = pytest.mark.matrix
GROUPS = 8


def count():
    made = ValueStateDescriptor("count", Types.LONG())
    made.set_queryable("q-count")
    return made


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(count())

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield 0


class Reader(KeyedStateReaderFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(count())

    def read_key(self, key, ctx):
        yield self.count.value()


def job_of(keys, backend, root):
    env = environment()
    keyed = env.from_collection(keys).key_by(lambda key: key)
    collect(keyed.process(Count()).uid("counts").set_max_parallelism(GROUPS))
    return started(env, 2, backend=settings_of(backend), storage=LocalStorage(root))


def asked(queries, key, level):
    """Return what a query finds; None if it is refused because pickles run code."""
    try:
        return state_of(count(), queries.get("q-count", [key], Terms(level))).value()
    except QueryError as error:
        if "holds pickled" in str(error):
            return None
        raise


def read_offline(contents, key):
    """Read a key by a reader function, and as rows."""
    reads = ReadKeys("counts", Reader(), SavepointKeyFilter.exact(key))
    by_function = list(reads.read(contents, KeyGroupRange(0, GROUPS - 1)))
    rows = contents.keyed_state("counts", "count").rows_of([key])
    return by_function, [n for batch in rows for n in batch.column("value").to_pylist()]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "rocksdb-incremental"])
@settings(max_examples=examples(6), deadline=None)
@given(pairs=st.lists(equal_keys(), min_size=1, max_size=6))
def test_whoever_asks_for_a_key_finds_what_an_equal_one_has(backend, pairs):
    counts = {}
    for key, _ in pairs:
        counts[one_nan(key)] = counts.get(one_nan(key), 0) + 1
    with tempfile.TemporaryDirectory() as root:
        job = job_of([key for key, _ in pairs], backend, root)
        job.run_epoch(checkpoint=True)
        queries = queries_of(job)
        contents = read_snapshot(f"{root}/{job.job_id}/chk-1", unpickle=True)
        for _, equal in pairs:
            expected = counts[one_nan(equal)]
            assert asked(queries, equal, "live") in (expected, None)
            assert asked(queries, equal, "committed") in (expected, None)
            assert read_offline(contents, equal) == ([expected], [expected])
        job.end_slots()


PLAIN = [(1, np.int64(1)), (math.nan, np.float32("nan")), ("a", Name.A), ((1, 2.5), Pair(1.0, 2.5))]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "rocksdb-incremental"])
def test_keys_that_equal_plain_data_are_never_refused(backend, tmp_path):
    job = job_of([key for key, _ in PLAIN], backend, str(tmp_path))
    job.run_epoch(checkpoint=True)
    queries = queries_of(job)
    for _, equal in PLAIN:
        assert [asked(queries, equal, level) for level in ("live", "committed")] == [1, 1]
    job.end_slots()
