"""Identities: operator ids are Flink's hashes of uids."""

from __future__ import annotations

import pytest

from weir.ids import murmur3_128, new_job_id, operator_id, unique_suffix


@pytest.mark.parametrize(
    ("uid", "hashed"),
    [
        ("uid", "0e1febe90327d1cea326114660ec1de8"),
        ("my-uid", "8409efe6adc6d20787611f16017c808f"),
        ("source-id", "bd9c186e89cc37a76d776844dfa8ccba"),
        ("mapper-id", "c9cecfed5cae9d489451c50e442666e3"),
    ],
)
def test_operator_ids_are_flinks(uid, hashed):
    assert operator_id(uid) == hashed


def test_the_published_vector_of_the_hash_holds():
    text = b"The quick brown fox jumps over the lazy dog"
    assert murmur3_128(text).hex() == "6c1b07bc7bbc4be347939ac4a93c437a"


def test_random_ids_do_not_repeat():
    assert len({new_job_id() for _ in range(100)}) == 100
    assert all(len(new_job_id()) == 32 for _ in range(3))
    assert len(unique_suffix(7)) == 7
