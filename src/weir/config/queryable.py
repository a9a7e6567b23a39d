"""Options of queryable state, with Flink's keys where Flink has them."""

from __future__ import annotations

from weir.config.option import BOOLEAN, DURATION, INT, MEMORY, STRING, ConfigOption, one_of

_Q = "queryable-state."

QUERIES_ENABLE = ConfigOption(
    _Q + "enable",
    BOOLEAN,
    False,
    "Whether the state of running jobs can be queried.",
)
PROXY_PORTS = ConfigOption(
    _Q + "proxy.ports",
    STRING,
    "9069",
    "Ports that the server of queries in the driver tries in order: `9069`, `50100-50200`; `0` for "
    "any free one.",
)
QUERY_THREADS = ConfigOption(
    _Q + "proxy.query-threads",
    INT,
    0,
    "How many queries are answered at the same time; 0 for 32. Who is one too many is refused.",
    minimum=0,
)
SERVER_PORTS = ConfigOption(
    _Q + "server.ports", STRING, "9067", "Ports of the server of each slot."
)
PROXY_NETWORK_THREADS = ConfigOption(
    _Q + "proxy.network-threads", INT, 0, "Threads that receive queries."
)
SERVER_NETWORK_THREADS = ConfigOption(
    _Q + "server.network-threads", INT, 0, "Threads that receive queries in a slot."
)
SERVER_QUERY_THREADS = ConfigOption(
    _Q + "server.query-threads", INT, 0, "Threads that answer queries in a slot."
)
CLIENT_NETWORK_THREADS = ConfigOption(
    _Q + "client.network-threads", INT, 0, "Threads of the client."
)
QUERY_BIND_ADDRESS = ConfigOption(
    "weir.queryable-state.bind-address",
    STRING,
    "localhost",
    "Address that the server of queries listens on.",
)
QUERY_TOKEN = ConfigOption(
    "weir.queryable-state.token",
    STRING,
    None,
    "Secret that queries send as bearer token, here and to REST's paths below `/jobs/:jobid/state`;"
    " it is good for nothing else. Made up for every process if none is given.",
)
QUERY_STATES = ConfigOption(
    "weir.queryable-state.states",
    one_of("declared", "all"),
    "declared",
    "Which keyed states can be queried: those that called `set_queryable`, or all.",
)
QUERY_TIMEOUT = ConfigOption(
    "weir.queryable-state.timeout",
    DURATION,
    10_000,
    "How long a query may take.",
    minimum=1,
)
QUERY_ANSWER_SIZE = ConfigOption(
    "weir.queryable-state.max-answer-size",
    MEMORY,
    64 << 20,
    "The most bytes of state that one look-up or SQL query may read.",
    minimum=1,
)
QUERY_SQL = ConfigOption(
    "weir.queryable-state.sql",
    BOOLEAN,
    False,
    "Whether the server of queries takes SQL by Arrow Flight SQL; needs the extra `sql`.",
)
QUERY_SQL_MEMORY = ConfigOption(
    "weir.queryable-state.sql-memory",
    MEMORY,
    256 << 20,
    "The most memory that the SQL engine uses for one query, and the most bytes of state that it "
    "reads for one.",
    minimum=1 << 20,
)
