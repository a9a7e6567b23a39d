"""Words counted with `map_with_state`: keyed state without a function class.

The function gets a record and the state of its key (None at first), and returns the result and
the new state. Run it with `weir run examples/map_with_state.py`.
"""

from weir.common.typeinfo import Types
from weir.datastream import DataStream, StreamExecutionEnvironment

TEXT = ["to be or not to be", "that is the question"]


def count_word(word: str, before: int | None) -> tuple[tuple[str, int], int]:
    count = (before or 0) + 1
    return (word, count), count


def counted(lines: DataStream[str]) -> DataStream[tuple[str, int]]:
    return lines.flat_map(lambda line: line.split(), Types.STRING()) \
        .key_by(lambda word: word) \
        .map_with_state(count_word, Types.TUPLE([Types.STRING(), Types.INT()]), Types.INT()) \
        .uid("count")  # fmt: skip


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    counted(env.from_collection(TEXT, Types.STRING())).print()
    env.execute("map with state")


if __name__ == "__main__":
    main()
