"""Metadata that somebody made up, with a right checksum: refused by name, or shown like any other.

Whatever decodes can be listed and described; nothing ends in a traceback.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import replace

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from weir.checkpoint.metadata import (
    CheckpointMetadata,
    FileRecord,
    InFlightRecord,
    OperatorRecord,
    OperatorStateRecord,
    SourceLayout,
    SourcePositions,
    SubtaskRecord,
    decode_metadata,
    encode_metadata,
)
from weir.checkpoint.store import write_metadata
from weir.cli.main import cli
from weir.cli.state_text import listing_lines, show_lines
from weir.connector.position import position_text
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.offline import describe, list_snapshots
from weir.offline.listing import list_in
from weir.offline.text import type_text
from weir.snapshot import MAGIC, VERSION, SnapshotReader
from weir.storage.local import LocalStorage
from weir.storage.memory import MemoryStorage

JOB = "a" * 32
DATA = b"12345"
METADATA = CheckpointMetadata(
    checkpoint_id=7,
    job_id=JOB,
    job_name="payments",
    timestamp_ms=1_700_000_000_000,
    kind="checkpoint",
    epoch=41,
    sources=SourcePositions(
        batch_id=41,
        offset_lines=("v1", "{}", '{"topic":{"0":5,"1":7}}', '{"logOffset":5}'),
        layout=(SourceLayout("orders", 0), SourceLayout("rates", 1), SourceLayout("own", 2, 8)),
    ),
    operators=(
        OperatorRecord(
            id="0e1febe90327d1cea326114660ec1de8",
            uid="uid",
            name="count",
            parallelism=2,
            max_parallelism=128,
            has_state=True,
            subtasks=(
                SubtaskRecord(
                    index=0,
                    file=0,
                    keyed_range=(0, 63),
                    keyed_states=("sum",),
                    operator_states={"buffer": OperatorStateRecord("SPLIT", 3)},
                    layers=(1,),
                ),
                SubtaskRecord(1),
            ),
        ),
    ),
    files=(
        FileRecord("state-s0-a1-0123456789ab", len(DATA), zlib.crc32(DATA), 0, DATA),
        FileRecord("../shared/state-s0-a1-0123456789ac", 9, 0, 0),
    ),
    in_flight=(InFlightRecord(0, 1, 1, records=5, size=100),),
)
TREE = json.loads(encode_metadata(METADATA).split(b"\n", 1)[1])


def sealed(body: bytes) -> bytes:
    return b"weir-metadata 4 %08x %d\n%s" % (zlib.crc32(body), len(body), body)


def changed(**fields) -> bytes:
    return sealed(json.dumps({**TREE, **fields}).encode())


def places(tree, path=()):
    """Return the path of every value in a tree."""
    yield path
    if isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, value in items:
            yield from places(value, (*path, key))


def with_value(tree, path, value):
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = with_value(tree[path[0]], path[1:], value)
    return copy


ODD = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-(2**63), 2**63, 2**64, 10**400, 253_402_300_800_000, -1, 32_768])
    | st.floats()
    | st.text()
    | st.sampled_from(
        ["\ud800", "/etc/passwd", "../../../x", "a\0b", ".", "", '{"t":{"²":1}}', "[" * 5000]
    )
)
TREES = st.recursive(ODD, lambda deeper: st.lists(deeper) | st.dictionaries(st.text(), deeper))


@st.composite
def hostile(draw):
    """Return a body with some values exchanged, and perhaps some bytes."""
    tree = TREE
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(tree))))
        tree = with_value(tree, path, draw(TREES | st.sampled_from([[TREE], {}, []])))
    body = bytearray(json.dumps(tree).encode())
    for _ in range(draw(st.integers(0, 2))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / JOB / "chk-7"
    folder.mkdir(parents=True)
    return folder


@given(body=hostile())
def test_what_is_not_refused_by_name_can_be_listed_and_shown(place, body):
    (place / "_metadata").write_bytes(sealed(body))
    listed = list_snapshots(str(place))
    list(listing_lines(listed))
    json.dumps(msgspec.to_builtins(listed))
    if listed[0].problem is not None:
        with pytest.raises(CorruptStateError, match="'the file' is damaged: "):
            decode_metadata(sealed(body), "the file")
        return
    metadata = decode_metadata(sealed(body), "the file")
    assert decode_metadata(encode_metadata(metadata), "f") == metadata
    found = describe(str(place))
    list(show_lines(found))
    json.dumps(msgspec.to_builtins(found))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (sealed(b'{"job_name": "\xff"}'), "utf-8"),
        (sealed(b'{"x": ' + b"[" * 100_000), "recursion"),
        (changed(timestamp_ms=253_402_300_800_000), "timestamp_ms"),
        (changed(timestamp_ms=-1), "timestamp_ms"),
        (changed(checkpoint_id=-5), "checkpoint_id"),
        (changed(checkpoint_id=10**30), "checkpoint_id"),
        (changed(files=[{**TREE["files"][0], "size": -1}] * 2), "size"),
        (changed(files=[{**TREE["files"][0], "path": "../../../etc/passwd"}] * 2), "no path"),
        (changed(files=[{**TREE["files"][0], "path": "/etc/passwd"}] * 2), "no path"),
        (changed(operators=TREE["operators"] * 2), "is there twice"),
        (changed(operators=[{**TREE["operators"][0], "parallelism": 10**9}]), "parallelism"),
        (changed(operators=[{**TREE["operators"][0], "max_parallelism": 63}]), "0 to 63 of 63"),
        (b"weir-metadata " + b"9" * 5000 + b"\n", "header"),
    ],
)
def test_absurd_contents_are_refused_by_name(data, reason):
    with pytest.raises(CorruptStateError, match=f"(?i)'chk-7/_metadata' is damaged: .*{reason}"):
        decode_metadata(data, "chk-7/_metadata")


@pytest.mark.parametrize(
    "metadata",
    [
        replace(METADATA, timestamp_ms=10**15),
        replace(METADATA, job_name="\ud800"),
        replace(METADATA, files=(FileRecord("/x", 1, 1, 0),) * 2),
    ],
)
def test_what_nobody_could_read_back_is_not_written(metadata):
    with pytest.raises(UsageError, match="checkpoint 7 is inconsistent"):
        encode_metadata(metadata)


@pytest.fixture
def root(tmp_path):
    write_metadata(LocalStorage(str(tmp_path)), f"{JOB}/chk-1", replace(METADATA, checkpoint_id=1))
    return tmp_path


def test_one_hostile_directory_does_not_hide_the_others(root):
    for number, data in enumerate((changed(timestamp_ms=10**18), sealed(b'"\xff"')), start=2):
        folder = root / JOB / f"chk-{number}"
        folder.mkdir()
        (folder / "_metadata").write_bytes(data)
    answer = CliRunner().invoke(cli, ["state", "ls", str(root)])
    assert answer.exit_code == 0
    assert f"{JOB}/chk-1\n" in answer.stdout
    assert f"unreadable: {root}/{JOB}/chk-2: " in answer.stdout
    assert f"unreadable: {root}/{JOB}/chk-3: " in answer.stdout


class Refusing(MemoryStorage):
    """A storage that denies access to one directory."""

    def list(self, directory=""):
        if directory.endswith("chk-9"):
            msg = f"cannot list {directory!r}: permission denied"
            raise StorageError(msg)
        return super().list(directory)

    def read(self, path):
        if "chk-8" in path:
            msg = f"cannot read {path!r}: permission denied"
            raise StorageError(msg)
        return super().read(path)


def test_a_directory_that_may_not_be_read_is_listed_with_the_reason():
    storage = Refusing("refusing")
    for number in (1, 8, 9):
        write_metadata(storage, f"{JOB}/chk-{number}", replace(METADATA, checkpoint_id=number))
    sound, *unreadable = list_in(storage)
    assert sound.checkpoint_id == 1
    assert [os.path.basename(summary.location) for summary in unreadable] == ["chk-8", "chk-9"]
    assert all("permission denied" in (summary.problem or "") for summary in unreadable)


@pytest.mark.parametrize(
    "offset", ["[" * 100_000, '{"t":{"²":1}}', '{"t":{"%s":1}}' % ("9" * 5000)]
)
def test_a_position_of_an_absurd_form_is_shown_as_it_is(offset):
    assert position_text(offset) == offset


def test_a_type_that_is_nested_without_end_is_cut_short():
    stored = {"type": "LONG"}
    for _ in range(900):
        stored = {"type": "LIST", "element": stored}
    assert type_text(stored).startswith("LIST<LIST<")
    assert "<…>" in type_text(stored)


@pytest.mark.parametrize("footer", [b"\x81\xa1a" + b"\x91" * 100_000, b"\x81\xa1\xff\x01"])
def test_a_footer_that_no_writer_makes_is_damage(footer):
    data = b"".join(snapshot_bytes(footer))
    with pytest.raises(CorruptStateError, match="'f' is corrupt: its footer"):
        SnapshotReader(lambda offset, length: data[offset : offset + length], len(data), "f")


def snapshot_bytes(footer):
    header = MAGIC + bytes([VERSION, 0])
    yield header
    yield footer
    yield len(footer).to_bytes(4, "little")
    yield zlib.crc32(header + footer).to_bytes(4, "little")
    yield MAGIC
