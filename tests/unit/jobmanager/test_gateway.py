"""Messages between slots and the JobManager are as long as state in memory may be."""

from __future__ import annotations

import os
import tempfile

import pytest

from weir.errors import StorageError
from weir.jobmanager.gateway import Gateway
from weir.slot import service
from weir.slot.channel import TOKEN_BYTES, Channel
from weir.slot.files import SlotFiles
from weir.slot.messages import Acknowledge, OperatorShare
from weir.slot.service import refuse_too_long
from weir.slot.upload import Upload
from weir.snapshot import FileHandle
from weir.storage.memory import MemoryStorage

OPERATORS = 8
STATE_BYTES = 5 << 20


class Kept:
    """A reception that keeps what it is told."""

    def acknowledge(self, message):
        self.message = message


def handles():
    return [FileHandle(f"state-{i}", STATE_BYTES, i, bytes(STATE_BYTES)) for i in range(OPERATORS)]


def test_state_of_many_operators_passes_in_one_acknowledgement():
    token, kept = bytes(TOKEN_BYTES), Kept()
    with tempfile.TemporaryDirectory() as directory:
        location = f"grpc+unix://{os.path.join(directory, 's')}"
        gateway = Gateway(location, token, kept)
        channel = Channel(location, token)
        try:
            shares = [
                OperatorShare(f"op{i}", None, [], {}, layers=[h]) for i, h in enumerate(handles())
            ]
            channel.call_struct("acknowledge", Acknowledge(0, 0, 1, None, shares), 60.0)
        finally:
            channel.close()
            gateway.shutdown()
    assert sum(len(h.data) for p in kept.message.operators for h in p.layers) == 8 * STATE_BYTES


def test_more_than_a_message_can_take_is_refused_before_it_is_sent(monkeypatch):
    upload = Upload(SlotFiles(MemoryStorage(), "job", 0, 0))
    upload.file = handles()[0]
    refuse_too_long(upload)
    monkeypatch.setattr(service, "ACKNOWLEDGED_BYTES_MAX", STATE_BYTES - 1)
    with pytest.raises(
        StorageError, match=r"5242880 bytes.*5242879.*execution\.checkpointing\.dir"
    ):
        refuse_too_long(upload)
