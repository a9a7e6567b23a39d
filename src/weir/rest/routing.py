"""What a route is, how a path finds it, and how a handler refuses.

Paths are Flink's patterns such as `/jobs/:jobid`. A variable takes one segment and only what its
kind allows, so nothing that looks like a file path ever reaches a handler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from weir.jobmanager.logs import NAME as LOG_NAME

HEX_ID: Final = "[0-9a-f]{32}"
NUMBER: Final = "[0-9]{1,18}"
VARIABLES: Final[Mapping[str, str]] = {
    "jobid": HEX_ID,
    "vertexid": HEX_ID,
    "triggerid": HEX_ID,
    "checkpointid": NUMBER,
    "subtaskindex": "[0-9]{1,6}",
    "taskmanagerid": "[0-9a-f]{8}-[0-9]{1,6}",
    "logname": LOG_NAME,
    "statename": "[A-Za-z0-9_.~%+:@-]{1,400}",
}
JSON: Final = "application/json"
JOBS_SCOPE: Final = "jobs"
STATE_SCOPE: Final = "state"


class RefusedError(Exception):
    """The request cannot be answered; the texts go to the client."""

    def __init__(self, status: int, *messages: str) -> None:
        super().__init__(status, *messages)
        self.status = status
        self.messages = messages


@dataclass(frozen=True)
class Request:
    """A request that passed all checks: variables of its path, query and decoded body."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True)
class Part:
    """Bytes of a log that forgets its oldest lines, and where in it they begin."""

    start: int
    data: bytes


@dataclass(frozen=True)
class Route:
    """One served path; `body` and `response` are types that OpenAPI shows.

    `handle` is given the cluster and the request. `query` are names with a description. Tokens are
    good for a `scope`, and that of the server for all.
    """

    method: str
    path: str
    handle: Callable[[Any, Request], Any]
    summary: str
    response: Any
    body: Any = None
    status: int = 200
    query: Mapping[str, str] = field(default_factory=dict)
    media: str = JSON
    scope: str = JOBS_SCOPE
    decode: Callable[[bytes], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Build the body's decoder before requests come, which have a thread each."""
        object.__setattr__(self, "decode", msgspec.json.Decoder(self.body).decode)

    @property
    def variables(self) -> list[str]:
        """Return the names of the path's variables, in order."""
        return [part[1:] for part in self.path.split("/") if part.startswith(":")]


class Router:
    """Finds routes; a path may begin with /v1."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._table = [(re.compile(_pattern(route.path)), route) for route in routes]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Return the route of a request and the variables in its path.

        Raises:
            RefusedError: 404 for an unknown path, 405 for another method than those of the path.
        """
        plain = path.removeprefix("/v1") if path.startswith("/v1/") else path
        wanted = "GET" if method == "HEAD" else method
        for pattern, route in self._table:
            match = pattern.fullmatch(plain)
            if match and route.method == wanted:
                return route, match.groupdict()
        if self.methods(plain):
            raise RefusedError(405, f"Method {method} is not allowed for this path.")
        raise RefusedError(404, "Not found: no such path is served; /openapi.json lists them all.")

    @property
    def all_methods(self) -> list[str]:
        """Return the methods that some path allows."""
        return sorted({route.method for route in self.routes} | {"HEAD", "OPTIONS"})

    def methods(self, path: str) -> list[str]:
        """Return the methods that a path allows; none for an unknown path."""
        plain = path.removeprefix("/v1") if path.startswith("/v1/") else path
        found = {route.method for pattern, route in self._table if pattern.fullmatch(plain)}
        if "GET" in found:
            found.add("HEAD")
        return sorted(found | {"OPTIONS"}) if found else []


def _pattern(path: str) -> str:
    parts = [
        f"(?P<{part[1:]}>{VARIABLES[part[1:]]})" if part.startswith(":") else re.escape(part)
        for part in path.split("/")
    ]
    return "/".join(parts)
