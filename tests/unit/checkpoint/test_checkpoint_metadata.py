"""The metadata file reads back exactly, and anything else is refused by name."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.checkpoint.metadata import (
    CheckpointMetadata,
    FileRecord,
    OperatorRecord,
    OperatorStateRecord,
    SourceLayout,
    SourcePositions,
    SubtaskRecord,
    decode_metadata,
    encode_metadata,
)
from weir.errors import CorruptStateError, IncompatibleStateError, UsageError

METADATA = CheckpointMetadata(
    checkpoint_id=7,
    job_id="ab" * 16,
    job_name="wörd count",
    timestamp_ms=1_700_000_000_000,
    kind="checkpoint",
    epoch=41,
    sources=SourcePositions(
        batch_id=41,
        offset_lines=("v1", '{"batchWatermarkMs":0}', '{"logOffset":5}', "-"),
        commit_lines=("v1", '{"nextBatchWatermarkMs":0}'),
        source_logs={"sources/0/9.compact": 'v1\n{"path":"file:///x y"}\n'},
        layout=(SourceLayout("orders", 0), SourceLayout("rates", 1)),
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
                    0, 0, (0, 63), ("sum", "seen"), {"buffer": OperatorStateRecord("SPLIT", 3)}
                ),
                SubtaskRecord(1),
            ),
        ),
    ),
    files=(FileRecord("state-s0-a1-0123456789ab", 1234, 0xDEADBEEF, 0),),
)


def sealed(body: bytes, version: int = 4) -> bytes:
    return b"weir-metadata %d %08x %d\n%s" % (version, zlib.crc32(body), len(body), body)


def test_metadata_reads_back_equal() -> None:
    assert decode_metadata(encode_metadata(METADATA), "f") == METADATA


def test_the_encoding_is_canonical_and_has_the_documented_header() -> None:
    data = encode_metadata(METADATA)
    header, body = data.split(b"\n", 1)
    assert header == b"weir-metadata 4 %08x %d" % (zlib.crc32(body), len(body))
    tree = json.loads(body)
    assert body == json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()
    assert tree["sources"]["offset_lines"][2] == '{"logOffset":5}'
    assert tree["operators"][0]["subtasks"][0]["keyed_range"] == [0, 63]


@given(
    st.text(),
    st.lists(st.text()),
    st.dictionaries(st.text().map("@{}".format), st.text()),
    st.none() | st.integers(0, 2**62),
)
def test_any_text_is_kept_verbatim(
    name: str, lines: list[str], logs: dict[str, str], batch: int | None
) -> None:
    sources = SourcePositions(batch, tuple(lines), tuple(reversed(lines)), logs)
    metadata = replace(METADATA, job_name=name, sources=sources)
    assert decode_metadata(encode_metadata(metadata), "f") == metadata


def test_every_truncation_is_noticed() -> None:
    data = encode_metadata(METADATA)
    for length in range(len(data)):
        with pytest.raises(CorruptStateError, match="chk-7/_metadata"):
            decode_metadata(data[:length], "chk-7/_metadata")


@given(st.data())
def test_every_flipped_bit_is_noticed(choice: st.DataObject) -> None:
    data = bytearray(encode_metadata(METADATA))
    position = choice.draw(st.integers(0, len(data) - 1))
    data[position] ^= 1 << choice.draw(st.integers(0, 7))
    with pytest.raises((CorruptStateError, IncompatibleStateError), match="the file"):
        decode_metadata(bytes(data), "the file")


def test_a_header_of_another_readable_version_is_noticed() -> None:
    data = encode_metadata(METADATA).replace(b"weir-metadata 4 ", b"weir-metadata 2 ", 1)
    with pytest.raises(CorruptStateError, match="header says version 2, its body 4"):
        decode_metadata(data, "f")


def test_appended_bytes_are_noticed() -> None:
    with pytest.raises(CorruptStateError, match="bytes, expected"):
        decode_metadata(encode_metadata(METADATA) + b" ", "f")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"checkpoint_id":"x"}', b"\xff\xfe", b"null"]
)
def test_a_wrong_body_is_refused_even_with_a_right_checksum(body: bytes) -> None:
    with pytest.raises(CorruptStateError, match="'f' is damaged"):
        decode_metadata(sealed(body), "f")


@pytest.mark.parametrize("data", [b"", b"\n", b"weir-metadata", b"Spark\n{}", b"\0" * 100])
def test_another_kind_of_file_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptStateError, match="'f' is damaged"):
        decode_metadata(data, "f")


def test_a_newer_version_is_named_as_such() -> None:
    for data in (sealed(b"{}", version=5), b"weir-metadata 12 new header\nanything"):
        with pytest.raises(IncompatibleStateError, match="'f' was written by a newer version"):
            decode_metadata(data, "f")


def test_references_to_missing_files_or_subtasks_are_refused_on_both_ways() -> None:
    operator = METADATA.operators[0]
    for subtasks in (
        (SubtaskRecord(0, file=1),),
        (SubtaskRecord(0, file=-1),),
        (SubtaskRecord(2),),
        (SubtaskRecord(0), SubtaskRecord(0)),
    ):
        broken = replace(METADATA, operators=(replace(operator, subtasks=subtasks),))
        with pytest.raises(UsageError, match="inconsistent"):
            encode_metadata(broken)
    tree = json.loads(encode_metadata(METADATA).split(b"\n", 1)[1])
    tree["files"] = []
    with pytest.raises(CorruptStateError, match="refers to file 0"):
        decode_metadata(sealed(json.dumps(tree).encode()), "f")


def test_unknown_fields_of_the_same_version_are_ignored() -> None:
    tree = json.loads(encode_metadata(METADATA).split(b"\n", 1)[1])
    tree["comment"] = "hello"
    assert decode_metadata(sealed(json.dumps(tree).encode()), "f") == METADATA


@pytest.mark.parametrize(
    "name",
    [
        "sources/0/../../../x",
        "sources/0/..",
        "sources/0/.hidden",
        "sources/0/a/b",
        "sources/../x",
        "sources/x/0",
        "sources/0",
        "/etc/passwd",
        "../x",
        "offsets/0",
        "sources/0/a\0b",
        "sources/0/" + "a" * 2000,
        "",
    ],
)
def test_a_log_whose_name_leads_elsewhere_is_refused_on_both_ways(name: str) -> None:
    logs = replace(METADATA.sources, source_logs={name: "text"})
    with pytest.raises(UsageError, match="is no file of a source's log"):
        encode_metadata(replace(METADATA, sources=logs))
    tree = json.loads(encode_metadata(METADATA).split(b"\n", 1)[1])
    tree["sources"]["source_logs"] = {name: "text"}
    with pytest.raises(CorruptStateError, match="is no file of a source's log"):
        decode_metadata(sealed(json.dumps(tree).encode()), "f")
    named = {"sources/0/": "", "sources/12/9.compact": "v1", "@directory": "/q", "@log/0": "1 00"}
    encode_metadata(replace(METADATA, sources=replace(logs, source_logs=named)))
