"""Where REST listens and who may ask, read from the configuration.

Whoever can reach REST can stop jobs and delete savepoints. Therefore it listens on loopback unless
told otherwise, and without a token nobody beyond loopback is ever served.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from weir.config import Settings
from weir.config import rest as r
from weir.config import storage as s
from weir.errors import UsageError
from weir.storage import StorageOptions

LOOPBACK: Final = "127.0.0.1"
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

    `storage` is how savepoints that are to be deleted are reached.
    """

    bind_address: str = LOOPBACK
    ports: Sequence[int] = range(8081, 8182)
    token: str | None = field(default=None, repr=False)
    advertised_address: str | None = None
    storage: StorageOptions | None = field(default=None, compare=False)

    @classmethod
    def of(cls, settings: Settings) -> RestSettings:
        """Read the options.

        Raises:
            UsageError: the ports are not of Flink's form, or the token is empty.
        """
        token = settings.get(r.TOKEN)
        if token is not None and not token.strip():
            msg = f"configuration {r.TOKEN.key!r} is empty: give a secret, or leave it out"
            raise UsageError(msg)
        return cls(
            bind_address=settings.get(r.BIND_ADDRESS),
            ports=parse_ports(settings.get(r.BIND_PORT)),
            token=token,
            advertised_address=settings.get(r.ADDRESS),
            storage=StorageOptions.of({option.key: settings.get(option) for option in _STORAGE}),
        )


def parse_ports(text: str) -> tuple[int, ...]:
    """Return the ports of a text such as '8081,8090-8100', in its order.

    Raises:
        UsageError: a part is neither a port nor a range of ports.
    """
    ports: list[int] = []
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        numbers = (low, high) if dash else (low, low)
        if not all(n.isascii() and n.isdigit() and int(n) <= _PORT_MAX for n in numbers):
            _refuse_ports(text)
        first, last = map(int, numbers)
        if first > last:
            _refuse_ports(text)
        ports += range(first, last + 1)
    return tuple(ports)


def _refuse_ports(text: str) -> None:
    msg = (
        f"configuration {r.BIND_PORT.key!r}: found {text!r}, expected ports up to {_PORT_MAX} such "
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


def needs_token(addresses: Iterable[str | None]) -> bool:
    """Tell whether one of the addresses can be reached from elsewhere."""
    return not all(address is None or is_loopback(address) for address in addresses)
