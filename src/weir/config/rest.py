"""Options of the HTTP face of jobs, with Flink's keys where Flink has them."""

from __future__ import annotations

from weir.config.option import STRING, ConfigOption

BIND_ADDRESS = ConfigOption(
    "rest.bind-address",
    STRING,
    "localhost",
    "Address that REST listens on.",
)
BIND_PORT = ConfigOption(
    "rest.bind-port",
    STRING,
    "8081-8181",
    "Ports that REST tries in order: `8081`, `8081,8090-8100` and so on; `0` for any free one.",
    deprecated_keys=("rest.port",),
)
ADDRESS = ConfigOption(
    "rest.address",
    STRING,
    None,
    "Name or address under which others reach REST; the bind address by default.",
)
TOKEN = ConfigOption(
    "weir.rest.token",
    STRING,
    None,
    "Secret that requests send as bearer token; made up for every process if none is given. `none` "
    "lets every user of this machine stop jobs and delete savepoints.",
)
