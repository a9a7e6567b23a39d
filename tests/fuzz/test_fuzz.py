"""A short run of every target without coverage, and what the fuzzing itself promises."""

from __future__ import annotations

import time

import msgspec
import pytest
from tests.fuzz import own_engine
from tests.fuzz.__main__ import Outcome, described
from tests.fuzz.mutate import Mutator
from tests.fuzz.target import NoInputError, Target
from tests.fuzz.targets import TARGETS

SEED, SECONDS = 1, 0.6


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_bytes_are_taken_or_refused_by_name(name: str) -> None:
    done = own_engine.run(TARGETS[name], SEED, SECONDS)
    if done.problem is not None:
        msg = f"{name} stumbled over {done.input[:2000]!r}"
        raise AssertionError(msg) from done.problem
    assert done.executions >= len(TARGETS[name].corpus())


@pytest.mark.parametrize("name", TARGETS)
def test_some_of_the_inputs_to_begin_with_are_taken(name: str) -> None:
    call = TARGETS[name].function()
    assert any([call(data) for data in TARGETS[name].corpus()])  # noqa: C419 - each is called


def broken(data: bytes) -> None:
    """Refuse what is no MessagePack, and stumble over a certain value in it."""
    try:
        found = msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NoInputError from error
    if isinstance(found, dict) and found.get("size") == -1:
        raise KeyError(found["size"])


CORPUS = [msgspec.msgpack.encode({"size": 3, "name": "a"})]
BROKEN = Target("broken", "msgpack", lambda: CORPUS, lambda: broken, (ValueError,))


def test_a_planted_mistake_is_found_and_its_input_kept() -> None:
    done = own_engine.run(BROKEN, SEED, seconds=30)
    assert isinstance(done.problem, KeyError)
    assert msgspec.msgpack.decode(done.input)["size"] == -1


def test_the_same_seed_finds_the_same() -> None:
    runs = [own_engine.run(BROKEN, SEED, seconds=30) for _ in range(2)]
    assert runs[0].input == runs[1].input
    assert runs[0].executions == runs[1].executions


def test_a_pickle_that_was_mutated_runs_nothing() -> None:
    import pickle

    evil = pickle.dumps(time.sleep)
    target = Target("pickle", "bytes", lambda: [evil], lambda: pickle.loads)
    with pytest.raises(pickle.UnpicklingError, match="asks for code"):
        target.function()(evil)
    assert pickle.loads(evil) is time.sleep


def test_mutations_stay_within_their_form_often_and_within_a_size_always() -> None:
    mutator, readable = Mutator(SEED, "msgpack"), 0
    for _ in range(300):
        data = mutator.mutate(CORPUS[0], CORPUS)
        assert len(data) <= 64 * 1024
        try:
            msgspec.msgpack.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        readable += 1
    assert readable > 150


def test_a_finding_is_told_with_its_bytes_and_the_command_that_repeats_it() -> None:
    from tests.fuzz.__main__ import FOUND

    FOUND.mkdir(parents=True, exist_ok=True)
    file = FOUND / "broken-test"
    file.write_bytes(b"\x01\xff")
    try:
        lines = described(Outcome("broken", 12, "exit code 1", file))
    finally:
        file.unlink()
    assert "01ff" in lines
    assert lines[-1].endswith("--only broken --repeat artifacts/fuzz/found/broken-test")
