"""An HTTP client written against Flink's REST documentation; it shares nothing with the server."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def errors(self) -> list[str]:
        assert set(self.json) == {"errors"}
        return self.json["errors"]


class Client:
    """One connection per request unless told otherwise."""

    def __init__(self, url: str, token: str | None = None) -> None:
        target = urlsplit(url)
        self.address = (target.hostname, target.port)
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        sent = {**self.headers, **({"Content-Type": "application/json"} if data else {})}
        connection = http.client.HTTPConnection(*self.address, timeout=10)
        try:
            connection.request(method, path, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    @property
    def token_line(self) -> str:
        """The header that proves who asks, for requests that a test writes itself."""
        return "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=headers)

    def json(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status == 200, answer.raw
        return answer.json

    def raw(self, data: bytes) -> bytes:
        """Send bytes as they are and read until the server closes."""
        connection = http.client.HTTPConnection(*self.address, timeout=10)
        connection.connect()
        try:
            connection.sock.sendall(data)
            connection.sock.shutdown(1)
            return b"".join(iter(lambda: connection.sock.recv(65536), b""))
        finally:
            connection.close()
