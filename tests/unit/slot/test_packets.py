"""Messages over a socket: whole, in order, and taken without waiting where that was asked for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from weir.slot.packets import Packets

LONG_S = 30.0


@pytest.fixture
def ends() -> Iterator[tuple[Packets, Packets]]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pair = Packets(left), Packets(right)
    yield pair
    for end in pair:
        end.close()


@pytest.mark.parametrize("patience_s", [None, LONG_S])
def test_a_message_that_is_not_there_is_not_waited_for(
    ends: tuple[Packets, Packets], patience_s: float | None
) -> None:
    """Also by who lets other calls wait; a thread that did would be seen waiting."""
    here, there = ends
    here.wait_at_most(patience_s)
    found: list[bytes | None] = []
    looking = threading.Thread(target=lambda: found.append(here.recv_waiting(10)), daemon=True)
    looking.start()
    looking.join(LONG_S / 10)
    assert found == [None]
    there.send_bytes(b"one")
    there.send_bytes(b"")
    assert [here.recv_waiting(10) for _ in range(3)] == [b"one", b"", None]


def test_an_end_and_a_message_that_is_too_long_are_told_without_waiting(
    ends: tuple[Packets, Packets],
) -> None:
    here, there = ends
    here.wait_at_most(LONG_S)
    there.send_bytes(bytes(12))
    with pytest.raises(OSError, match="more than 10 bytes"):
        here.recv_waiting(10)
    there.close()
    with pytest.raises(EOFError):
        here.recv_waiting(10)
