"""A model for every key that learns from every record: logistic regression by gradient descent.

Each shop has its own weights, in value state, so they survive a crash and move with their key. A
record is predicted first and learnt from then, so the errors are those on records that the model
has not seen. Run it with `weir run examples/online_learning.py`.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weir.common import Types
from weir.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from weir.datastream.state import ValueStateDescriptor

Vector: TypeAlias = NDArray[np.float64]
Sample: TypeAlias = tuple[Any, ...]

RATE = 0.5
TELL_EVERY = 500
SAMPLE = Types.TUPLE([Types.STRING(), Types.LIST(Types.DOUBLE()), Types.LONG()])
# What the models have to find out: customers of the two shops buy for opposite reasons.
TRUE_WEIGHTS = {"north": np.array([3.0, -2.0, 0.5]), "south": np.array([-3.0, 2.0, 0.5])}


def probability(weights: Vector, features: Vector) -> float:
    return float(1 / (1 + np.exp(-weights @ features)))


class Learn(KeyedProcessFunction[str, Sample, str]):
    """Predicts, compares, and moves the weights towards what happened."""

    def open(self, runtime_context: RuntimeContext) -> None:
        weights = Types.LIST(Types.DOUBLE())
        self.weights = runtime_context.get_state(ValueStateDescriptor("weights", weights))
        counts = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.counts = runtime_context.get_state(ValueStateDescriptor("counts", counts))

    def process_element(self, value: Sample, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        shop, found, bought = value
        features = np.array([*found, 1.0])
        stored = self.weights.value()
        weights = np.zeros(len(features)) if stored is None else np.array(stored)
        predicted = probability(weights, features)
        self.weights.update((weights + RATE * (bought - predicted) * features).tolist())

        seen, right = self.counts.value() or (0, 0)
        seen, right = seen + 1, right + int((predicted > 0.5) == bool(bought))
        if seen % TELL_EVERY == 0:
            yield f"{shop}: {100 * right // TELL_EVERY} % of the last {TELL_EVERY} were predicted"
            right = 0
        self.counts.update((seen, right))


def samples(count: int) -> list[Sample]:
    """Return customers of two shops in turns, and whether they bought something."""
    chance = np.random.default_rng(7)
    rows: list[Sample] = []
    for number in range(count):
        shop = "north" if number % 2 else "south"
        found = chance.uniform(-1, 1, 2)
        likely = probability(TRUE_WEIGHTS[shop], np.array([*found, 1.0]))
        rows.append((shop, found.tolist(), int(likely > 0.5)))
    return rows


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    learnt = env.from_collection(samples(3_000), SAMPLE) \
        .key_by(lambda sample: sample[0], Types.STRING()) \
        .process(Learn(), Types.STRING()) \
        .uid("learn")  # fmt: skip
    learnt.print()
    env.execute("online learning")


if __name__ == "__main__":
    main()
