"""Records on their way between processes."""

import pickle
import subprocess
import sys

import msgspec
import pytest

from weir.runtime.frame import Frame, dumps, pack_frames, unpack_frames

PROGRAM = """
import sys
from dataclasses import dataclass
from weir.runtime.frame import dumps

@dataclass
class Item:
    color: str

sys.stdout.buffer.write(dumps([Item("red"), Item("blue")]))
"""


@pytest.mark.slow
def test_records_of_a_class_of_the_main_module_are_readable_in_another_process():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert [item.color for item in pickle.loads(done.stdout)] == ["red", "blue"]


def test_a_record_that_only_mentions_the_main_module_stays_as_it_is():
    assert pickle.loads(dumps(["__main__", 1])) == ["__main__", 1]


def test_frames_come_back_with_their_targets():
    frames = [Frame(1, 2, 3, b"C"), Frame(0, -1, 1 << 40, b"")]
    assert unpack_frames(pack_frames(frames)) == frames


@pytest.mark.parametrize("sent", [[[1, 2, 3]], [[1, 2, 3, "text"]], 7, [[1, 2, 3, b"", 5]]])
def test_what_is_not_frames_is_refused_as_such(sent):
    with pytest.raises(msgspec.ValidationError):
        unpack_frames(msgspec.msgpack.encode(sent))
