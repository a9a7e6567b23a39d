"""The state backends of older PyFlink programs: both spellings, the warning, what they set."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
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


J = "weir.checkpoint.jobmanager-max-state-size"
MEMORY = {"state.backend.type": "hashmap", _C + "storage": "jobmanager"}
FS = {"state.backend.type": "hashmap", _C + "storage": "filesystem", _C + "dir": "/chk"}
THRESHOLD, BUFFER = _C + "data-inline-threshold", _C + "write-buffer-size"


@pytest.mark.parametrize(
    ("make", "expected", "asynchronous"),
    [
        (lambda: door.MemoryStateBackend(100, False), MEMORY | {J: "100 b"}, False),
        (lambda: door.MemoryStateBackend(100), MEMORY | {J: "100 b"}, True),
        (lambda: door.MemoryStateBackend(False), MEMORY, False),
        (lambda: door.MemoryStateBackend(None, None, 100, True), MEMORY | {J: "100 b"}, True),
        (lambda: door.FsStateBackend("/chk", False), FS, False),
        (lambda: door.FsStateBackend(Path("/chk"), True), FS, True),
        (lambda: door.FsStateBackend("/chk", 7), FS | {THRESHOLD: "7 b"}, True),
        (lambda: door.FsStateBackend("/chk", 7, False), FS | {THRESHOLD: "7 b"}, False),
        (
            lambda: door.FsStateBackend("/chk", 7, 8, False),
            FS | {THRESHOLD: "7 b", BUFFER: 8},
            False,
        ),
        (lambda: door.FsStateBackend("/chk", "/save"), FS | {_C + "savepoint-dir": "/save"}, True),
    ],
)
def test_java_and_pyflink_order_the_arguments_differently_and_both_are_understood(
    make: Callable[[], Any], expected: dict[str, Any], asynchronous: bool
) -> None:
    with pytest.warns(DeprecationWarning, match="StateBackend is deprecated"):
        backend = make()
    assert backend.to_configuration() == expected
    assert backend.is_using_asynchronous_snapshots() is asynchronous


@pytest.mark.parametrize(
    "make",
    [
        lambda: door.MemoryStateBackend(False, 100),
        lambda: door.MemoryStateBackend(100, "/save"),
        lambda: door.MemoryStateBackend("/chk", 100),
        lambda: door.MemoryStateBackend(1.5),
        lambda: door.MemoryStateBackend(max_state_size=True),
        lambda: door.MemoryStateBackend(savepoint_path=1),
        lambda: door.FsStateBackend(False, "/chk"),
        lambda: door.FsStateBackend("/chk", False, 7),
        lambda: door.FsStateBackend("/chk", write_buffer_size="8"),
        lambda: door.RocksDBStateBackend(True, "/chk"),
        lambda: door.RocksDBStateBackend("/chk", 1),
        lambda: door.RocksDBStateBackend("/chk", checkpoint_stream_backend="/chk"),
    ],
)
def test_arguments_in_no_known_order_are_refused(make: Callable[[], Any]) -> None:
    with (
        pytest.warns(DeprecationWarning, match="StateBackend is deprecated"),
        pytest.raises(UsageError, match=r"found \w+StateBackend\(.*expected"),
    ):
        make()


def test_rocksdb_takes_a_backend_in_the_place_of_the_path_as_in_java() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        stream = door.MemoryStateBackend(100)
        backend = door.RocksDBStateBackend(stream, True)
        plain = door.RocksDBStateBackend("/chk", True)
    assert backend.get_checkpoint_backend() is stream
    rocksdb = {"state.backend.type": "rocksdb", _C + "incremental": True}
    assert backend.to_configuration() == MEMORY | {J: "100 b"} | rocksdb
    assert isinstance(plain.get_checkpoint_backend(), door.FsStateBackend)


def test_directories_of_databases_are_paths_or_file_uris() -> None:
    backend = door.EmbeddedRocksDBStateBackend()
    backend.set_db_storage_paths("file:///data/one/", "file://var/two", "file:/three", "/four")
    assert backend.get_db_storage_paths() == ["/data/one", "/two", "/three", "/four"]
    for wrong in ("hdfs://nn:8020/rocks", "rocks", "file:rocks"):
        with pytest.raises(UsageError, match="set_db_storage_paths names"):
            backend.set_db_storage_paths(wrong)


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
