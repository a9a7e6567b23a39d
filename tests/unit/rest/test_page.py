"""The page and what it asks for: files without secrets, a policy, and answers for every view."""

import gzip
import hashlib
import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.rest.client import Client
from tests.unit.rest.samples import COUNT, JOB_ID, SOURCE, START

import weir.rest
from weir.jobmanager.backlog import Backlog, SourceBacklog
from weir.jobmanager.logs import LogFile
from weir.jobmanager.operations import ExceptionView
from weir.jobmanager.timeline import Event, Point, SlotPoint, TimelineView
from weir.rest import RestServer
from weir.rest.assets import assets, page_link
from weir.testing.manual_job import ManualJob

STATIC = Path(weir.rest.__file__).with_name("static")
OWN = sorted(path for path in STATIC.glob("*") if path.is_file())
SLOT = f"{JOB_ID[:8]}-0"


def bare(server: RestServer) -> Client:
    return Client(server.url)


# ---- the files ---------------------------------------------------------------------------------


def test_the_page_needs_no_token_and_names_what_it_may_load(server: RestServer) -> None:
    answer = bare(server).get("/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert not [name for name in answer.headers if name.lower() == "set-cookie"]
    assert server.token is not None
    assert server.token.encode() not in answer.raw


def test_all_its_files_are_there_with_their_media(server: RestServer) -> None:
    for path, asset in assets().items():
        answer = bare(server).get(path)
        assert (answer.status, answer.headers["Content-Type"]) == (200, asset.media)
        assert answer.raw == asset.data


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static//app.js",
        "/static/vendor/LICENSES.txt",
        "/index.html",
    ],
)
def test_nothing_else_is_served_by_name(server: RestServer, client: Client, path: str) -> None:
    assert bare(server).get(path).status == 401
    assert client.get(path).status == 404


