"""Routes that show the state of jobs; a token of their own is good for them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Final

import msgspec

from weir.jobmanager.queries import LEVELS, Answer, JobQueries, KeyRange, Level, Terms
from weir.rest import state_models as m
from weir.rest.cluster import Cluster, is_over
from weir.rest.routing import STATE_SCOPE, RefusedError, Request, Route

LIMIT: Final = 1000
LIMIT_MAX: Final = 100_000
_RANGE: Final = ("prefix", "low", "high")
_TERMS: Final[Mapping[str, str]] = {
    "level": "live (default) or committed.",
    "max-age": "How old the answer may be, in milliseconds.",
    "limit": f"At most so many rows, 1 to {LIMIT_MAX}; without a key {LIMIT} by default.",
}


def states(cluster: Cluster, request: Request) -> m.StateInfos:
    """List the states of a job that can be queried."""
    return m.StateInfos(
        [
            m.StateInfo(
                view.name,
                view.operator,
                view.state,
                view.kind,
                types=dict(view.types),
                columns=list(view.columns),
                expires=view.expires,
                opaque=view.opaque,
            )
            for view in _queries(cluster, request).states()
        ]
    )


def look(cluster: Cluster, request: Request) -> m.StateRows:
    """Show the rows of a key, or of a range of keys."""
    queries, name, query = _queries(cluster, request), _name(request), request.query
    by_key = "key" in query
    limit = _limit(_number(query, "limit"), by_key=by_key)
    terms = Terms(_level(query), _number(query, "max-age"), limit)
    if by_key:
        key = queries.key(name, query["key"], text=True)
        _refuse_range(query)
        return _rows(queries, queries.get(name, [key], terms, _namespace(query)))
    low, high = (_bound(queries, name, query.get(bound)) for bound in ("low", "high"))
    wanted = KeyRange(query.get("prefix"), low, high, namespace=_namespace(query))
    return _rows(queries, queries.scan(name, wanted, terms))


def look_up(cluster: Cluster, request: Request) -> m.StateRows:
    """Show the rows of many keys."""
    queries, name = _queries(cluster, request), _name(request)
    body: m.StateLookupRequest = request.body
    by_key = body.keys is not None or body.key_texts is not None
    terms = Terms(body.level, body.max_age_ms, _limit(body.limit, by_key=by_key))
    if not by_key:
        wanted = KeyRange(body.prefix, body.low, body.high, namespace=body.namespace)
        return _rows(queries, queries.scan(name, wanted, terms))
    _refuse_range({bound: getattr(body, bound) for bound in _RANGE})
    keys = [queries.key(name, value) for value in body.keys or ()]
    keys += [queries.key(name, value, text=True) for value in body.key_texts or ()]
    return _rows(queries, queries.get(name, keys, terms, body.namespace))


def _rows(queries: JobQueries, answer: Answer) -> m.StateRows:
    facts = answer.facts
    return m.StateRows(
        facts.level,
        facts.attempt,
        facts.checkpoint_id,
        facts.epoch,
        age_ms=facts.age_ms,
        columns=answer.table.schema.names,
        rows=queries.rows(answer),
        truncated=answer.truncated,
    )


def _queries(cluster: Cluster, request: Request) -> JobQueries:
    job = cluster.job(request.path["jobid"])
    if job.queries is None:
        raise RefusedError(403, "State cannot be queried: set queryable-state.enable: true.")
    if is_over(job.view()):
        raise RefusedError(404, f"Job {job.job_id} has ended: read its savepoint with weir state.")
    return job.queries


def _name(request: Request) -> str:
    return urllib.parse.unquote(request.path["statename"])


def _level(query: Mapping[str, str]) -> Level:
    text = query.get("level", LEVELS[0])
    for level in LEVELS:
        if level == text:
            return level
    raise RefusedError(400, f"level is {text!r}, expected one of {', '.join(LEVELS)}.")


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RefusedError(400, f"{name} is {text!r}, expected a number.")
    return int(text)


def _limit(asked: int | None, *, by_key: bool) -> int | None:
    """Return the most rows; of keys all are wanted where nobody says otherwise."""
    if asked is None:
        return None if by_key else LIMIT
    if not 1 <= asked <= LIMIT_MAX:
        text = f"limit is {asked}, expected 1 to {LIMIT_MAX}: ask for ranges of keys (low, high), "
        raise RefusedError(400, f"{text}or for a stream of all rows (weir.queryable).")
    return asked


def _namespace(query: Mapping[str, str]) -> object:
    text = query.get("namespace")
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"namespace is {text!r}, expected JSON: of a window [start, end] in milliseconds."
        raise RefusedError(400, msg) from error


def _refuse_range(given: Mapping[str, object]) -> None:
    found = [name for name in _RANGE if given.get(name) is not None]
    if found:
        text = f"Keys and {', '.join(found)} do not go together: name keys, or a range of them."
        raise RefusedError(400, text)


def _bound(queries: JobQueries, name: str, text: str | None) -> object:
    return None if text is None else queries.key(name, text, text=True)


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/jobs/:jobid/state",
        states,
        "The states that can be queried.",
        response=m.StateInfos,
        scope=STATE_SCOPE,
    ),
    Route(
        "GET",
        "/jobs/:jobid/state/:statename",
        look,
        "The rows of a key of a state, or of a range of keys.",
        response=m.StateRows,
        query={
            "key": "The key: a text, or JSON where keys are no texts.",
            "prefix": "Only keys that begin with this text.",
            "low": "Only keys from this one on.",
            "high": "Only keys before this one.",
            "namespace": "Only of this window: JSON, [start, end] in milliseconds.",
            **_TERMS,
        },
        scope=STATE_SCOPE,
    ),
    Route(
        "POST",
        "/jobs/:jobid/state/:statename",
        look_up,
        "The rows of many keys of a state.",
        response=m.StateRows,
        body=m.StateLookupRequest,
        scope=STATE_SCOPE,
    ),
)
