"""`weir certificates`: a private authority, and a certificate of it for the hosts of a cluster."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click

from weir.cli.errors import HELP_OPTIONS
from weir.clock import SystemClock
from weir.config import security as s
from weir.errors import UsageError

CA, CA_KEY, CERTIFICATE, KEY = "ca.pem", "ca-key.pem", "certificate.pem", "key.pem"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_CA_DAYS = 3650
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")


@click.command("certificates", context_settings=HELP_OPTIONS)
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="How long the certificate is valid.",
)
@click.option("--replace", is_flag=True, help="Replace a certificate that is there.")
def certificates(directory: Path, hosts: tuple[str, ...], days: int, replace: bool) -> None:
    """Make certificates for TLS in DIR: a private authority, and one certificate for all HOSTs.

    HOST is a name or an address by which a host of the cluster is reached; without any it is this
    host. An authority that is in DIR already is used again. Copy everything but `ca-key.pem` to
    the same place on every host.
    """
    # The package is needed here alone, and comes with an extra.
    try:
        from weir.cli.certificate_maker import Authority
    except ImportError as error:
        msg = f"certificates need the package 'cryptography' ({error}): install weir-spark[tls]"
        raise UsageError(msg) from error

    certificate, key = directory / CERTIFICATE, directory / KEY
    if certificate.exists() and not replace:
        msg = f"{str(certificate)!r} is there already: use it, or replace it with --replace"
        raise UsageError(msg)
    names = _names(hosts or _own_names())
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, timezone.utc)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(Authority, directory, now)
        made = authority.certify(names, (now - timedelta(hours=1), now + timedelta(days=days)))
        _write(key, made.key)
        _write(certificate, made.certificate)
    except OSError as error:
        msg = f"certificates cannot be written to {str(directory)!r}: {error}"
        raise UsageError(msg) from error
    _say(directory.absolute(), names, days)


def _own_names() -> tuple[str, ...]:
    """Return the name of this host, and the address that others reach it by."""
    name = socket.gethostname()
    address = os.environ.get("SPARK_LOCAL_IP")
    if not address:
        try:
            address = socket.gethostbyname(name)
        except OSError:
            return (name,)
    return (name, address)


def _names(hosts: tuple[str, ...]) -> list[str]:
    """Return the names that a certificate is for, each once, with those of every host itself.

    Raises:
        UsageError: one is neither a name nor an address.
    """
    names = list(dict.fromkeys((*hosts, *_LOCAL)))
    for name in names:
        if not _is_address(name) and not _HOST_NAME.fullmatch(name):
            msg = f"{name!r} is no name of a host: expected one such as worker-1 or 10.0.0.7"
            raise UsageError(msg)
    return names


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _authority(kind: Any, directory: Path, now: datetime) -> Any:
    """Return the authority that is in a directory, a new one if there is none.

    Raises:
        UsageError: there is half of one, or what is there is none.
    """
    certificate, key = directory / CA, directory / CA_KEY
    if certificate.exists() != key.exists():
        found, missing = (CA, CA_KEY) if certificate.exists() else (CA_KEY, CA)
        msg = f"{str(directory)!r} holds {found} but no {missing}: add it, or use another directory"
        raise UsageError(msg)
    if certificate.exists():
        try:
            return kind.load(certificate.read_bytes(), key.read_bytes())
        except (ValueError, TypeError) as error:
            msg = f"{CA} and {CA_KEY} in {str(directory)!r} are no authority: {error}"
            raise UsageError(msg) from error
    authority = kind.make((now - timedelta(hours=1), now + timedelta(days=_CA_DAYS)))
    _write(key, authority.pem.key)
    _write(certificate, authority.pem.certificate)
    return authority


def _write(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write(data)
    temporary.replace(path)


def _say(directory: Path, names: list[str], days: int) -> None:
    click.echo(f"A certificate, valid for {days} days, for\n{', '.join(names)}\n")
    for option in (s.REST_ENABLED, s.INTERNAL_ENABLED):
        click.echo(f"{option.key}: true")
    for option, name in ((s.CERTIFICATE, CERTIFICATE), (s.KEY, KEY), (s.CA, CA)):
        click.echo(f"{option.key}: {directory / name}")
    click.echo(f"\nCopy these three files to the same place on every host; keep {CA_KEY} here.")
