"""What of an epoch is too much for the memory lies in files, and is used as before."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from weir.errors import StorageError
from weir.runtime.frame import Frame, Incoming
from weir.runtime.memory import LevelOutput, MemoryLimits, OutputLimitError, offload, take_in


def mapped(folder):
    """Return how many files of a directory this process has mapped; they have no names."""
    return Path("/proc/self/maps").read_text().count(f"{folder}/")


def test_payloads_are_the_same_behind_a_file(tmp_path):
    payloads = [b"", b"abc", pa.py_buffer(b"defg"), os.urandom(10_000)]
    stored = offload(payloads, tmp_path)
    assert [bytes(memoryview(p)) for p in stored] == [bytes(memoryview(p)) for p in payloads]


def test_the_file_has_no_name_and_goes_with_its_last_payload(tmp_path):
    before = mapped(tmp_path)
    stored = offload([b"abc", b"def"], tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert mapped(tmp_path) == before + 1
    last = stored[1]
    del stored
    assert bytes(memoryview(last)) == b"def"
    del last
    assert mapped(tmp_path) == before


def test_what_goes_to_several_subtasks_is_written_once(tmp_path):
    payload = b"x" * 100
    stored = offload([payload] * 5, tmp_path)
    assert len({buffer.address for buffer in stored}) == 1


def test_nothing_is_written_of_nothing(tmp_path):
    assert [p.size for p in offload([b"", b""], tmp_path)] == [0, 0]
    assert offload([], tmp_path) == []


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    place = tmp_path / "file"
    place.write_text("not a directory")
    with pytest.raises(StorageError, match=r"weir\.epoch\.memory.*file.*io\.tmp\.dirs"):
        offload([b"abc"], place)


@pytest.mark.parametrize("held", [0, 10, 1000, 1 << 20])
def test_the_input_of_a_level_is_whole_however_much_may_be_in_memory(tmp_path, held):
    before = mapped(tmp_path)
    sent = [Incoming(1, n, pa.py_buffer(bytes([n]) * n)) for n in range(100)]
    taken = take_in(iter(sent), MemoryLimits(held=held), tmp_path)
    assert [(f.edge, f.origin, bytes(memoryview(f.payload))) for f in taken] == [
        (f.edge, f.origin, bytes(memoryview(f.payload))) for f in sent
    ]
    assert (mapped(tmp_path) > before) is (held < 4950)


def test_input_that_breaks_off_is_not_taken(tmp_path):
    def broken():
        yield Incoming(1, 0, pa.py_buffer(b"x" * 100))
        msg = "broke off"
        raise StorageError(msg)

    before = mapped(tmp_path)
    with pytest.raises(StorageError, match="broke off"):
        take_in(broken(), MemoryLimits(held=10), tmp_path)
    assert mapped(tmp_path) == before


class Writer:
    def __init__(self, output):
        self.frames = []
        self._output = output
        output.add_writer(self)

    def send(self, payload):
        self.frames.append(Frame(0, 0, len(self.frames), payload))
        self._output.added("doubling", len(payload))


def test_output_beyond_the_bound_lies_in_files_whoever_sent_it(tmp_path):
    output = LevelOutput(MemoryLimits(held=250), tmp_path)
    first, second = Writer(output), Writer(output)
    output.restart()
    before = mapped(tmp_path)
    sent = [bytes([n]) * 100 for n in range(6)]
    for n, payload in enumerate(sent):
        (first if n % 2 else second).send(payload)
    assert mapped(tmp_path) > before
    both = [second.frames, first.frames]
    assert [bytes(memoryview(f.payload)) for f in both[0]] == sent[::2]
    assert [bytes(memoryview(f.payload)) for f in both[1]] == sent[1::2]
    assert [f.origin for f in both[0]] == [0, 1, 2]


def test_output_below_the_bound_is_not_touched(tmp_path):
    output = LevelOutput(MemoryLimits(held=250), tmp_path)
    writer = Writer(output)
    payload = b"x" * 200
    for _ in range(3):
        output.restart()
        writer.frames = []
        writer.send(payload)
        assert writer.frames[0].payload is payload


def test_an_epoch_that_sends_too_much_fails_with_the_operators_name(tmp_path):
    output = LevelOutput(MemoryLimits(output=1000), tmp_path)
    writer = Writer(output)
    for _ in range(10):
        writer.send(b"x" * 100)
    with pytest.raises(OutputLimitError, match=r"'doubling' has sent 1100 .*output-limit is 1000"):
        writer.send(b"x" * 100)
