"""What users' functions raise in real processes: told by operator, never taken for an end."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def ending(how):
    """Return a map function that ends at its third record, and one whose `close` raises."""
    from weir.datastream import MapFunction

    class Ending(MapFunction):
        def open(self, runtime_context):
            pass

        def map(self, value):
            if how != "close" and value == 3:
                raise SystemExit(3) if how == "exit" else StopIteration
            return value

        def close(self):
            if how == "close":
                msg = "the connection was gone \ud83d"
                raise RuntimeError(msg)

    return Ending()


def without_restarts(env):
    from weir.common import Configuration

    configuration = Configuration()
    configuration.set_string("restart-strategy.type", "none")
    env.configure(configuration)
    return env


@pytest.mark.parametrize("how", ["exit", "stop"])
@pytest.mark.parametrize("place", ["source side", "slot"])
def test_an_attempt_to_end_the_process_is_an_error_of_the_operator(env, how, place):
    from weir.errors import UserFunctionError

    function = ending(how)
    numbers = without_restarts(env).from_collection([1, 2, 3, 4])
    numbers.map(function if place == "slot" else function.map).name("bad").print()
    with pytest.raises(UserFunctionError) as caught:
        env.execute()
    assert (caught.value.operator, caught.value.record) == ("bad", "3")
    assert ("SystemExit: 3" if how == "exit" else "StopIteration") in caught.value.user_traceback


def test_what_close_raises_reaches_the_caller_of_execute(env, capsys):
    from weir.errors import UserFunctionError

    without_restarts(env).from_collection([1, 2]).map(ending("close")).name("bad").print()
    with pytest.raises(UserFunctionError, match=r"'bad' failed in close\(\)") as caught:
        env.execute()
    assert r"RuntimeError: the connection was gone \ud83d" in str(caught.value)
    assert sorted(line[-1] for line in capsys.readouterr().out.splitlines()) == ["1", "2"]
