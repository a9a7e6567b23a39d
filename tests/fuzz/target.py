"""What is fuzzed: a function of bytes, the bytes to begin with, and how it may refuse them.

A target that returns has taken its input; one that raises an allowed exception has refused it.
Everything else is a finding: another exception, a process that dies, a call that does not end.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

Form = Literal["bytes", "msgpack", "json", "text"]
SLOW_S = 10.0
"""A call that needs more of the processor has not ended for practical purposes."""


@dataclass(frozen=True)
class Target:
    """One thing under test.

    `prepare` makes what all calls share and returns the function under test; `corpus` makes inputs
    that it takes. `form` says how the bytes are structured, for mutations that keep them readable.
    """

    name: str
    form: Form
    corpus: Callable[[], list[bytes]]
    prepare: Callable[[], Callable[[bytes], Any]]
    allowed: tuple[type[BaseException], ...] = ()

    def function(self) -> Callable[[bytes], bool]:
        """Return the function to feed: True when the input was taken, False when refused."""
        run, allowed = self.prepare(), (NoInputError, *self.allowed)

        def call(data: bytes) -> bool:
            with _classes_locked():
                try:
                    run(data)
                except allowed:
                    return False
            return True

        return call


class NoInputError(Exception):
    """The bytes are not even an input of the target; it was not reached."""


class FindingError(AssertionError):
    """Something that must not be happened without an exception."""


def require(holds: bool, what: str) -> None:
    """Make a finding of what does not hold."""
    if not holds:
        raise FindingError(what)


_locked = [0]


@contextmanager
def _classes_locked() -> Any:
    """Let no mutated pickle name a class or a function, which would be to run whatever it says."""
    _locked[0] += 1
    try:
        yield
    finally:
        _locked[0] -= 1


def _audit(event: str, arguments: Any) -> None:
    if event == "pickle.find_class" and _locked[0]:
        msg = "a mutated pickle asks for code"
        raise pickle.UnpicklingError(msg)


sys.addaudithook(_audit)
