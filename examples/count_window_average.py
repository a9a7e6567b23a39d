"""The average of every two values of a key: a PyFlink program, `pyflink` replaced by `weir`.

Run it with `weir run examples/count_window_average.py`. It prints (1,4) and (1,5): the fifth value
waits in the state for a sixth.
"""

from collections.abc import Iterator

from weir.common.typeinfo import Types
from weir.datastream import FlatMapFunction, RuntimeContext, StreamExecutionEnvironment
from weir.datastream.state import ValueStateDescriptor


class CountWindowAverage(FlatMapFunction[tuple[int, int], tuple[int, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor(
            "average",  # the name of the state
            Types.PICKLED_BYTE_ARRAY(),  # its type
        )
        self.sum = runtime_context.get_state(descriptor)

    def flat_map(self, value: tuple[int, int]) -> Iterator[tuple[int, int]]:
        # access the state value
        current_sum = self.sum.value()
        if current_sum is None:
            current_sum = (0, 0)

        # update the count
        current_sum = (current_sum[0] + 1, current_sum[1] + value[1])

        # update the state
        self.sum.update(current_sum)

        # if the count reaches 2, emit the average and clear the state
        if current_sum[0] >= 2:
            self.sum.clear()
            yield value[0], int(current_sum[1] / current_sum[0])


env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)]) \
    .key_by(lambda row: row[0]) \
    .flat_map(CountWindowAverage()) \
    .print()  # fmt: skip

env.execute()
