"""Targets for the doors of state: queries by Flight, REST and SQL, options of Spark, typed keys.

They speak to a real job in this process, and to a real savepoint. Whatever comes, it is answered or
refused by name; nothing is changed, and nothing outside of the job's state is reached.
"""

from __future__ import annotations

import functools
import json
import urllib.parse
from collections.abc import Callable
from typing import Any

import msgspec
from tests.fuzz.target import NoInputError, Target, require
from tests.fuzz.texts import _savepoint
from tests.harness.querying import KEYS, job_of, queries_of

from weir.codec.portable import portable
from weir.common.typeinfo import Types
from weir.errors import CorruptStateError, StorageError, UsageError
from weir.jobmanager.queries import QueryError
from weir.keygroup import key_group
from weir.offline.keys import key_from_text, key_groups_from_text
from weir.queryable.flight_sql import FlightSql
from weir.queryable.protobuf import field, message
from weir.queryable.protocol import (
    QueryRequest,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from weir.queryable.queries import StateQueries
from weir.queryable.server import QueryServer
from weir.queryable.settings import QuerySettings
from weir.rest import RestServer
from weir.rest.handler import _query
from weir.rest.routing import RefusedError, Request
from weir.rest.state_routes import ROUTES, look, look_up
from weir.spark.state_source import ReadOptions, StateReader
from weir.testing.manual_job import ManualJob

_LONG = portable(Types.LONG())
_MEMORY = 64 << 20
_REFUSED = (QueryError, RefusedError)
_SQL = 'SELECT key, value FROM "everything"."total" WHERE key = 3'


class _Job:
    """A job with a state of every kind, which nobody changes any more."""

    def __init__(self) -> None:
        job = job_of(60)
        job.run_epoch(take=50, checkpoint=True)
        self.queries: StateQueries = queries_of(job, timeout_ms=2000, bytes_max=1 << 20)
        self.server = QueryServer(QuerySettings(ports=(0,), token="fuzz"))
        self.server.register(job.job_id, self.queries)
        self.server.close()  # what it answers is asked without the network
        manual = ManualJob("counting", job_id=str(job.job_id))
        manual.queries = self.queries
        self.rest = RestServer(ports=(0,))
        self.rest.register(manual)
        self.job_id = str(job.job_id)
        self.job = job

    def untouched(self) -> None:
        """Make a finding of state that is not what it was."""
        found = self.queries.table(self.queries.catalog.find("q-total"), _terms())
        require(found.table.num_rows == KEYS, "the state of the job has changed")


def _terms() -> Any:
    return QueryRequest("", "q-total").terms


@functools.cache
def _job() -> _Job:
    return _Job()


def _with_job(function: Callable[[bytes], Any]) -> Callable[[], Callable[[bytes], Any]]:
    """Start the job before classes are locked: it unpickles functions of its own."""

    def prepare() -> Callable[[bytes], Any]:
        _job()
        return function

    return prepare


# ---- requests ----------------------------------------------------------------------------------


def _requests() -> list[bytes]:
    keys = [_LONG.codec.encode(key) for key in (1, 3, 99)]
    asked = [
        QueryRequest("", "q-total", keys, _LONG.type_info.to_json()),
        QueryRequest("", "q-seen", low=2, high=5, limit=3, level="committed"),
        QueryRequest("", "everything.parity", max_age_ms=10_000_000),
        QueryRequest("", "q-total", keys[:1], _LONG.type_info.to_json(), namespace=[0, 10]),
        QueryRequest(_job().job_id, "q-mean", prefix="a"),
    ]
    return [encode_request(request) for request in asked]


def _request(data: bytes) -> None:
    answer = _job().server.answer(decode_request(data))
    again = decode_answer(encode_answer(answer))
    require(again.table.equals(answer.table), "an answer is another one after the way")


def _bodies() -> list[bytes]:
    bodies = [
        {"keys": [1, 2], "level": "committed"},
        {"key-texts": ["4", "x"], "limit": 5},
        {"low": 2, "high": 5, "max-age-ms": 100_000_000},
        {"prefix": "a", "namespace": [0, 10]},
    ]
    return [msgspec.json.encode(body) for body in bodies]


def _body(data: bytes) -> None:
    job = _job()
    try:
        body = next(r for r in ROUTES if r.handle is look_up).decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NoInputError from error
    path = {"jobid": job.job_id, "statename": "q-total"}
    msgspec.json.encode(look_up(job.rest.cluster, Request(path, {}, body)))


def _paths() -> list[bytes]:
    return [
        b"q-total?key=3",
        b"q-total?low=1&high=4&limit=2&level=committed",
        b"everything.seen?key=%33&max-age=100000000",
        b"q-parity?prefix=a",
        b"..%2F..%2Fetc%2Fpasswd?key=%00",
    ]


def _path(data: bytes) -> None:
    job = _job()
    parts = urllib.parse.urlsplit("/" + data.decode("latin-1").replace("/", "%2F"))
    path = {"jobid": job.job_id, "statename": parts.path[1:]}
    msgspec.json.encode(look(job.rest.cluster, Request(path, _query(parts.query), None)))


# ---- SQL ---------------------------------------------------------------------------------------


def _messages() -> list[bytes]:
    query = field(1, _SQL.encode())
    return [
        message("CommandStatementQuery", query),
        message("TicketStatementQuery", query),
        message("CommandGetTables", field(2, b"every%") + field(3, b"t_tal") + b"\x28\x01"),
        message("CommandGetDbSchemas", field(2, b"%")),
        message("CommandGetCatalogs", b""),
        message("ActionCreatePreparedStatementRequest", query),
    ]


class _Descriptor:
    """What Flight gives a server: only its command is looked at."""

    def __init__(self, command: bytes) -> None:
        self.command = command


def _message(data: bytes) -> None:
    sql = FlightSql(_job().queries, "committed", _MEMORY)
    asked: list[Callable[[], Any]] = [
        lambda: sql.result(data),
        lambda: sql.action("CreatePreparedStatement", data),
        lambda: sql._table_schema(*_known(sql, data)),
    ]
    if not any([_is_answered(ask) for ask in asked]):  # noqa: C419 - each is asked
        raise NoInputError


def _is_answered(ask: Callable[[], Any]) -> bool:
    try:
        ask()
    except QueryError:
        return False
    return True


def _known(sql: FlightSql, data: bytes) -> Any:
    from weir.queryable.protobuf import read_message

    name, fields = read_message(data)
    if name not in sql._tables:
        msg = f"{name} is no list"
        raise QueryError(msg)
    return name, fields


def _statements() -> list[bytes]:
    return [
        _SQL.encode(),
        b'SELECT count(*), sum(t.value) FROM "everything"."total" t JOIN "everything"."seen" s '
        b"ON t.key = s.key GROUP BY t.key HAVING count(*) > 1 ORDER BY 1 LIMIT 3",
        b"SELECT * FROM read_text('/etc/passwd')",
        b"COPY (SELECT 1) TO '/tmp/never'",
        b'WITH a AS (SELECT 1 AS x) SELECT x FROM a UNION SELECT key FROM "everything"."total"',
        b"SELECT * FROM duckdb_settings() WHERE name = 'enable_external_access'",
    ]


def _statement(data: bytes) -> None:
    from weir.queryable.sql import SqlQueries

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NoInputError from error
    found = SqlQueries(_job().queries, "committed", _MEMORY).run(text)
    require(b"root:" not in str(found.to_pydict()).encode("utf-8", "replace"), "a file was read")
    _job().untouched()


# ---- options and keys --------------------------------------------------------------------------


def _options() -> list[bytes]:
    common = {"path": "here", "operator": "totals", "state": "total"}
    more: list[dict[str, str]] = [
        {},
        {"splits": "3", "unpickle": "true"},
        {"keys": "[1, 2]"},
        {"keyGroups": "0-63"},
        {"KEYGROUPS": "7", "s3.endpoint": "x"},
    ]
    return [msgspec.json.encode({**common, **given}) for given in more]


def _prepare_options() -> Callable[[bytes], None]:
    place = str(_savepoint().place)
    _savepoint().with_metadata(_savepoint().bodies()[0])  # as nobody has mutated it
    contents = ReadOptions(place, "", "").contents()
    states = [s for s in contents.states() if "." not in s.name and not s.name.startswith("_")]
    first = states[0]

    def run(data: bytes) -> None:
        try:
            given = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise NoInputError from error
        if not isinstance(given, dict):
            raise NoInputError
        # Spark gives texts. Another path would be a matter of storages, which have their own tests.
        options = {str(name): str(value) for name, value in given.items()}
        names = {"path": place, "operator": first.operator.id, "state": first.name}
        options |= {name: names[name] for name in names if options.get(name)}
        if options.get("operator") == first.operator.id and "unpickle" in options:
            options["unpickle"] = "false"
        reader = StateReader(ReadOptions.of(options))
        for split in reader.partitions()[:3]:
            for batch in reader.read(split):
                require(batch.num_rows >= 0, "rows without a number")

    return run


_TYPES = (
    Types.LONG(),
    Types.STRING(),
    Types.DOUBLE(),
    Types.BOOLEAN(),
    Types.BIG_DEC(),
    Types.SQL_DATE(),
    Types.TUPLE([Types.LONG(), Types.STRING()]),
    Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.LIST(Types.STRING())]),
    Types.PICKLED_BYTE_ARRAY(),
)


