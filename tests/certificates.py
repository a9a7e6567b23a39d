"""Certificates for tests over real sockets: two authorities that do not know each other."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from weir.cli.certificate_maker import Authority
from weir.tls import TlsFiles

LOCAL = ("localhost", "127.0.0.1")


def make_files(folder: Path, names: tuple[str, ...] = LOCAL) -> TlsFiles:
    """Return the files of a new authority and of a certificate for some names."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(timezone.utc)
    validity = (now - timedelta(hours=1), now + timedelta(hours=1))
    authority = Authority.make(validity)
    made = authority.certify(names, validity)
    contents = {"c.pem": made.certificate, "k.pem": made.key, "ca.pem": authority.pem.certificate}
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    certificate, key, ca = (str(folder / name) for name in contents)
    return TlsFiles(certificate, key, ca)
