"""Keeps a server for several test processes: `python -m tests.guardian KIND FOLDER`.

Whoever uses the server keeps a connection to the socket `guardian` in the folder. A process that
ends, also by a signal, closes its connection; after the last one the server is killed.
"""

from __future__ import annotations

import json
import select
import socket
import sys
from pathlib import Path

from tests.brokers import KINDS, Postgres, Unavailable

_FIRST_S = 60


def main(kind: str, place: Path) -> int:
    """Start the server, then watch over its users."""
    try:
        server = KINDS[kind](place)
        server.start()
    except Unavailable as reason:
        sys.stderr.write(f"{reason}\n")
        return 1
    (place / "address").write_text(json.dumps(server.address))
    try:
        _watch(place / "guardian")
    finally:
        server.kill()
        if isinstance(server, Postgres):
            server.remove()
    return 0


def _watch(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    users: list[socket.socket] = []
    while True:
        ready, _, _ = select.select([listener, *users], [], [], None if users else _FIRST_S)
        if not ready:
            break
        for one in ready:
            if one is listener:
                user = listener.accept()[0]
                user.send(b"!")
                users.append(user)
            else:
                users.remove(one)
                one.close()
        if not users:
            break
    path.unlink()
    listener.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
