"""What a URL of MySQL or MariaDB says behind its question mark, for PyMySQL.

The names are those of the JDBC drivers of MySQL and MariaDB, written in whatever case, and for
files those of PyMySQL, which reads PEM where Java has key stores.

Invariant: nothing is dropped in silence. Who asks for encryption gets it, or no connection.
"""

from __future__ import annotations

import enum
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weir.errors import UsageError
from weir.notices import warn_once

log = logging.getLogger("weir.jdbc")


class TlsMode(enum.Enum):
    """The values of `sslMode`, by their names in MySQL's driver."""

    DISABLED = "DISABLED"
    PREFERRED = "PREFERRED"
    REQUIRED = "REQUIRED"
    VERIFY_CA = "VERIFY_CA"
    VERIFY_IDENTITY = "VERIFY_IDENTITY"


# MariaDB's driver has names of its own.
_MODES = {mode.value: mode for mode in TlsMode} | {
    "DISABLE": TlsMode.DISABLED,
    "TRUST": TlsMode.REQUIRED,
    "VERIFY_FULL": TlsMode.VERIFY_IDENTITY,
}
_FILES = {"serversslcert": "ca", "ssl_ca": "ca", "ssl_cert": "certificate", "ssl_key": "key"}
_FILES["ssl_key_password"] = "key_password"
_SWITCHES = ("usessl", "requiressl", "verifyservercertificate", "trustservercertificate")
_TIMEOUTS = {
    "connecttimeout": ("connect_timeout",),
    "sockettimeout": ("read_timeout", "write_timeout"),
}
# What only Java's drivers do; leaving it out changes no row.
_WITHOUT_EFFECT = {
    "allowpublickeyretrieval",
    "cacheprepstmts",
    "prepstmtcachesize",
    "prepstmtcachesqllimit",
    "rewritebatchedstatements",
    "useserverprepstmts",
    "useunicode",
}
_KNOWN = (
    "user, password, sslMode, useSSL, requireSSL, verifyServerCertificate, trustServerCertificate, "
    "serverSslCert or ssl_ca, ssl_cert, ssl_key, ssl_key_password (files are PEM), connectTimeout, "
    "socketTimeout, characterEncoding (UTF-8)"
)


@dataclass(frozen=True)
class Tls:
    """How a connection is encrypted; files are read when it is made, on the host that makes it."""

    mode: TlsMode
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)

    @property
    def is_demanded(self) -> bool:
        """Tell whether a connection without encryption is none."""
        return self.mode not in (TlsMode.DISABLED, TlsMode.PREFERRED)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of PyMySQL.

        Raises:
            UsageError: a file cannot be read.
        """
        if self.mode is TlsMode.DISABLED:
            return {"ssl_disabled": True}
        return {"ssl": self._context()} if self.is_demanded else {}

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.check_hostname = self.mode is TlsMode.VERIFY_IDENTITY
            if self.mode is TlsMode.REQUIRED:
                context.verify_mode = ssl.CERT_NONE
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, self.key_password)
        except OSError as error:
            files = [name for name in (self.ca, self.certificate, self.key) if name is not None]
            msg = (
                f"the files for TLS with MySQL cannot be used ({error}): {files}, expected PEM "
                "files that are there on every host that connects"
            )
            raise UsageError(msg) from error
        return context


def read_parameters(
    given: Mapping[str, str], *, mariadb: bool
) -> tuple[Tls | None, dict[str, Any]]:
    """Return how to encrypt, None for what the driver does by itself, and other arguments.

    Raises:
        UsageError: a parameter is not known, or its value makes no sense.
    """
    said = {name.lower(): (name, value) for name, value in given.items()}
    arguments: dict[str, Any] = {}
    for lower, (name, value) in said.items():
        if lower in _TIMEOUTS:
            # None, said by 0, is what holds without it.
            seconds = _seconds(name, value)
            arguments.update(dict.fromkeys(_TIMEOUTS[lower], seconds) if seconds else {})
        elif lower == "characterencoding":
            if value.lower().replace("-", "") not in ("utf8", "utf8mb4"):
                msg = f"{name}={value}: MySQL is spoken to in UTF-8: say UTF-8"
                raise UsageError(msg)
        elif lower in _WITHOUT_EFFECT:
            warn_once(log, f"the parameter {name!r} of a MySQL URL has no effect here")
        elif lower not in ("sslmode", *_SWITCHES, *_FILES):
            msg = (
                f"the parameter {name!r} of a MySQL URL is not known here: leave it out, or use "
                f"one of {_KNOWN}"
            )
            raise UsageError(msg)
    return _tls({lower: value for lower, (_, value) in said.items()}, mariadb), arguments


def _tls(said: dict[str, str], mariadb: bool) -> Tls | None:
    files = {_FILES[name]: value for name, value in said.items() if name in _FILES}
    switches = {name: _is_true(name, said[name]) for name in _SWITCHES if name in said}
    if "sslmode" in said:
        mode = _MODES.get(said["sslmode"].upper().replace("-", "_"))
        if mode is None or switches:
            names = ", ".join(_MODES)
            msg = (
                f"sslMode={said['sslmode']} of a MySQL URL: expected one of {names}, and none of "
                "useSSL, requireSSL, verifyServerCertificate and trustServerCertificate beside it"
            )
            raise UsageError(msg)
    elif switches:
        mode = _mode_of_switches(switches, mariadb=mariadb)
    elif files:
        mode = TlsMode.VERIFY_CA if "ca" in files else TlsMode.REQUIRED
    else:
        return None
    tls = Tls(mode, **files)
    if (files and not tls.is_demanded) or ("ca" in files and mode is TlsMode.REQUIRED):
        msg = (
            f"a MySQL URL names files for TLS and asks for sslMode={mode.value}, which does not "
            "use them: ask for VERIFY_CA or VERIFY_IDENTITY, or leave the files out"
        )
        raise UsageError(msg)
    return tls


def _mode_of_switches(switches: dict[str, bool], *, mariadb: bool) -> TlsMode:
    """Return what the older parameters ask for; never less than they do."""
    demands = switches.get("requiressl", False) or switches.get("verifyservercertificate", False)
    if not switches.get("usessl", True):
        if demands:
            msg = "a MySQL URL says useSSL=false, and demands TLS by another parameter: choose one"
            raise UsageError(msg)
        return TlsMode.DISABLED
    if switches.get("verifyservercertificate"):
        return TlsMode.VERIFY_CA
    # MariaDB's driver verifies unless it is told to trust.
    if mariadb and switches.get("usessl") and not switches.get("trustservercertificate", False):
        return TlsMode.VERIFY_IDENTITY
    asked = demands or switches.get("usessl") or switches.get("trustservercertificate")
    return TlsMode.REQUIRED if asked else TlsMode.PREFERRED


def _is_true(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        msg = f"{name}={value} of a MySQL URL: expected true or false"
        raise UsageError(msg)
    return value.lower() == "true"


def _seconds(name: str, value: str) -> int:
    if not value.isdecimal():
        msg = f"{name}={value} of a MySQL URL: expected milliseconds"
        raise UsageError(msg)
    return -(-int(value) // 1000)
