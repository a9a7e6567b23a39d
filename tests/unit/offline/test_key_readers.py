"""Reader functions and edits run no code of pickles, whatever backend wrote them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.unit.offline.samples import KEYS, armed, job

from weir.common import Time
from weir.common.typeinfo import Types
from weir.datastream.state import ListStateDescriptor, StateTtlConfig, ValueStateDescriptor
from weir.errors import UsageError
from weir.keygroup import KeyGroupRange
from weir.offline import SavepointEdit, read_snapshot
from weir.offline.key_readers import ReadKeys
from weir.state_processor import KeyedStateReaderFunction
from weir.testing.campaign_backends import BACKENDS

EVERYTHING = KeyGroupRange(0, 127)
TOTALS = {key: sum(n for n in range(1, 19) if n % KEYS == key) for key in range(KEYS)}


class Totals(KeyedStateReaderFunction):
    def open(self, runtime_context):
        total = ValueStateDescriptor("total", Types.LONG())
        total.enable_time_to_live(StateTtlConfig.new_builder(Time.days(10**6)).build())
        self.total = runtime_context.get_state(total)

    def read_key(self, key, ctx):
        yield key, self.total.value()


class Bombs(Totals):
    def open(self, runtime_context):
        super().open(runtime_context)
        self.bombs = runtime_context.get_list_state(ListStateDescriptor("bombs", None))


@pytest.fixture(params=list(BACKENDS))
def taken(request, tmp_path):
    """A checkpoint of each kind, of which nobody may unpickle a value."""
    harness = job(tmp_path, request.param)
    for _ in range(3):
        harness.run_epoch(take=6, checkpoint=True)
    harness.end_slots()
    armed.append(True)
    yield request.param, str(tmp_path / harness.job_id / "chk-3")
    armed.clear()


def test_a_function_reads_its_states_without_loading_others(taken):
    found = ReadKeys("everything", Totals()).read(read_snapshot(taken[1]), EVERYTHING)
    assert dict(found) == TOTALS


def test_a_function_that_asks_for_pickled_values_is_refused_before_one_is_loaded(taken):
    with pytest.raises(UsageError, match="state 'bombs' holds pickled values"):
        list(ReadKeys("everything", Bombs()).read(read_snapshot(taken[1]), EVERYTHING))


def test_an_edit_loads_no_pickles_unless_that_is_allowed(taken, tmp_path):
    kind, place = taken
    rows = pa.table({"key": [1], "value": [5], "ttl_timestamp": [0]})
    edit = SavepointEdit.of(read_snapshot(place)).with_rows("everything", "total", rows)
    if kind == "rocksdb-incremental":
        with pytest.raises(UsageError, match=r"it holds pickled objects that need.*--unpickle"):
            edit.write(str(tmp_path / "whole"))
        assert not (tmp_path / "whole").exists()
    else:
        edit.write(str(tmp_path / "whole"))
    edit.remove_state("everything", "bombs")
    found = read_snapshot(edit.write(str(tmp_path / "less")))
    assert [r["value"] for b in found.table("everything", "total").batches() for r in b.to_pylist()]
    [seen] = found.keyed_state("everything", "seen").entries()
    assert seen.value["first"].as_dict() == {"amount": 1.5, "tags": ["new"]}