def test_a_file_that_has_not_changed_is_not_sent_again(server: RestServer) -> None:
    first = bare(server).get("/static/app.js")
    again = bare(server).get("/static/app.js", **{"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.raw) == (304, b"")
    assert bare(server).get("/static/app.js", **{"If-None-Match": '"x"'}).status == 200


def test_files_travel_compressed_to_whom_wants_that(server: RestServer) -> None:
    plain = bare(server).get("/static/app.js")
    packed = bare(server).get("/static/app.js", **{"Accept-Encoding": "gzip, br"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.raw) == plain.raw
    assert len(packed.raw) < len(plain.raw)


def test_a_strangers_page_gets_not_even_the_files(server: RestServer) -> None:
    assert bare(server).get("/", Origin="http://evil.example").status == 403
    assert bare(server).get("/", Host="evil.example").status == 403


def test_only_reading_is_possible(server: RestServer, client: Client) -> None:
    assert bare(server).request("POST", "/").status == 401
    assert client.request("POST", "/").status == 404
    assert bare(server).request("HEAD", "/").raw == b""


def test_every_file_that_the_page_names_exists() -> None:
    named = set(re.findall(r'(?:src|href)="([^"]+)"', (STATIC / "index.html").read_text()))
    for path in STATIC.glob("*.js"):
        imported = re.findall(r'^(?:import|export) [^;]*?from "([^"]+)";', path.read_text(), re.M)
        named |= {"static/" + name.removeprefix("./") for name in imported}
    assert len(named) > 15
    assert {f"/{name}" for name in named} <= set(assets())


@pytest.mark.parametrize("path", OWN, ids=lambda p: p.name)
def test_text_stays_text_and_nothing_comes_from_elsewhere(path: Path) -> None:
    text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
    assert not re.search(forbidden + "|dangerouslySet|localStorage|document\\.cookie", text)
    assert not re.search(r"[\"'(]\s*(https?:)?//[\w.]", text)


def test_inline_scripts_and_styles_which_the_policy_forbids_are_not_tried() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", page)


def test_foreign_files_are_those_that_were_reviewed() -> None:
    table = json.loads((STATIC / "vendor" / "vendored.json").read_text())
    files = {p.name for p in (STATIC / "vendor").iterdir()} - {"vendored.json", "LICENSES.txt"}
    assert {row["file"] for row in table} == files
    licences = (STATIC / "vendor" / "LICENSES.txt").read_text()
    for row in table:
        data = (STATIC / "vendor" / row["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == row["sha256"], row["file"]
        assert f"{row['package']} {row['version']}" in licences


def test_the_link_has_the_token_behind_the_hash() -> None:
    link = page_link("http://localhost:1", "a/b", "0" * 32)
    assert link == f"http://localhost:1/#/jobs/{'0' * 32}?token=a/b"
    assert page_link("http://localhost:1", None) == "http://localhost:1/#/"


# ---- what the views ask for --------------------------------------------------------------------


def test_the_server_of_a_job_knows_no_other_jobs(client: Client) -> None:
    assert client.json("/page") == {"host": False, "elsewhere": [], "programs": {}}
    body = {"savepoint-path": "file:///s"}
    refused = client.request("POST", f"/jobs/{JOB_ID}/start-again", body)
    assert refused.status == 409
    assert "weir page" in refused.errors[0]


def test_a_job_over_time_is_columns(client: Client, job: ManualJob) -> None:
    points = (
        Point(START + 1_000, 1_000, 50, 5, 2, 30, 20, 7, 100, 12, (SlotPoint(0, 9, 0.5, 0.25),)),
        Point(START + 3_000, 2_000, 50, 5, 0, slots=(SlotPoint(1, 8, 0.0, 0.0),)),
    )
    job.times = TimelineView(points, points[1:], (Event(START, "restart", "attempt 1"),))
    answer = client.json(f"/jobs/{JOB_ID}/timeline")
    recent = answer["recent"]
    assert recent["at"] == [START + 1_000, START + 3_000]
    assert recent["records-in-rate"] == [50.0, 25.0]
    assert recent["epoch-duration"] == [30, None]
    assert recent["slots"] == [
        {"subtask": 0, "memory-bytes": [9, None], "cpu": [0.5, None], "busy": [0.25, None]},
        {"subtask": 1, "memory-bytes": [None, 8], "cpu": [None, 0.0], "busy": [None, 0.0]},
    ]
    assert len(answer["whole"]["at"]) == 1
    assert answer["events"] == [{"at": START, "kind": "restart", "text": "attempt 1"}]


def test_sources_tell_how_far_they_are(client: Client, job: ManualJob) -> None:
    assert client.json(f"/jobs/{JOB_ID}/sources") == {"sources": [], "steps": {}}
    kafka = SourceBacklog("Kafka", 5, 2.5, 3.5, "1", "9", 8)
    job.backlog = Backlog((kafka,), {"addBatch": 40, "triggerExecution": 52})
    answer = client.json(f"/jobs/{JOB_ID}/sources")
    (source,) = answer["sources"]
    assert (source["behind"], source["handled-per-second"]) == (8, 3.5)
    assert answer["steps"] == {"addBatch": 40, "triggerExecution": 52}


def test_a_job_tells_watermarks_of_operators_and_whether_it_takes_queries(
    client: Client, job: ManualJob
) -> None:
    source, count = job.view().vertices
    job.change(vertices=(source, replace(count, watermark=1_000)))
    answer = client.json(f"/jobs/{JOB_ID}")
    assert [vertex["watermark"] for vertex in answer["vertices"]] == [None, 1_000]
    assert answer["queries"] is True
    job.queries = None
    assert client.json(f"/jobs/{JOB_ID}")["queries"] is False


def test_failures_name_operator_record_and_the_users_traceback(
    client: Client, job: ManualJob
) -> None:
    raised = ExceptionView(
        START + 9_000, "UserFunctionError", "all", 1, "Count", "('a', 1)", "Traceback …"
    )
    job.change(exceptions=(raised,))
    (entry,) = client.json(f"/jobs/{JOB_ID}/exceptions")["exceptionHistory"]["entries"]
    assert (entry["taskName"], entry["record"]) == ("Count", "('a', 1)")
    assert entry["userTraceback"] == "Traceback …"


def test_settings_tell_where_they_were_set(client: Client, job: ManualJob) -> None:
    job.change(origins={"parallelism.default": "the command line"})
    assert client.json(f"/jobs/{JOB_ID}/config")["origins"] == {
        "parallelism.default": "the command line"
    }


def test_logs_of_a_slot_are_read_by_name_and_part(
    client: Client, job: ManualJob, tmp_path: Path
) -> None:
    for attempt in range(2):
        path = tmp_path / f"slot-0-attempt-{attempt}.log"
        path.write_bytes(f"log of {attempt}: é\n".encode())
        job.log_files.insert(0, LogFile(path.name, 0, path.stat().st_size, attempt, path))
    names = [log["name"] for log in client.json(f"/taskmanagers/{SLOT}/logs")["logs"]]
    assert names == ["slot-0-attempt-1.log", "slot-0-attempt-0.log"]
    assert client.get(f"/taskmanagers/{SLOT}/log").raw == "log of 1: é\n".encode()
    first = client.get(f"/taskmanagers/{SLOT}/logs/slot-0-attempt-0.log?start=4&size=2")
    assert first.raw == b"of"
    assert client.get(f"/taskmanagers/{SLOT}/log?start=-3").raw == "é\n".encode()
    assert first.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "query", ["start=x", "size=-1", "size=99999999999", "start=99999999999999999999"]
)
def test_a_part_that_makes_no_sense_is_refused(client: Client, query: str) -> None:
    assert client.get(f"/jobmanager/log?{query}").status == 400


@pytest.mark.parametrize(
    "name", ["slot-0-attempt-9.log", "..%2fsecret", "slot-0-attempt-0.log.old", "secret"]
)
def test_no_other_file_is_read(client: Client, job: ManualJob, name: str) -> None:
    assert client.get(f"/taskmanagers/{SLOT}/logs/{name}").status == 404
    assert client.get(f"/taskmanagers/{'f' * 8}-0/logs").status == 404
    assert client.get(f"/taskmanagers/{SLOT}/log").status == 404


def test_the_driver_shows_what_it_logged_since_it_listens(client: Client) -> None:
    logging.getLogger("weir.something").warning("mind the gap")
    text = client.get("/jobmanager/log").raw.decode()
    assert text.endswith("WARNING weir.something: mind the gap\n")
    (info,) = client.json("/jobmanager/logs")["logs"]
    assert info["size"] == len(text)
    assert client.get(f"/jobs/{JOB_ID}/driver-log").raw.decode() == text
    assert client.get(f"/jobs/{'f' * 32}/driver-log").status == 404
    last = client.get("/jobmanager/log?start=-4")
    assert (last.raw, last.headers["Weir-Start"]) == (b"gap\n", str(len(text) - 4))


def test_a_closed_server_listens_to_no_logger() -> None:
    before = list(logging.getLogger("weir").handlers)
    server = RestServer(ports=(0,))
    server.start()
    server.close()
    assert logging.getLogger("weir").handlers == before


def test_threads_are_told_for_driver_and_slots(client: Client) -> None:
    for path in ("/jobmanager/thread-dump", f"/taskmanagers/{SLOT}/thread-dump"):
        infos = client.json(path)["threadInfos"]
        assert any("MainThread" in info["threadName"] for info in infos)
        assert all(info["stringifiedThreadInfo"] for info in infos)


def test_a_flame_graph_is_a_tree_whose_parts_add_up(client: Client) -> None:
    path = f"/jobs/{JOB_ID}/vertices/{COUNT}/flamegraph?subtaskindex=1&duration=50"
    root = client.json(path)["data"]
    assert root["value"] > 0

    def check(node: dict) -> None:
        assert sum(child["value"] for child in node["children"]) <= node["value"]
        for child in node["children"]:
            check(child)

    check(root)
    assert sum(child["value"] for child in root["children"]) == root["value"]
    assert client.get(path.replace(COUNT, SOURCE)).status == 409
    assert client.get(path.replace("=1", "=2", 1)).status == 400


@pytest.mark.parametrize(("number", "why"), [(1, "deleted"), (3, "FAILED"), (4, "IN_PROGRESS")])
def test_a_checkpoint_that_is_not_there_has_no_state(client: Client, number: int, why: str) -> None:
    answer = client.get(f"/jobs/{JOB_ID}/checkpoints/details/{number}/contents")
    assert answer.status == 409
    assert why in answer.errors[0]
