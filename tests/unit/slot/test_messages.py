"""Messages between processes: every kind is decoded by several threads at once from the start."""

import subprocess
import sys

import msgspec
import pytest
from tests.examples import examples

from weir.slot import messages
from weir.slot.messages import MESSAGES, Acknowledge, EndMarker, decode, encode

# The first use of a type makes msgspec describe it to itself, which two threads must not do at the
# same time. Without decoders that are built at import, two processes of five died of it here.
_FIRST_USE = """
import sys, threading
from weir.slot.messages import Acknowledge, OperatorShare, decode, encode
from weir.snapshot import FileHandle

share = OperatorShare("a", (0, 1), ["x"], {"a": ("b", 1)})
data = encode(Acknowledge(0, 0, 1, FileHandle("a", 1, 2, None), [share]))
sys.setswitchinterval(1e-6)
begun = []

def use():
    while not begun:
        pass
    for _ in range(5):
        decode(data, Acknowledge)

threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
begun.append(True)
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_threads_that_decode_a_message_for_the_first_time_at_once_live() -> None:
    ends = []
    for _ in range(examples(7)):
        pair = [
            subprocess.Popen([sys.executable, "-c", _FIRST_USE], stderr=subprocess.DEVNULL)
            for _ in range(2)
        ]
        ends += [run.wait() for run in pair]
    assert ends == [0] * len(ends)


def test_every_message_has_a_decoder_before_any_thread_needs_it() -> None:
    kinds = {
        kind
        for kind in vars(messages).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == messages.__name__
    }
    inner = {
        messages.OperatorShare,
        messages.InFlightShare,
        messages.KeyedSource,
        messages.OperatorRestore,
        messages.InFlightSource,
        messages.CopyPlace,
        messages.SlotUsage,
    }
    assert kinds - inner == set(MESSAGES)


def test_a_message_is_what_was_sent() -> None:
    sent = EndMarker(7)
    assert decode(encode(sent), EndMarker) == sent


def test_a_message_of_another_shape_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode(EndMarker(7)), Acknowledge)


def test_a_message_that_is_nested_too_deeply_is_refused() -> None:
    deep = b"\x81" * 10_000
    with pytest.raises(msgspec.DecodeError):
        decode(deep, Acknowledge)
