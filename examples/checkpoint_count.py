"""Records counted per key in keyed state, and per subtask in operator state.

The number per key moves with its key when the job is rescaled. The numbers per subtask are split
among the new subtasks: their sum stays. Run it with `weir run examples/checkpoint_count.py`.
"""

from collections.abc import Iterator

from weir.common.typeinfo import Types
from weir.datastream import CheckpointedFunction, FlatMapFunction, StreamExecutionEnvironment
from weir.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from weir.datastream.state import ListStateDescriptor, ValueStateDescriptor


class CheckpointCount(FlatMapFunction[tuple[int, int], tuple[int, int, int]], CheckpointedFunction):
    def __init__(self) -> None:
        self.operator_count = 0

    def flat_map(self, value: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
        keyed_count = (self.keyed_state.value() or 0) + 1
        self.keyed_state.update(keyed_count)
        self.operator_count += 1
        yield value[0], keyed_count, self.operator_count

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.keyed_state = context.get_keyed_state_store().get_state(
            ValueStateDescriptor("keyedState", Types.LONG())
        )
        self.operator_state = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("operatorState", Types.LONG())
        )
        if context.is_restored():
            self.operator_count = sum(self.operator_state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.operator_state.clear()
        self.operator_state.add(self.operator_count)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection([(1, 10), (2, 20), (1, 30), (1, 40), (2, 50)]) \
        .key_by(lambda row: row[0]) \
        .flat_map(CheckpointCount()) \
        .uid("count") \
        .print()  # fmt: skip
    env.execute("checkpoint count")


if __name__ == "__main__":
    main()
