"""Read, written row by row, and restored from: the same job, whatever the type of its keys."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.harness.programs import environment
from tests.harness.state_programs import restore_point, run_job
from tests.harness.test_round_trips import rewritten

from weir.common import Row
from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from weir.testing.campaign_backends import BACKENDS, settings_of
from weir.testing.harness import collect

NUMBERS = 24
_numbers = st.integers(-(2**63), 2**63 - 1)
_texts = st.text(max_size=4)
KEYS = {
    "tuple": (
        Types.TUPLE([Types.LONG(), Types.STRING()]),
        st.tuples(_numbers, _texts),
    ),
    "row": (
        Types.ROW_NAMED(["name", "size"], [Types.STRING(), Types.DOUBLE()]),
        st.builds(
            lambda name, size: Row(name=name, size=size),
            _texts,
            st.floats(allow_nan=False),
        ),
    ),
    "double": (Types.DOUBLE(), st.floats()),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=6)),
    "date": (Types.SQL_DATE(), st.dates(datetime.date(1, 1, 1))),
    "text": (Types.STRING(), _texts),
}


class Seen(KeyedProcessFunction):
    """Emits all that its states have of a key."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.many = runtime_context.get_list_state(ListStateDescriptor("many", Types.LONG()))
        of_map = MapStateDescriptor("by_half", Types.LONG(), Types.LONG())
        self.halves = runtime_context.get_map_state(of_map)

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        self.many.add(value)
        self.halves.put(value // 2, value)
        halves = tuple(sorted(self.halves.items()))
        yield value, self.count.value(), tuple(self.many.get()), halves


def program(keys, key_type):
    env = environment()
    numbers = env.from_sequence(1, NUMBERS).uid("numbers")
    keyed = numbers.key_by(lambda n: keys[n % len(keys)], key_type)
    collect(keyed.process(Seen()).uid("seen"))
    return env


@pytest.mark.matrix
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), kind=st.sampled_from(list(KEYS)), chosen=st.integers(1, 7))
def test_states_under_keys_of_any_type_go_on(tmp_path_factory, data, kind, chosen):
    key_type, values = KEYS[kind]
    keys = data.draw(st.lists(values, min_size=1, max_size=5))
    before, after = (data.draw(st.sampled_from(list(BACKENDS))) for _ in range(2))
    root = tmp_path_factory.mktemp("state")
    job = run_job(program(keys, key_type), root, 2, backend=settings_of(before))
    job.run_epoch(take=NUMBERS // 2, checkpoint=True)
    job.end_slots()
    place = root / job.job_id / "chk-1"
    copy = rewritten(place, root / "savepoint-copy", lambda number: chosen >> number % 3 & 1)

    def outcome(start):
        point = restore_point(root, start)
        later = run_job(program(keys, key_type), root, 3, point, backend=settings_of(after))
        return sorted(later.run(5).collected())

    whole = run_job(program(keys, key_type), root, 1).run().collected()
    assert outcome(copy) == outcome(place) == sorted(r for r in whole if r[0] > NUMBERS // 2)
