"""Where REST listens and who may ask, read from the configuration.

Whoever can reach REST can stop jobs and delete savepoints, and every user of a machine reaches its
loopback. Therefore requests need a token unless told otherwise, and without one nobody beyond
loopback is ever served.
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from weir.config import Settings, security
from weir.config import rest as r
from weir.config import storage as s
from weir.errors import UsageError
from weir.storage import StorageOptions
from weir.tls import TlsFiles

_LOG = logging.getLogger("weir.rest")
LOOPBACK: Final = "127.0.0.1"
NO_TOKEN: Final = "none"
LOOPBACK_NAMES: Final = ("localhost", LOOPBACK, "::1")
_PORT_MAX: Final = 65535
_STORAGE: Final = (
    s.S3_ENDPOINT,
    s.S3_REGION,
    s.S3_ACCESS_KEY,
    s.S3_SECRET_KEY,
    s.S3_PATH_STYLE,
    s.WEBHDFS_ADDRESS,
)


@dataclass(frozen=True)
class RestSettings:
    """Address, ports to try in order, token and the address told to others.

    A token of None is made up; `NO_TOKEN` means that this machine needs none.
    `storage` is how savepoints that are to be deleted are reached. With `tls` nothing else is
    spoken; with `asks_clients` they need a certificate, too.
    """

    bind_address: str = LOOPBACK
    ports: Sequence[int] = range(8081, 8182)
    token: str | None = field(default=None, repr=False)
    advertised_address: str | None = None
    storage: StorageOptions | None = field(default=None, compare=False)
    tls: TlsFiles | None = None
    asks_clients: bool = False

    @classmethod
    def of(cls, settings: Settings) -> RestSettings:
        """Read the options.

        Raises:
            UsageError: the ports are not of Flink's form, the token is empty, others than this
                machine are to be served without one, or a file for TLS is missing or no good.
        """
        token = settings.get(r.TOKEN)
        if token is not None and not token.strip():
            msg = f"configuration {r.TOKEN.key!r} is empty: give a secret, or leave it out"
            raise UsageError(msg)
        refuse_open(token, (settings.get(r.BIND_ADDRESS), settings.get(r.ADDRESS)))
        if settings.get(security.REST_AUTHENTICATION) and not settings.get(security.REST_ENABLED):
            asked, needed = security.REST_AUTHENTICATION.key, security.REST_ENABLED.key
            _LOG.warning("%s has no effect without %s: true", asked, needed)
        return cls(
            bind_address=settings.get(r.BIND_ADDRESS),
            ports=parse_ports(settings.get(r.BIND_PORT)),
            token=token,
            advertised_address=settings.get(r.ADDRESS),
            storage=StorageOptions.of({option.key: settings.get(option) for option in _STORAGE}),
            tls=TlsFiles.wanted(settings, security.REST_ENABLED),
            asks_clients=settings.get(security.REST_AUTHENTICATION),
        )

    def server_context(self) -> ssl.SSLContext | None:
        """Return how the server speaks TLS, None when it does not.

        Raises:
            UsageError: a file for TLS is missing or no good.
        """
        return None if self.tls is None else self.tls.server_context(ask_clients=self.asks_clients)


def parse_ports(text: str, key: str = r.BIND_PORT.key) -> tuple[int, ...]:
    """Return the ports of a text such as '8081,8090-8100', in its order.

    Raises:
        UsageError: a part is neither a port nor a range of ports.
    """
    ports: list[int] = []
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        numbers = (low, high) if dash else (low, low)
        if not all(n.isascii() and n.isdigit() and int(n) <= _PORT_MAX for n in numbers):
            _refuse_ports(text, key)
        first, last = map(int, numbers)
        if first > last:
            _refuse_ports(text, key)
        ports += range(first, last + 1)
    return tuple(ports)


def _refuse_ports(text: str, key: str) -> None:
    msg = (
        f"configuration {key!r}: found {text!r}, expected ports up to {_PORT_MAX} such "
        "as '8081', '8081,8090-8100' or '0'"
    )
    raise UsageError(msg)


def is_loopback(address: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_reached_from_elsewhere(addresses: Iterable[str | None]) -> bool:
    """Tell whether one of the addresses can be reached from other machines."""
    return not all(address is None or is_loopback(address) for address in addresses)


def chosen_token(given: str | None, addresses: Iterable[str | None]) -> str | None:
    """Return the token that requests need: the given one, a new one, or none.

    Raises:
        UsageError: there is to be none, and other machines reach one of the addresses.
    """
    refuse_open(given, addresses)
    if given is None:
        return secrets.token_urlsafe(32)
    return None if given == NO_TOKEN else given


def refuse_open(given: str | None, addresses: Iterable[str | None]) -> None:
    """Refuse to do without a token where other machines reach one of the addresses.

    Raises:
        UsageError: they do.
    """
    if given == NO_TOKEN and is_reached_from_elsewhere(addresses):
        msg = (
            f"configuration {r.TOKEN.key!r} is {NO_TOKEN!r}, and {r.BIND_ADDRESS.key!r} or "
            f"{r.ADDRESS.key!r} lets other machines reach REST: give a secret, or leave it out"
        )
        raise UsageError(msg)
