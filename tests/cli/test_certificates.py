"""`weir certificates`: files that are good for TLS, for their owner's eyes only."""

from __future__ import annotations

import stat

import pytest
from tests.cli.jobs import invoke

from weir.cli.client import RestClient
from weir.config import Settings
from weir.config.file import parse
from weir.jobmanager.settings import JobSettings
from weir.rest import RestServer, RestSettings
from weir.rest.settings import NO_TOKEN
from weir.tls import TlsFiles

FILES = ["ca-key.pem", "ca.pem", "certificate.pem", "key.pem"]


def printed_settings(output):
    return parse("\n".join(line for line in output.splitlines() if ": " in line[:40]), "printed")


def test_the_settings_that_it_prints_give_a_server_that_the_authority_vouches_for(tmp_path):
    result = invoke("certificates", str(tmp_path / "tls"), "driver.example", "10.0.0.7")
    assert result.exit_code == 0, result.output
    assert "driver.example, 10.0.0.7, localhost, 127.0.0.1, ::1" in result.output
    given = printed_settings(result.output.partition("\n")[2])
    assert JobSettings.of([given]).tls is not None
    server = RestServer(
        ports=(0,), token=NO_TOKEN, tls=RestSettings.of(Settings([given])).server_context()
    )
    server.start()
    try:
        ca = TlsFiles(ca=given["weir.ssl.ca"])
        for host in ("127.0.0.1", "localhost"):
            assert RestClient(f"https://{host}:{server.port}", tls=ca).get("/jobs") == {"jobs": []}
    finally:
        server.close()


def test_only_the_owner_can_read_the_files(tmp_path):
    assert invoke("certificates", str(tmp_path / "tls")).exit_code == 0
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    assert sorted(path.name for path in (tmp_path / "tls").iterdir()) == FILES
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()} == {0o600}


def test_a_certificate_is_replaced_only_if_told_and_the_authority_stays(tmp_path):
    assert invoke("certificates", str(tmp_path)).exit_code == 0
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    refused = invoke("certificates", str(tmp_path), "more.example")
    assert refused.exit_code == 2
    assert "is there already" in refused.stderr
    assert before == {name: (tmp_path / name).read_bytes() for name in FILES}
    assert invoke("certificates", "--replace", str(tmp_path), "more.example").exit_code == 0
    changed = [name for name in FILES if (tmp_path / name).read_bytes() != before[name]]
    assert changed == ["certificate.pem", "key.pem"]
    paths = [str(tmp_path / name) for name in ("certificate.pem", "key.pem", "ca.pem")]
    TlsFiles(*paths).read()


@pytest.mark.parametrize("host", ["", "a b", "http://x", "10.0.0.1/8", "é", "a..b", "x" * 300])
def test_what_is_no_host_is_refused_before_anything_is_written(tmp_path, host):
    result = invoke("certificates", str(tmp_path / "tls"), host)
    assert result.exit_code == 2
    assert "is no name of a host" in result.stderr
    assert not (tmp_path / "tls").exists()


def test_half_an_authority_is_not_completed(tmp_path):
    (tmp_path / "ca.pem").write_text("x")
    result = invoke("certificates", str(tmp_path))
    assert (result.exit_code, "ca.pem but no ca-key.pem" in result.stderr) == (2, True)
    (tmp_path / "ca-key.pem").write_text("x")
    result = invoke("certificates", str(tmp_path))
    assert (result.exit_code, "are no authority" in result.stderr) == (2, True)


def test_a_directory_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    result = invoke("certificates", str(tmp_path / "file" / "tls"))
    assert (result.exit_code, "cannot be written" in result.stderr) == (2, True)
