"""The OpenAPI document is whole, describes exactly what is served, and every answer fits it."""

import re
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.live_job import Count, some_words
from tests.unit.rest.client import Client
from tests.unit.rest.samples import COUNT, JOB_ID, SOURCE

from weir.common import Types
from weir.datastream import StreamExecutionEnvironment
from weir.jobmanager.logs import LogFile
from weir.rest import RestServer
from weir.rest.routes import ROUTES
from weir.storage.local import LocalStorage
from weir.testing.harness import HarnessOptions, JobHarness, collect
from weir.testing.manual_job import ManualJob

TRIGGER = "1234" * 8
VALUES = {
    "jobid": JOB_ID,
    "vertexid": COUNT,
    "triggerid": TRIGGER,
    "checkpointid": "2",
    "subtaskindex": "1",
    "taskmanagerid": f"{JOB_ID[:8]}-0",
    "logname": "slot-0-attempt-0.log",
    "statename": "counts",
}
CONTENTS = "/jobs/:jobid/checkpoints/details/:checkpointid/contents"
QUERIES = {
    "/jobs/:jobid/rescaling": "?parallelism=3",
    "/jobs/:jobid/vertices/:vertexid/flamegraph": "?duration=10",
    f"{CONTENTS}/:vertexid/key-groups": "?state=total",
    f"{CONTENTS}/:vertexid/rows": "?state=total",
    "/jobs/:jobid/checkpoints/diff": "?from=2&to=2",
}
BODIES: dict[str, Any] = {
    "/jobs/:jobid/start-again": {"savepoint-path": "file:///savepoint", "triggerId": TRIGGER},
    "/savepoint-disposal": {"savepoint-path": "file:///nowhere/savepoint", "triggerId": TRIGGER},
    "/jobs/:jobid/resource-requirements": {
        vertex: {"parallelism": {"lowerBound": 1, "upperBound": 2}} for vertex in (SOURCE, COUNT)
    },
}


def misfits(value: Any, schema: Any, whole: Any, where: str = "answer") -> list[str]:
    """Say what in a value does not fit its schema; fields that no schema names do not fit."""
    if schema in ({}, True):
        return []
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        return misfits(value, whole["components"]["schemas"][name], whole, where)
    if "anyOf" in schema:
        tries = [misfits(value, option, whole, where) for option in schema["anyOf"]]
        return [] if [] in tries else min(tries, key=len)
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{where}: {value!r} not in {schema['enum']}"]
    if "const" in schema:
        return [] if value == schema["const"] else [f"{where}: {value!r} is not the constant"]
    kind = schema.get("type")
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if not isinstance(value, kinds[kind]) or (kind != "boolean" and isinstance(value, bool)):
        return [f"{where}: {value!r} is no {kind}"]
    if kind == "string" and not re.search(schema.get("pattern", ""), value):
        return [f"{where}: {value!r} does not match {schema['pattern']}"]
    if kind == "array":
        # Of a tuple every place has a schema of its own, and there are no other places.
        first, items = schema.get("prefixItems", []), schema.get("items", {})
        if items is False and len(value) != len(first):
            return [f"{where}: {len(value)} items, expected {len(first)}"]
        kinds_of = [*first, *[items] * (len(value) - len(first))]
        pairs = enumerate(zip(value, kinds_of, strict=True))
        return [f for i, (x, kind) in pairs for f in misfits(x, kind, whole, f"{where}[{i}]")]
    if kind == "object":
        return members(value, schema, whole, where)
    return []


