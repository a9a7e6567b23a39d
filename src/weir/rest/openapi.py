"""The OpenAPI 3.1 document, made from the routes and the types of their bodies and answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from weir.rest.routing import JSON, VARIABLES, Route
from weir.version import __version__

_REF: Final = "#/components/schemas/{name}"
_QUERIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "get": {"type": "string"},
    "agg": {"type": "string", "pattern": "^((min|max|avg|sum)?(,|$))*$"},
    "maxExceptions": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
    "mode": {"type": "string", "enum": ["cancel"]},
    "parallelism": {"type": "integer", "minimum": 1, "maximum": 32768},
    "start": {"type": "integer"},
    "size": {"type": "integer", "minimum": 0, "maximum": 1 << 20},
    "state": {"type": "string"},
    "key": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1},
    "subtaskindex": {"type": "integer", "minimum": 0},
    "duration": {"type": "integer", "minimum": 10, "maximum": 10_000},
    "from": {"type": "integer", "minimum": 0},
    "to": {"type": "integer", "minimum": 0},
    "level": {"type": "string", "enum": ["live", "committed"]},
    "max-age": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
    **{name: {"type": "string"} for name in ("prefix", "low", "high", "namespace")},
}
_REQUIRED: Final = ("parallelism", "state", "from", "to")


class Errors(msgspec.Struct):
    """Why a request was refused."""

    errors: list[str]


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document of exactly these routes."""
    bodies = [route.body for route in routes if route.body is not None]
    types = [*(route.response for route in routes), *bodies, Errors]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    answers, errors = schemas[: len(routes)], schemas[-1]
    requests = iter(schemas[len(routes) : -1])
    paths: dict[str, dict[str, Any]] = {}
    for route, answer in zip(routes, answers, strict=True):
        body = next(requests) if route.body is not None else None
        where = paths.setdefault(re.sub(r":(\w+)", r"{\1}", route.path), {})
        where[route.method.lower()] = _operation(route, body, answer, errors)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": __version__,
            "description": "Flink's REST for jobs on Spark; every path also begins with /v1.",
        },
        "servers": [{"url": "/"}, {"url": "/v1"}],
        # The second, empty alternative: on loopback there may be no token.
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, body: Any, answer: Any, errors: Any) -> dict[str, Any]:
    names = [part.strip(":") for part in re.split(r"[/.-]", route.path) if part]
    operation: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *names]),
        "summary": route.summary,
        "responses": {
            str(route.status): {
                "description": route.summary,
                "content": {route.media.partition(";")[0]: {"schema": answer}},
            },
            "default": {
                "description": "The request was refused.",
                "content": {JSON: {"schema": errors}},
            },
        },
    }
    parameters = [_path_parameter(name) for name in route.variables]
    parameters += [_query_parameter(name, text) for name, text in route.query.items()]
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        content = {JSON: {"schema": body}}
        operation["requestBody"] = {"content": content, "required": not _may_be_empty(route)}
    return operation


def _may_be_empty(route: Route) -> bool:
    try:
        route.decode(b"{}")
    except msgspec.ValidationError:
        return False
    return True


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": f"^{VARIABLES[name]}$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameter(name: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "description": text,
        "required": name in _REQUIRED,
        "schema": _QUERIES[name],
    }
