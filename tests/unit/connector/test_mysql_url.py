"""What a URL of MySQL says is done, or refused: above all where it asks for encryption."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import make_files

from weir.connector.jdbc.dialect import MySQL
from weir.connector.jdbc.mysql_url import Tls, TlsMode
from weir.datastream.connectors.jdbc import JdbcConnectionOptions
from weir.errors import UsageError


def arguments(parameters: str, kind: str = "mysql") -> dict[str, Any]:
    options = JdbcConnectionOptions(f"jdbc:{kind}://h/db?{parameters}", None, "x")
    return MySQL().arguments(options)


def test_arguments_are_those_of_the_driver() -> None:
    found = arguments("user=me&connectTimeout=0&socketTimeout=1500&characterEncoding=UTF-8")
    assert found == {
        "host": "h",
        "port": 3306,
        "database": "db",
        "user": "me",
        "password": "x",
        "read_timeout": 2,
        "write_timeout": 2,
    }


@pytest.mark.parametrize(
    ("parameters", "mysql", "mariadb"),
    [
        ("sslMode=DISABLED", TlsMode.DISABLED, TlsMode.DISABLED),
        ("sslmode=disable", TlsMode.DISABLED, TlsMode.DISABLED),
        ("sslMode=PREFERRED", TlsMode.PREFERRED, TlsMode.PREFERRED),
        ("sslMode=REQUIRED", TlsMode.REQUIRED, TlsMode.REQUIRED),
        ("sslMode=trust", TlsMode.REQUIRED, TlsMode.REQUIRED),
        ("sslMode=verify-ca", TlsMode.VERIFY_CA, TlsMode.VERIFY_CA),
        ("sslMode=VERIFY_IDENTITY", TlsMode.VERIFY_IDENTITY, TlsMode.VERIFY_IDENTITY),
        ("sslMode=verify-full", TlsMode.VERIFY_IDENTITY, TlsMode.VERIFY_IDENTITY),
        ("useSSL=false", TlsMode.DISABLED, TlsMode.DISABLED),
        ("useSSL=true", TlsMode.REQUIRED, TlsMode.VERIFY_IDENTITY),
        ("useSsl=TRUE&trustServerCertificate=true", TlsMode.REQUIRED, TlsMode.REQUIRED),
        ("requireSSL=true", TlsMode.REQUIRED, TlsMode.REQUIRED),
        ("useSSL=true&verifyServerCertificate=true", TlsMode.VERIFY_CA, TlsMode.VERIFY_CA),
        ("serverSslCert=/ca.pem", TlsMode.VERIFY_CA, TlsMode.VERIFY_CA),
        ("ssl_cert=/c.pem", TlsMode.REQUIRED, TlsMode.REQUIRED),
    ],
)
def test_every_way_to_ask_for_encryption_is_understood(
    parameters: str, mysql: TlsMode, mariadb: TlsMode
) -> None:
    assert arguments(parameters)["tls"].mode is mysql
    assert arguments(parameters, "mariadb")["tls"].mode is mariadb


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("sslMode=", "sslMode= of a MySQL URL: expected one of DISABLED"),
        ("sslMode=yes", "expected one of DISABLED"),
        ("sslMode=REQUIRED&useSSL=false", "and none of useSSL"),
        ("useSSL=1", "expected true or false"),
        ("useSSL=false&requireSSL=true", "demands TLS by another parameter"),
        ("sslMode=DISABLED&ssl_ca=/ca.pem", "names files for TLS"),
        ("sslMode=REQUIRED&ssl_ca=/ca.pem", "names files for TLS"),
        ("trustCertificateKeyStoreUrl=file:x.jks", "is not known here.*sslMode.*files are PEM"),
        ("enabledTLSProtocols=TLSv1.3", "the parameter 'enabledTLSProtocols'"),
        ("serverTimezone=UTC", "the parameter 'serverTimezone'"),
        ("characterEncoding=latin1", "say UTF-8"),
        ("connectTimeout=soon", "expected milliseconds"),
    ],
)
def test_what_cannot_be_done_is_refused(parameters: str, said: str) -> None:
    made = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    with pytest.raises(UsageError, match=said):
        made.with_url(f"jdbc:mysql://h/db?{parameters}").build()


def test_what_only_java_s_driver_does_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "weir.jdbc"):
        assert "tls" not in arguments("rewriteBatchedStatements=true")
    assert "'rewriteBatchedStatements' of a MySQL URL has no effect" in caplog.text


def test_certificates_are_verified_as_far_as_was_asked_for(tmp_path: Path) -> None:
    files = make_files(tmp_path)

    def context(mode: TlsMode, **more: Any) -> ssl.SSLContext:
        found: ssl.SSLContext = Tls(mode, **more).arguments()["ssl"]
        return found

    required = context(TlsMode.REQUIRED, certificate=files.certificate, key=files.key)
    assert (required.verify_mode, required.check_hostname) == (ssl.CERT_NONE, False)
    ca = context(TlsMode.VERIFY_CA, ca=files.ca)
    assert (ca.verify_mode, ca.check_hostname) == (ssl.CERT_REQUIRED, False)
    full = context(TlsMode.VERIFY_IDENTITY)
    assert (full.verify_mode, full.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert Tls(TlsMode.PREFERRED).arguments() == {}
    assert Tls(TlsMode.DISABLED).arguments() == {"ssl_disabled": True}
    with pytest.raises(UsageError, match="expected PEM files that are there"):
        context(TlsMode.VERIFY_CA, ca=str(tmp_path / "nowhere.pem"))
