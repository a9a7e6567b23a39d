"""A sink that sends records in batches and keeps what waits in operator state.

At a barrier the waiting records are stored, so a crash loses none of them; when the job is started
with another parallelism, they are dealt out to the new subtasks. What was sent after the last
checkpoint is sent again after a crash, as with every plain sink. Run it with
`weir run examples/buffering_sink.py`.
"""

import tempfile
from pathlib import Path

from weir.common.typeinfo import Types
from weir.datastream import CheckpointedFunction, SinkFunction, StreamExecutionEnvironment
from weir.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from weir.datastream.state import ListStateDescriptor


class BufferingSink(SinkFunction, CheckpointedFunction):
    def __init__(self, threshold: int, target: str) -> None:
        self.threshold = threshold
        self.target = target
        self.buffered_elements: list[tuple[str, int]] = []

    def invoke(self, value: tuple[str, int], context: SinkFunction.Context) -> None:
        self.buffered_elements.append(value)
        if len(self.buffered_elements) >= self.threshold:
            self.send()

    def finish(self) -> None:
        # The input has ended: nothing comes that would fill the buffer.
        self.send()

    def send(self) -> None:
        with Path(self.target).open("a") as out:
            out.writelines(f"{word},{count}\n" for word, count in self.buffered_elements)
        self.buffered_elements.clear()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.checkpointed_state.clear()
        for element in self.buffered_elements:
            self.checkpointed_state.add(element)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor(
            "buffered-elements", Types.TUPLE([Types.STRING(), Types.INT()])
        )
        self.checkpointed_state = context.get_operator_state_store().get_list_state(descriptor)
        if context.is_restored():
            for element in self.checkpointed_state.get():
                self.buffered_elements.append(element)


def main() -> None:
    target = Path(tempfile.mkdtemp(prefix="weir-example-"), "sent")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)]) \
        .add_sink(BufferingSink(2, str(target))) \
        .uid("buffering sink")  # fmt: skip
    env.execute("buffering sink")
    print("sent:", sorted(target.read_text().split()))


if __name__ == "__main__":
    main()
