"""TLS between processes: files that prove who one is, and what servers and clients make of them.

Certificates, keys and authorities are PEM files at the same paths on every host. They are read when
a server starts or a connection is made, so that renewed files count from then on. Whatever is wrong
with them is a `UsageError` that names the option and the file.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from weir.config import security as s
from weir.config.effective import Settings
from weir.config.option import ConfigOption
from weir.errors import UsageError


@dataclass(frozen=True)
class TlsContents:
    """What the files hold."""

    certificate: bytes
    key: bytes
    ca: bytes


@dataclass(frozen=True)
class TlsFiles:
    """The files of one side; who only asks needs no certificate, and may rely on the system's CAs.

    Paths are absolute.
    """

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> TlsFiles:
        """Read the options; nothing is read of the files yet."""
        paths = [settings.get(option) for option in (s.CERTIFICATE, s.KEY, s.CA)]
        certificate, key, ca = (os.path.abspath(path) if path else None for path in paths)
        return cls(certificate, key, ca)

    @classmethod
    def wanted(cls, settings: Settings, switch: ConfigOption) -> TlsFiles | None:
        """Return the files when an option switches TLS on, else None.

        Raises:
            UsageError: it is switched on, and a file is not given or no good.
        """
        if not settings.get(switch):
            return None
        missing = [o.key for o in (s.CERTIFICATE, s.KEY, s.CA) if not settings.get(o)]
        if missing:
            msg = (
                f"{switch.key!r} is on, but {' and '.join(missing)} {_are(missing)} not set: give "
                "PEM files (keystores of Java are not read); 'weir certificates DIR HOST…' makes "
                "them"
            )
            raise UsageError(msg)
        files = cls.of(settings)
        files.server_context(ask_clients=True)
        return files

    def server_context(self, *, ask_clients: bool) -> ssl.SSLContext:
        """Return how a server speaks TLS; with `ask_clients` others need a certificate of the CA.

        Raises:
            UsageError: a file is missing or no good.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_own(context)
        if ask_clients:
            self._load_ca(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return how a client speaks TLS: with whom the CA says to be the one that was meant.

        Raises:
            UsageError: a file is missing or no good.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca is None:
            context.load_default_certs()
        else:
            self._load_ca(context)
        if self.certificate is not None:
            self._load_own(context)
        return context

    def read(self) -> TlsContents:
        """Return the contents of all files, once they are known to be good.

        Raises:
            UsageError: a file is missing or no good.
        """
        self.server_context(ask_clients=True)
        return TlsContents(
            _read(self.certificate, s.CERTIFICATE), _read(self.key, s.KEY), _read(self.ca, s.CA)
        )

    def read_as_client(self) -> TlsContents:
        """Return what a client needs, once it is known to be good; what is not given is empty.

        Raises:
            UsageError: a file is missing or no good.
        """
        self.client_context()
        own = self.certificate is not None
        return TlsContents(
            _read(self.certificate, s.CERTIFICATE) if own else b"",
            _read(self.key, s.KEY) if own else b"",
            b"" if self.ca is None else _read(self.ca, s.CA),
        )

    def _load_own(self, context: ssl.SSLContext) -> None:
        certificate, key = _path(self.certificate, s.CERTIFICATE), _path(self.key, s.KEY)
        _read(certificate, s.CERTIFICATE)
        _read(key, s.KEY)
        try:
            # A key with a password would be asked for on the terminal, if there is one.
            context.load_cert_chain(certificate, key, password="")
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            if reason == "KEY_VALUES_MISMATCH":
                what = "the key does not belong to the certificate"
            else:
                what = f"expected a certificate and its key without a password, as PEM ({reason})"
            msg = f"{s.CERTIFICATE.key} {certificate!r} with {s.KEY.key} {key!r}: {what}"
            raise UsageError(msg) from error

    def _load_ca(self, context: ssl.SSLContext) -> None:
        ca = _path(self.ca, s.CA)
        _read(ca, s.CA)
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError as error:
            msg = (
                f"{s.CA.key} {ca!r}: expected certificates of authorities, as PEM ({error.reason})"
            )
            raise UsageError(msg) from error


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _path(path: str | None, option: ConfigOption) -> str:
    if path is None:
        msg = f"TLS needs {option.key!r}, which is not set"
        raise UsageError(msg)
    return path


def _read(path: str | None, option: ConfigOption) -> bytes:
    name = _path(path, option)
    try:
        return Path(name).read_bytes()
    except OSError as error:
        msg = f"{option.key} {name!r} cannot be read: {error.strerror or error}"
        raise UsageError(msg) from error
