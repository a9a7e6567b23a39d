"""The public classes of Weir, and the names that the examples in their docstrings stand among.

An example sees all public names, `env`, a stream of (name, amount), the same one `keyed` by name,
a stream of `numbers`, an aggregate function `Mean`, a coroutine `ask`, and the `place` of a
savepoint. Nothing runs on Spark.
"""

import importlib
import pkgutil
from pathlib import Path
from typing import Any

from tests.unit.datastream.recording import RecordingEngine

import weir.cep
import weir.common
import weir.datastream
import weir.testing
from weir.common import Types
from weir.datastream import AggregateFunction, StreamExecutionEnvironment

PLACE = str(Path(__file__).resolve().parents[1] / "golden" / "savepoints" / "all")


def modules() -> list[Any]:
    names = ["weir.cep", "weir.common", "weir.datastream", "weir.metrics", "weir.testing"]
    names += ["weir.table.types", "weir.state_processor", "weir.offline"]
    for package in (weir.common, weir.datastream):
        found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        names += [m.name for m in found if not any(p[0] == "_" for p in m.name.split("."))]
    return [importlib.import_module(name) for name in names]


def public_names() -> dict[str, Any]:
    """Return everything that the public modules export; what comes first stays."""
    found: dict[str, Any] = {}
    for module in modules():
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name, None)
            if value is not None:
                found.setdefault(name, value)
    return found


def public_classes() -> list[type]:
    classes = {v for v in public_names().values() if isinstance(v, type)}
    own = (c for c in classes if c.__module__.split(".")[0] == "weir")
    return sorted(own, key=lambda c: (c.__module__, c.__qualname__))


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


async def ask(value):
    return value


def namespace() -> dict[str, Any]:
    """Return fresh names for one example."""
    env = StreamExecutionEnvironment(engine=RecordingEngine())
    record = Types.TUPLE([Types.STRING(), Types.LONG()])
    stream = env.from_collection([("a", 1), ("b", 2)], record)
    return {
        **public_names(),
        "env": env,
        "stream": stream,
        "keyed": stream.key_by(lambda r: r[0], Types.STRING()),
        "numbers": env.from_collection([1, 2], Types.LONG()),
        "Mean": Mean,
        "ask": ask,
        "place": PLACE,
        "__name__": "example",
    }
