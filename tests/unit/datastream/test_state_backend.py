"""The state backends of older PyFlink programs: both spellings, the warning, what they set."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import weir.datastream as door
from weir.datastream import state_backend as module
from weir.errors import UsageError

_C = "execution.checkpointing."
CASES = [
    (
        lambda m: m.MemoryStateBackend(),
        "HashMapStateBackend and JobManagerCheckpointStorage",
        {"state.backend.type": "hashmap", _C + "storage": "jobmanager"},
    ),
    (
        lambda m: m.MemoryStateBackend("s3://b/chk", "s3://b/save", 9, False),
        "HashMapStateBackend and JobManagerCheckpointStorage",
        {
            "state.backend.type": "hashmap",
            _C + "storage": "jobmanager",
            _C + "dir": "s3://b/chk",
            _C + "savepoint-dir": "s3://b/save",
            "weir.checkpoint.jobmanager-max-state-size": "9 b",
        },
    ),
    (
        lambda m: m.FsStateBackend("hdfs://nn:8020/chk", "hdfs://nn:8020/save", 1024, 8192),
        "HashMapStateBackend and FileSystemCheckpointStorage",
        {
            "state.backend.type": "hashmap",
            _C + "storage": "filesystem",
            _C + "dir": "hdfs://nn:8020/chk",
            _C + "savepoint-dir": "hdfs://nn:8020/save",
            _C + "data-inline-threshold": "1024 b",
            _C + "write-buffer-size": 8192,
        },
    ),
    (
        lambda m: m.RocksDBStateBackend("s3://b/chk", True),
        "EmbeddedRocksDBStateBackend and FileSystemCheckpointStorage",
        {
            "state.backend.type": "rocksdb",
            _C + "storage": "filesystem",
            _C + "dir": "s3://b/chk",
            _C + "incremental": True,
        },
    ),
]


@pytest.mark.parametrize("place", [door, module], ids=["pyflink.datastream", "state_backend"])
@pytest.mark.parametrize(("make", "replacement", "expected"), CASES)
def test_each_names_its_replacement_and_becomes_its_configuration(
    place: Any, make: Callable[[Any], Any], replacement: str, expected: dict[str, Any]
) -> None:
    with pytest.warns(DeprecationWarning, match=replacement) as caught:
        backend = make(place)
    assert caught[0].filename == __file__, "the warning points at the program"
    assert backend.to_configuration() == expected


def test_rocksdb_takes_the_storage_of_a_stream_backend() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        stream = door.FsStateBackend("file:///chk")
        backend = door.RocksDBStateBackend(checkpoint_stream_backend=stream)
        with pytest.raises(UsageError, match="path of a directory"):
            door.RocksDBStateBackend()
    assert backend.get_checkpoint_backend() is stream
    assert backend.to_configuration() == {
        "state.backend.type": "rocksdb",
        _C + "storage": "filesystem",
        _C + "dir": "file:///chk",
    }
