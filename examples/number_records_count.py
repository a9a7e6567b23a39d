"""Records counted per subtask by a function whose whole state is a list.

`ListCheckpointed` needs no descriptor: what `snapshot_state` returns is stored, element by element,
and every new subtask gets its share in `restore_state`. Run it with
`weir run examples/number_records_count.py`.
"""

from collections.abc import Iterator

from weir.datastream import FlatMapFunction, ListCheckpointed, StreamExecutionEnvironment


class NumberRecordsCount(FlatMapFunction[tuple[str, int], tuple[str, int]], ListCheckpointed):
    def __init__(self) -> None:
        self.number_records = 0

    def flat_map(self, value: tuple[str, int]) -> Iterator[tuple[str, int]]:
        self.number_records += 1
        yield value[0], self.number_records

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[int]:
        return [self.number_records]

    def restore_state(self, state: list[int]) -> None:
        self.number_records = 0
        for count in state:
            self.number_records += count


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection([("a", 1), ("b", 2), ("a", 3)]) \
        .flat_map(NumberRecordsCount()) \
        .uid("number of records") \
        .print()  # fmt: skip
    env.execute("number of records")


if __name__ == "__main__":
    main()
