"""URIs and options of remote storages: what is understood, refused, hidden and carried."""

from __future__ import annotations

import pickle
import sys

import msgspec
import pytest

from weir.errors import UsageError
from weir.slot.messages import Assignment, encode
from weir.storage import ObjectStorage, StorageOptions, WebHdfsStorage, open_storage
from weir.storage.object_client import parse_location

SECRETS = StorageOptions(s3_endpoint="http://s3", s3_access_key="AKEY", s3_secret_key="SKEY")


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
        ("s3n://bucket/with space", "s3://bucket/with space"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
        ("abfs://c@account.dfs.core.windows.net/a", "abfss://c@account.dfs.core.windows.net/a"),
    ],
)
def test_object_uris_have_one_spelling_that_opens_the_same_place(
    given: str, canonical: str
) -> None:
    location = parse_location(given)
    assert location.uri == canonical
    assert parse_location(canonical) == location


@pytest.mark.parametrize("uri", ["s3://", "s3:///path", "s3://b/a/../c", "gs://b/a//c"])
def test_an_object_uri_without_a_bucket_or_with_odd_parts_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="not usable"):
        open_storage(uri)


def test_credentials_in_a_uri_are_refused_without_being_shown() -> None:
    with pytest.raises(UsageError, match="before '@'") as caught:
        open_storage("s3://AKEY:SKEY@bucket/path")
    assert "SKEY" not in str(caught.value)


def test_equal_places_are_equal_storages() -> None:
    pytest.importorskip("obstore")
    assert open_storage("s3a://bucket/a") == open_storage("s3://bucket/a/")
    assert open_storage("s3://bucket/a") != open_storage("s3://bucket/b")
    assert open_storage("hdfs://host:8020/a") == open_storage("hdfs://host:8020/a/")


def test_options_travel_with_pickles_and_assignments_and_hide_in_every_text() -> None:
    pytest.importorskip("obstore")
    storage = open_storage("s3://bucket/a", SECRETS)
    assert isinstance(storage, ObjectStorage)
    copy = pickle.loads(pickle.dumps(storage))
    assert copy == storage
    assert copy._options == SECRETS
    for text in (repr(storage), storage.uri, repr(SECRETS)):
        assert "SKEY" not in text
        assert "AKEY" not in text
    hdfs = WebHdfsStorage("hdfs://nameservice/a", StorageOptions(webhdfs_address="h:1"))
    assert pickle.loads(pickle.dumps(hdfs))._client == hdfs._client
    fields = dict.fromkeys(Assignment.__struct_fields__) | {"storage": SECRETS}
    found = msgspec.msgpack.decode(encode(Assignment(**fields)))
    assert found["storage"]["s3_secret_key"] == "SKEY"
    assert "SKEY" not in repr(Assignment(**fields))  # type: ignore[arg-type]


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UsageError, match=r"weir-spark\[objectstore\]"):
        open_storage("gs://bucket/a")


@pytest.mark.parametrize(
    ("uri", "address", "expected"),
    [
        ("hdfs://nn:8020/a", None, ("http://nn:9870",)),
        ("hdfs://nn:8020/a", "one:50070, https://two:1", ("http://one:50070", "https://two:1")),
        ("hdfs:///a", "one:50070", ("http://one:50070",)),
        ("webhdfs://nn/a", "one:50070", ("http://nn:9870",)),
        ("webhdfs://nn:14000/a", None, ("http://nn:14000",)),
        ("swebhdfs://nn/a", None, ("https://nn:9871",)),
    ],
)
def test_hdfs_is_reached_at_its_http_address(
    uri: str, address: str | None, expected: tuple[str, ...]
) -> None:
    storage = WebHdfsStorage(uri, StorageOptions(webhdfs_address=address))
    assert storage._client.addresses == expected


def test_an_hdfs_uri_without_any_host_is_refused() -> None:
    with pytest.raises(UsageError, match="names no host"):
        open_storage("hdfs:///path")


def test_options_come_from_configuration_keys() -> None:
    found = StorageOptions.of({"s3.endpoint": "http://s3", "s3.path.style.access": True, "x": 1})
    assert found == StorageOptions(s3_endpoint="http://s3", s3_path_style=True)
