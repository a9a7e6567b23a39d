"""What the examples claim beyond what they print: two ways are one, state goes, models stay."""

import importlib.util
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.docs.blocks import ROOT

from weir.common import Types
from weir.datastream import StreamExecutionEnvironment
from weir.errors import WeirError
from weir.testing.harness import JobHarness, collect


def example(name: str) -> Any:
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results_of(build: Callable[[Any], Any], types: Any, epochs: list[list[tuple]]) -> list[Any]:
    """Return what comes out when records come in these epochs."""
    env = StreamExecutionEnvironment.get_execution_environment()
    handle = collect(build(env.from_collection([], types)))
    job = JobHarness(env.build_graph(), parallelism=2).start()
    for records in epochs:
        job.run_epoch(records)
    job.finish()
    return list(job.collected(handle))


def readings(seed: int) -> list[tuple[int, float, int]]:
    """Return readings of two racks that rise often, with pauses that are sometimes too long."""
    chance, second = random.Random(seed), 0
    found = []
    for _ in range(300):
        second += chance.choice((1, 2, 5, 12))
        found.append((chance.randrange(2), 85.0 + chance.randrange(20), second))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_rising_by_hand_is_the_pattern(seed: int) -> None:
    by_hand, by_pattern = example("rising_by_hand"), example("rising_temperature")
    given, chance = readings(seed), random.Random(seed)
    cuts = sorted(chance.sample(range(1, len(given)), 10))
    epochs = [given[a:b] for a, b in zip([0, *cuts], [*cuts, len(given)], strict=True)]
    found = results_of(by_hand.alerts, by_hand.READING, epochs)
    assert sorted(found) == sorted(results_of(by_pattern.alerts, by_hand.READING, epochs))
    assert found


def test_users_of_the_day_before_do_not_stay_in_state() -> None:
    module = example("daily_users")

    class Kept(module.DailyUsers):  # type: ignore[misc, name-defined]
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield from super().process_element(value, ctx)
            yield value[0], value[2], sorted(self.seen.keys())

    module.DailyUsers, module.COUNTED = Kept, Types.PICKLED_BYTE_ARRAY()
    visits = [*module.VISITS, ("shop", "eve", 80), ("shop", "joe", 120)]
    found = results_of(module.daily, module.VISIT, [[visit] for visit in visits])
    kept = {(site, hour): users for site, hour, users in found if isinstance(users, list)}
    assert kept["shop", 9] == ["ann", "bob"]
    assert kept["shop", 50] == ["ann", "bob", "eve"]
    # The watermark is that of the visit before: what is a day behind it has gone.
    assert kept["shop", 80] == ["bob", "eve"]
    assert kept["shop", 120] == ["eve", "joe"]


def test_models_that_learn_go_on_learning_after_a_crash() -> None:
    module = example("online_learning")

    def build(samples: Any) -> Any:
        keyed = samples.key_by(lambda sample: sample[0], Types.STRING())
        return keyed.process(module.Learn(), Types.STRING()).uid("learn")

    given = module.samples(2_000)
    want = results_of(build, module.SAMPLE, [given])
    env = StreamExecutionEnvironment.get_execution_environment()
    handle = collect(build(env.from_collection([], module.SAMPLE)))
    job = JobHarness(env.build_graph(), 2).start()
    job.run_epoch(given[:900], checkpoint=True)
    job.run_epoch(given[900:1_100])
    job.kill_slot(0)
    job.kill_slot(1)
    with pytest.raises(WeirError):
        job.run_epoch([])
    job.fail_over()
    job.run_epoch(given[1_100:])
    job.finish()
    assert set(job.collected(handle)) == set(want)