def members(value: dict[str, Any], schema: Any, whole: Any, where: str) -> list[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    found = [f"{where}: {name} is missing" for name in set(schema.get("required", ())) - set(value)]
    for name, member in value.items():
        if name in known:
            found += misfits(member, known[name], whole, f"{where}.{name}")
        elif more is None and known:
            found.append(f"{where}: {name} is not in the schema")
        elif more is not None:
            found += misfits(member, more, whole, f"{where}.{name}")
    return found


def test_the_document_is_openapi_with_every_reference_defined(client: Client) -> None:
    document = client.json("/openapi.json")
    assert document["openapi"] == "3.1.0"
    assert {"title", "version"} <= set(document["info"])
    schemas = document["components"]["schemas"]
    references = set(
        re.findall(
            r'"\$ref":"#/components/schemas/([^"]+)"', client.get("/openapi.json").raw.decode()
        )
    )
    assert references
    assert references <= set(schemas)
    operations = [op for path in document["paths"].values() for op in path.values()]
    ids = [op["operationId"] for op in operations]
    assert len(ids) == len(set(ids))
    for operation in operations:
        assert operation["summary"]
        assert any(code.startswith("2") for code in operation["responses"])
        assert "default" in operation["responses"]


def test_the_document_names_exactly_the_served_routes_and_their_variables(client: Client) -> None:
    document = client.json("/openapi.json")
    named = {(m.upper(), p) for p, item in document["paths"].items() for m in item}
    assert named == {(r.method, re.sub(r":(\w+)", r"{\1}", r.path)) for r in ROUTES}
    for path, item in document["paths"].items():
        for operation in item.values():
            given = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
            assert given == set(re.findall(r"{(\w+)}", path))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real checkpoint of an operator whose id is that of the sample."""
    env = StreamExecutionEnvironment()
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    keyed = env.from_collection([], pair).key_by(lambda row: row[0], Types.STRING())
    collect(keyed.process(Count(), pair).set_uid_hash(COUNT))
    options = HarnessOptions(storage=LocalStorage(str(tmp_path_factory.mktemp("stored"))))
    harness = JobHarness(env.build_graph(), 2, options).start()
    harness.run_epoch(some_words(1))
    number = harness.checkpoint()
    entry = harness.control.history().find(number)
    assert entry is not None
    assert entry.path is not None
    return entry.path


@pytest.fixture
def whole(server: RestServer, job: ManualJob, stored: str, tmp_path: Path) -> ManualJob:
    """The sample, with logs and a checkpoint that are there, on a server that starts programs."""
    log = tmp_path / "slot-0-attempt-0.log"
    log.write_text("ready")
    job.log_files.append(LogFile(log.name, 0, 5, 1, log))
    entries = [
        replace(entry, path=stored) if entry.checkpoint_id == 2 else entry
        for entry in job.checkpoints.entries
    ]
    job.checkpoints = replace(job.checkpoints, entries=tuple(entries))
    started: Future[str] = Future()
    started.set_result("f" * 32)
    server.cluster.start_again = lambda *_: started  # type: ignore[method-assign]
    return job


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_every_answer_fits_its_schema(client: Client, job: ManualJob, route: Any) -> None:
    client.request("POST", f"/jobs/{JOB_ID}/start-again", BODIES["/jobs/:jobid/start-again"])
    for path in ("savepoints", "checkpoints"):
        client.request("POST", f"/jobs/{JOB_ID}/{path}", {"triggerId": TRIGGER})
    client.request("POST", "/savepoint-disposal", BODIES["/savepoint-disposal"])
    path = re.sub(r":(\w+)", lambda match: VALUES[match[1]], route.path)
    if route.path.endswith("/rescaling/:triggerid"):
        answer = client.request("PATCH", f"/jobs/{JOB_ID}/rescaling?parallelism=3")
        path = path.replace(TRIGGER, answer.json["request-id"])
    body = BODIES.get(route.path, {}) if route.body is not None else None
    answer = client.request(route.method, path + QUERIES.get(route.path, ""), body)
    document = client.json("/openapi.json")
    template = re.sub(r":(\w+)", r"{\1}", route.path)
    responses = document["paths"][template][route.method.lower()]["responses"]
    assert str(answer.status) in responses, answer.raw
    (media,) = responses[str(answer.status)]["content"]
    assert answer.headers["Content-Type"].startswith(media)
    if media == "application/json":
        schema = responses[str(answer.status)]["content"][media]["schema"]
        assert misfits(answer.json, schema, document) == []


def test_the_check_of_schemas_can_fail(client: Client) -> None:
    document = client.json("/openapi.json")
    schema = document["components"]["schemas"]["JobIds"]
    assert misfits({"jobs": []}, schema, document) == []
    assert misfits({}, schema, document)
    assert misfits({"jobs": [], "more": 1}, schema, document)
    assert misfits({"jobs": [{"id": "x", "status": "RUNNING"}]}, schema, document)
    assert misfits({"jobs": [{"id": JOB_ID, "status": "ASLEEP"}]}, schema, document)


def test_an_error_fits_the_schema_of_errors(client: Client) -> None:
    document = client.json("/openapi.json")
    schema = document["paths"]["/jobs"]["get"]["responses"]["default"]["content"]
    answer = client.get("/nowhere").json
    assert misfits(answer, schema["application/json"]["schema"], document) == []
