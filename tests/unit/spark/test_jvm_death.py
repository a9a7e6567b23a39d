"""A JVM that cannot be asked is dead only if its process is gone, or nobody listens any more."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from weir.spark.internals import JvmDeath, spark_stopped


class AskingError(Exception):
    """What py4j raises from whatever it came across."""


def session(process: Any, ask: Any) -> Any:
    """Return a Spark session whose context is asked by `ask`."""

    def stopped() -> bool:
        try:
            return bool(ask())
        except OSError as error:
            msg = "an error occurred while trying to connect to the Java server"
            raise AskingError(msg) from error

    context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=stopped))
    gateway = SimpleNamespace(proc=process) if process is not None else SimpleNamespace()
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context, _gateway=gateway))


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def no_file() -> bool:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def refused() -> bool:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = taken.getsockname()
    with socket.create_connection(address):
        return False


def test_a_driver_without_files_does_not_take_a_living_child_for_dead(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.spark.internals._ENDING_S", 0.05)
    assert not spark_stopped(session(child, no_file))
    assert not spark_stopped(session(child, refused))


def test_a_child_that_ends_while_it_is_asked_is_dead(child: subprocess.Popen[bytes]) -> None:
    def killed() -> bool:
        child.kill()
        return no_file()

    with pytest.raises(JvmDeath) as death:
        spark_stopped(session(child, killed))
    assert (death.value.pid, death.value.status) == (child.pid, -9)


def test_of_another_process_only_a_refused_connection_says_that_it_is_dead() -> None:
    assert not spark_stopped(session(None, no_file))
    with pytest.raises(JvmDeath) as death:
        spark_stopped(session(None, refused))
    assert death.value.pid is None
    assert spark_stopped(session(None, lambda: True))
