"""Records on their way between processes."""

import pickle
import subprocess
import sys

from weir.runtime.frame import dumps

PROGRAM = """
import sys
from dataclasses import dataclass
from weir.runtime.frame import dumps

@dataclass
class Item:
    color: str

sys.stdout.buffer.write(dumps([Item("red"), Item("blue")]))
"""


def test_records_of_a_class_of_the_main_module_are_readable_in_another_process():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert [item.color for item in pickle.loads(done.stdout)] == ["red", "blue"]


def test_a_record_that_only_mentions_the_main_module_stays_as_it_is():
    assert pickle.loads(dumps(["__main__", 1])) == ["__main__", 1]