def _texts() -> list[bytes]:
    texts = ["3", "ann", "1.5", "true", '"1.25"', '"2026-01-31"', '[1, "a"]', '{"a": 1, "b": []}']
    texts += ["NaN", "-0", "1e400", "null", "0-63", "[1, [2, 3]]", "9223372036854775808"]
    numbered = enumerate(texts)
    return [bytes([number % len(_TYPES)]) + text.encode() for number, text in numbered]


def _text(data: bytes) -> None:
    of = portable(_TYPES[(data or b"\0")[0] % len(_TYPES)])
    text = data[1:].decode("utf-8", "replace")
    try:
        groups = key_groups_from_text(text)
        require(groups.start <= groups.end or len(groups) == 0, f"a range {groups}")
    except UsageError:
        pass
    key = key_from_text(text, of)
    require(0 <= key_group(key, 128) < 128, "a key without a key group")
    encoded = of.codec.encode(key)
    require(of.codec.encode(of.codec.decode(encoded)) == encoded, "a key is another one as bytes")
    json.dumps(text)


TARGETS = [
    Target("query-requests", "msgpack", _requests, _with_job(_request), _REFUSED),
    Target("query-bodies", "json", _bodies, _with_job(_body), _REFUSED),
    Target("query-paths", "text", _paths, _with_job(_path), _REFUSED),
    Target("sql-messages", "bytes", _messages, _with_job(_message), _REFUSED),
    Target("sql-statements", "text", _statements, _with_job(_statement), _REFUSED),
    Target(
        "read-options",
        "json",
        _options,
        _prepare_options,
        (UsageError, CorruptStateError, StorageError),
    ),
    Target("key-texts", "text", _texts, lambda: _text, (UsageError,)),
]
