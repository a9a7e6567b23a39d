"""A program with every kind of state, and its checkpoints on a local storage."""

from __future__ import annotations

from tests.harness.programs import environment, started

from weir.checkpoint.decider import savepoint_request
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.common import Row, Time
from weir.common.typeinfo import Types
from weir.datastream import CheckpointedFunction, KeyedProcessFunction
from weir.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from weir.storage.local import LocalStorage
from weir.testing.campaign_backends import settings_of
from weir.testing.harness import collect

KEYS = 7
SAVEPOINT = "savepoint-0000aa-0123456789ab"


armed = []


def exploded():
    """Backends may load state while they write it; whoever describes a checkpoint may not."""
    if armed:
        msg = "somebody unpickled state"
        raise AssertionError(msg)
    return Bomb()


class Bomb:
    """A value that must not be loaded once it is armed."""

    def __reduce__(self):
        return exploded, ()


class Everything(KeyedProcessFunction, CheckpointedFunction):
    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()
        row = Types.ROW_NAMED(["amount", "tags"], [Types.DOUBLE(), Types.LIST(Types.STRING())])
        expiring = ValueStateDescriptor("total", Types.LONG())
        expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
        self.total = runtime_context.get_state(expiring)
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.STRING(), row))
        self.bombs = runtime_context.get_list_state(ListStateDescriptor("bombs", None))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value)
        if value <= KEYS:
            self.bombs.add(Bomb())
        if value == 1:
            self.seen.put("first", Row(1.5, ["new"]))
        ctx.timer_service().register_event_time_timer(1 << 40)
        yield value

    def initialize_state(self, context):
        self.buffer = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("buffer", Types.STRING())
        )

    def snapshot_state(self, context):
        self.buffer.update(["a", "b", "c"])
        raw = context.get_raw_keyed_operator_state_output()
        raw.start_new_key_group(64 * self.subtask)
        raw.write(b"12345")
        context.get_raw_operator_state_output().start_new_partition()


def job(root, kind="hashmap", *, tolerable=9, **options):
    env = environment()
    stream = env.from_sequence(1, 60).uid("numbers").key_by(lambda n: n % KEYS, Types.LONG())
    collect(stream.process(Everything()).name("All kinds").uid("everything"))
    checkpoints = CheckpointSettings(
        retention=Retention.RETAIN_ON_CANCELLATION, num_retained=5, tolerable_failures=tolerable
    )
    return started(
        env,
        backend=settings_of(kind),
        checkpoints=checkpoints,
        storage=LocalStorage(str(root)),
        **options,
    )


def take_savepoint(harness, directory=SAVEPOINT):
    coordinator = harness.runner.coordinator
    coordinator.submit(savepoint_request(coordinator.settings, directory, timestamp_ms=0))
    harness.run_epoch(take=2)
    return directory
