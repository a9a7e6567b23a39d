"""Object stores and HDFS keep the storage contract, against real servers, and survive faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers

from weir.errors import StorageError
from weir.ids import unique_suffix
from weir.storage import (
    AlreadyExistsError,
    ObjectStorage,
    Storage,
    StorageOptions,
    WebHdfsStorage,
    open_storage,
)
from weir.storage.object_client import parse_location
from weir.testing.storage_conformance import StorageConformance

PART = 5 << 20


def s3_options(address: str) -> StorageOptions:
    return StorageOptions(
        s3_endpoint=address,
        s3_region="us-east-1",
        s3_access_key="key",
        s3_secret_key="secret-of-the-test",
    )


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.s3_server(tmp_path_factory.mktemp("s3")) as address:
        servers.make_bucket(address, "bucket")
        yield address


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.hdfs_server(tmp_path_factory.mktemp("hdfs")) as address:
        yield address


class RemoteConformance(StorageConformance):
    """The contract, and what only remote storages can get wrong."""

    def test_names_with_odd_characters_are_kept(self, storage: Storage) -> None:
        names = sorted(["a b", "ü", "x%20y", "a+b", "q?x", "a#b", "a&b=c", "a'b;"])
        for name in names:
            storage.create(f"odd/{name}/file {name}", name.encode())
        assert storage.list("odd") == names
        for name in names:
            assert storage.read(f"odd/{name}/file {name}") == name.encode()
            assert storage.list(f"odd/{name}") == [f"file {name}"]
        storage.delete_tree("odd")
        assert storage.list() == []

    def test_a_big_file_is_whole_and_reads_by_ranges(self, storage: Storage) -> None:
        block = bytes(range(256)) * 4096
        with storage.open_write("big") as file:
            for i in range(13):
                file.write(b"%08d" % i + block[8:])
            assert not storage.exists("big")
        assert storage.size("big") == 13 * len(block)
        for i in (0, 4, 5, 12):
            assert storage.read_range("big", i * len(block), 12) == b"%08d" % i + block[8:12]
        assert storage.read_range("big", 13 * len(block) - 3, 10) == block[-3:]

    def test_an_aborted_big_write_leaves_nothing(self, storage: Storage) -> None:
        def write_and_stop() -> None:
            with storage.open_write("d/big") as file:
                file.write(bytes(12 << 20))
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_and_stop()
        assert not storage.exists("d/big")
        assert storage.list("d") == []

    def test_a_big_file_does_not_overwrite_one_that_came_meanwhile(self, storage: Storage) -> None:
        def write() -> None:
            with storage.open_write("big") as file:
                file.write(bytes(6 << 20))
                storage.create("big", b"first")

        with pytest.raises(AlreadyExistsError):
            write()
        assert storage.read("big") == b"first"


class TestS3(RemoteConformance):
    """Buckets of moto's server."""

    @pytest.fixture(autouse=True)
    def _server(self, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address = s3
        # What opens by URI alone takes its address and credentials from the environment.
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")

    def make_storage(self, tmp_path: Path) -> Storage:
        """Return a storage under a prefix of its own."""
        location = parse_location(f"s3a://bucket/some prefix/{unique_suffix()}/")
        return ObjectStorage(location, s3_options(self.address), PART)

    def test_an_aborted_upload_is_dropped_by_the_store(self, storage: Storage) -> None:
        self.test_an_aborted_big_write_leaves_nothing(storage)
        assert servers.open_uploads(self.address, "bucket") == []

    def test_a_missing_bucket_is_not_a_missing_file(self, s3: str) -> None:
        storage = open_storage("s3://no-such-bucket/x", s3_options(s3))
        with pytest.raises(StorageError, match="no bucket 'no-such-bucket'"):
            storage.create("f", b"")
        with pytest.raises(StorageError, match=r"no-such-bucket.*404"):
            storage.list()

    def test_no_text_shows_the_secret(self, storage: Storage) -> None:
        assert "secret-of-the-test" not in repr(storage) + str(storage) + storage.uri


@pytest.mark.hdfs
class TestHdfs(RemoteConformance):
    """Hadoop's NameNode and DataNode."""

    @pytest.fixture(autouse=True)
    def _server(self, hdfs: str) -> None:
        self.address = hdfs

    def make_storage(self, tmp_path: Path) -> Storage:
        """Return a storage in a directory of its own."""
        host = self.address.partition("://")[2]
        return WebHdfsStorage(f"webhdfs://{host}/test dir/{unique_suffix()}")

    def test_nothing_hidden_remains(self, storage: WebHdfsStorage) -> None:
        self.test_open_write_never_overwrites(storage)
        found = storage._client.call("GET", storage._root, "LISTSTATUS")
        names = [s["pathSuffix"] for s in found["FileStatuses"]["FileStatus"]]
        assert sorted(names) == ["f", "late"]

    def test_a_file_never_lands_inside_a_directory_of_its_name(self, storage: Storage) -> None:
        storage.create("d/f", b"")
        with pytest.raises(AlreadyExistsError):
            storage.create("d", b"")
        assert storage.list("d") == ["f"]

    def test_a_refusal_names_path_and_reason(self, storage: Storage) -> None:
        with pytest.raises(StorageError, match=r"a:b.*Invalid"):
            storage.create("a:b", b"")

    def test_an_hdfs_uri_goes_to_the_configured_address(self, storage: Storage) -> None:
        storage.create("f", b"1")
        _, _, rest = storage.uri.partition("://")
        options = StorageOptions(webhdfs_address=f"127.0.0.1:1,{self.address}")
        uri = f"hdfs://nameservice/{rest.partition('/')[2]}"
        assert open_storage(uri, options).read("f") == b"1"

    def test_passing_errors_of_the_namenode_are_waited_out(self, storage: WebHdfsStorage) -> None:
        proxy = servers.FaultyProxy(self.address, "GET")
        try:
            options = StorageOptions(webhdfs_address=proxy.address)
            faulty = WebHdfsStorage("hdfs://any" + storage._root, options)
            proxy.faults = [503, "lost"]
            faulty.create("f", b"1")
            proxy.faults = [503, "lost"]
            assert faulty.read("f") == b"1"
        finally:
            proxy.close()

    def test_a_lost_answer_to_a_rename_is_not_another_writer(self, storage: WebHdfsStorage) -> None:
        proxy = servers.FaultyProxy(self.address, "PUT")
        try:
            options = StorageOptions(webhdfs_address=proxy.address)
            faulty = WebHdfsStorage("hdfs://any" + storage._root, options)
            proxy.faults = ["pass", "lost"]
            faulty.create("f", b"1")
            assert proxy.seen == 3
            assert storage.list() == ["f"]
            proxy.always = 503
            with pytest.raises(StorageError, match=r"hdfs://any.*/g.*503"):
                faulty.create("g", b"1")
        finally:
            proxy.close()


@pytest.fixture
def proxy(s3: str) -> Iterator[servers.FaultyProxy]:
    proxy = servers.FaultyProxy(s3, "PUT")
    yield proxy
    proxy.close()


@pytest.fixture
def faulty(proxy: servers.FaultyProxy) -> Storage:
    return open_storage(f"s3://bucket/{unique_suffix()}", s3_options(proxy.address))


def test_passing_errors_of_s3_are_waited_out(faulty: Storage, proxy: servers.FaultyProxy) -> None:
    proxy.faults = [500, 503]
    faulty.create("f", b"1")
    assert proxy.seen == 3
    assert faulty.read("f") == b"1"


def test_a_lost_answer_is_not_another_writer(faulty: Storage, proxy: servers.FaultyProxy) -> None:
    proxy.faults = ["lost"]
    faulty.create("f", b"1")
    assert faulty.read("f") == b"1"
    with pytest.raises(AlreadyExistsError):
        faulty.create("f", b"1")


def test_a_lasting_error_of_s3_names_path_and_reason(
    faulty: Storage, proxy: servers.FaultyProxy
) -> None:
    proxy.always = 403
    with pytest.raises(StorageError, match=rf"{faulty.uri}/d/f.*403"):
        faulty.create("d/f", b"1")
    assert proxy.seen == 1
    assert faulty.list("d") == []


@pytest.mark.parametrize("fault", [503, "lost"])
def test_a_fault_while_an_upload_is_completed_is_waited_out(s3: str, fault: int | str) -> None:
    proxy = servers.FaultyProxy(s3, "POST")
    try:
        location = parse_location(f"s3://bucket/{unique_suffix()}")
        storage = ObjectStorage(location, s3_options(proxy.address), PART)
        proxy.faults = ["pass", fault]
        with storage.open_write("big") as file:
            file.write(bytes(6 << 20))
        assert proxy.seen >= 3 or fault == "lost"
        assert storage.size("big") == 6 << 20
        assert servers.open_uploads(s3, "bucket") == []
    finally:
        proxy.close()


def test_an_upload_that_cannot_be_completed_leaves_nothing(s3: str) -> None:
    proxy = servers.FaultyProxy(s3, "POST")
    try:
        location = parse_location(f"s3://bucket/{unique_suffix()}")
        storage = ObjectStorage(location, s3_options(proxy.address), PART)

        def write() -> None:
            with storage.open_write("d/big") as file:
                file.write(bytes(6 << 20))
                proxy.always = 403

        with pytest.raises(StorageError, match=r"d/big.*403"):
            write()
        assert storage.list("d") == []
        assert servers.open_uploads(s3, "bucket") == []
    finally:
        proxy.close()
