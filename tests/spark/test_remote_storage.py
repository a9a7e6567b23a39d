"""A job whose checkpoints lie in S3: crashes, failover and resume are as exact as on a disk."""

from __future__ import annotations

import os

import pytest
from tests import servers
from tests.spark.scenario import Scenario

from weir.storage import StorageOptions, open_storage

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]
SECRET = "secret-of-the-test"


class RemoteScenario(Scenario):
    """Checkpoints in a bucket; the server's address and the credentials are configuration."""

    checkpoints = "s3a://bucket/checkpoints"

    def bucket(self, address):
        options = StorageOptions(
            s3_endpoint=address, s3_access_key="key", s3_secret_key=SECRET, s3_region="us-east-1"
        )
        return open_storage(self.checkpoints, options)


def test_killed_slots_and_driver_lose_and_duplicate_nothing(tmp_path, monkeypatch):
    scenario = RemoteScenario(tmp_path)
    scenario.write_input()
    with servers.s3_server(tmp_path) as address:
        servers.make_bucket(address, "bucket")
        (tmp_path / "weir-conf.yaml").write_text(
            f"s3.endpoint: {address}\ns3.region: us-east-1\ns3.access-key: key\n"
            f"s3.secret-key: {SECRET}\nweir.work-dir: {tmp_path / 'work'}\n"
        )
        monkeypatch.setenv("WEIR_CONF_DIR", str(tmp_path))
        points = {"slot.epoch": 2, "driver.metadata": 6}
        failpoints = ";".join(f"{name}={tmp_path / name}@{n}" for name, n in points.items())
        code, output = scenario.run(failpoints=failpoints)
        assert code < 0, output
        assert all((tmp_path / name).exists() for name in points)
        bucket = scenario.bucket(address)
        (job,) = bucket.list()
        newest = max(
            (n for n in bucket.list(job) if bucket.exists(f"{job}/{n}/_metadata")),
            key=lambda name: int(name.removeprefix("chk-")),
        )
        files = [bucket.read(f"{job}/{newest}/{name}") for name in bucket.list(f"{job}/{newest}")]
        code, output = scenario.run(restore=f"{scenario.checkpoints}/{job}/{newest}")
        assert code == 0, output
        scenario.assert_exact()
        assert SECRET not in output
        assert not any(SECRET.encode() in data for data in files)
        logs = [p.read_text(errors="replace") for p in scenario.logs.rglob("*.log")]
        assert logs
        assert not any(SECRET in text for text in logs)
        # The second job ended well and left nothing; the first one's last checkpoint stays.
        assert bucket.list() == [job]
        assert [p.name for p in (tmp_path / "work").iterdir()] == [job]


def test_a_lost_work_directory_is_refused_before_records_are_read_twice(tmp_path):
    from weir.checkpoint.metadata import SourceLayout, SourcePositions
    from weir.errors import CorruptStateError
    from weir.spark.positions import LOG_DIRECTORY, prepare_query_dir

    layout = (SourceLayout("source", 0),)
    lost = {LOG_DIRECTORY: str(tmp_path / "gone")}
    positions = SourcePositions(source_logs=lost, layout=layout)
    with pytest.raises(CorruptStateError, match=r"gone.*weir\.work-dir"):
        prepare_query_dir(tmp_path / "new", positions, layout)
    assert os.listdir(tmp_path / "new") == []
