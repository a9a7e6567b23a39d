"""State over REST and on the command line, of a real job in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli import jobs
from tests.harness.programs import environment, started
from tests.harness.querying import KEYS, expected, job_of, queries_of
from tests.unit.rest.client import Client

from weir.common.typeinfo import Types
from weir.datastream import KeyedProcessFunction
from weir.datastream.state import ListStateDescriptor
from weir.rest import RestServer
from weir.testing.harness import JobHarness, collect
from weir.testing.manual_job import ManualJob, serve

STATE_TOKEN = "state-only"


def invoke(*arguments: str, code: int = 0) -> Any:
    result = jobs.invoke(*arguments)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def job() -> JobHarness:
    made = job_of(60)
    made.run_epoch(take=50, checkpoint=True)
    made.run_epoch(take=5)
    return made


@pytest.fixture
def manual(job: JobHarness) -> ManualJob:
    made = ManualJob("counting", job_id=str(job.job_id))
    made.queries = queries_of(job)
    return made


@pytest.fixture
def server(manual: ManualJob, tmp_path: Path) -> Iterator[RestServer]:
    with serve(manual, tmp_path) as made:
        made.state_token = STATE_TOKEN
        yield made


@pytest.fixture
def client(server: RestServer) -> Client:
    return Client(server.url, STATE_TOKEN)


@pytest.fixture
def path(job: JobHarness) -> str:
    return f"/jobs/{job.job_id}/state"


@pytest.fixture(scope="module")
def large() -> JobHarness:
    """2,500 keys, and one list of all numbers."""
    env = environment()
    numbers = env.from_sequence(1, 2500).uid("numbers")
    numbers.key_by(lambda n: n, Types.LONG()).as_queryable_state("each")
    collect(numbers.key_by(lambda n: 7, Types.LONG()).process(Listed()).uid("listed"))
    made = started(env)
    made.run_epoch(checkpoint=True)
    return made


class Listed(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        descriptor = ListStateDescriptor("all", Types.LONG())
        descriptor.set_queryable("all")
        self.all = runtime_context.get_list_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.all.add(value)
        yield value


@pytest.mark.parametrize("level", ["live", "committed"])
def test_rows_are_never_left_out_in_silence(large: JobHarness, tmp_path: Path, level: str) -> None:
    manual = ManualJob("counting", job_id=str(large.job_id))
    manual.queries = queries_of(large)
    with serve(manual, tmp_path) as server:
        client, path = Client(server.url, server.token), f"/jobs/{large.job_id}/state"

        def get(query: str) -> tuple[int, bool]:
            found = client.json(f"{path}/{query}&level={level}")
            return len(found["rows"]), found["truncated"]

        def post(name: str, body: dict[str, Any]) -> tuple[int, bool]:
            found = client.request("POST", f"{path}/{name}", {**body, "level": level}).json
            return len(found["rows"]), found["truncated"]

        keys = list(range(1, 2001))
        assert get("all?key=7") == post("all", {"keys": [7]}) == (2500, False)
        assert get("all?key=7&limit=10") == post("all", {"keys": [7], "limit": 10}) == (10, True)
        assert post("each", {"keys": keys}) == (2000, False)
        assert get("each?") == post("each", {}) == (1000, True)
        for limit, cut in ((2499, True), (2500, False), (5000, False)):
            shown = min(limit, 2500), cut
            assert get(f"each?limit={limit}") == post("each", {"limit": limit}) == shown
        assert get("each?low=2401") == (100, False)
        assert get("each?low=2401&limit=99") == (99, True)
        refused = client.request("POST", f"{path}/each", {"limit": 100_001})
        assert refused.status == 400
        assert "limit is 100001, expected 1 to 100000" in refused.errors[0]
        manual_id = str(large.job_id)
        found = json.loads(
            invoke("state", "get", manual_id, "each", "--limit", "2400", "--json").stdout
        )
        assert (len(found["rows"]), found["truncated"]) == (2400, True)


def test_states_are_listed(client: Client, path: str) -> None:
    states = {state["name"]: state for state in client.json(path)["states"]}
    assert states["q-parity"]["kind"] == "MapState"
    assert states["q-parity"]["columns"] == ["key_group", "key", "map_key", "value"]


def test_a_key_is_asked_for_in_the_query(client: Client, path: str) -> None:
    live = client.json(f"{path}/q-total?key=3")
    assert [row["value"] for row in live["rows"]] == [expected(range(1, 56), 3)["total"]]
    assert (live["level"], live["checkpoint-id"], live["age-ms"]) == ("live", 1, 0)
    old = client.json(f"{path}/q-total?key=3&level=committed")
    assert [row["value"] for row in old["rows"]] == [expected(range(1, 51), 3)["total"]]
    assert client.json(f"{path}/q-total?key=99")["rows"] == []


def test_many_keys_and_ranges_are_asked_for(client: Client, path: str) -> None:
    body = {"keys": [1, 2], "level": "committed"}
    found = client.request("POST", f"{path}/everything.total", body).json
    assert sorted(row["key"] for row in found["rows"]) == [1, 2]
    ranged = client.json(f"{path}/q-total?low=2&limit=2")
    assert [row["key"] for row in ranged["rows"]] == [2, 3]
    typed = client.request("POST", f"{path}/q-total", {"key-texts": ["4"]}).json
    assert [row["key"] for row in typed["rows"]] == [4]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"keys": [1], "low": 2}, "Keys and low do not go together"),
        ({"namespace": [0, 10]}, "has no namespaces"),
    ],
)
def test_what_a_body_asks_for_is_never_passed_over(
    client: Client, path: str, body: dict[str, Any], says: str
) -> None:
    answer = client.request("POST", f"{path}/q-total", body)
    assert answer.status == 400
    assert says in answer.errors[0]


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("nothing?key=1", 404, "UnknownKvStateLocation"),
        ("q-total?key=x", 400, "is no key of"),
        ("q-total?key=1&level=x", 400, "level is 'x'"),
        ("q-total?limit=x", 400, "limit is 'x'"),
        ("q-total?prefix=x", 400, "only texts have a prefix"),
        ("q-total?key=1&prefix=x", 400, "Keys and prefix do not go together"),
        ("q-total?namespace=[0,10]", 400, "has no namespaces"),
        ("q-total?key=1&namespace=[0,10]", 400, "has no namespaces"),
        ("q-total?namespace=x", 400, "namespace is 'x', expected JSON"),
        ("..%2F..%2Fetc", 404, "UnknownKvStateLocation"),
    ],
)
def test_what_cannot_be_answered_is_told(
    client: Client, path: str, query: str, status: int, says: str
) -> None:
    answer = client.get(f"{path}/{query}")
    assert answer.status == status
    assert says in answer.errors[0]


def test_the_token_of_state_is_good_for_state_alone(
    server: RestServer, manual: ManualJob, path: str
) -> None:
    reader, owner = Client(server.url, STATE_TOKEN), Client(server.url, server.token)
    assert reader.get(path).status == owner.get(path).status == 200
    for forbidden in ("/jobs", f"/jobs/{manual.job_id}", "/config"):
        assert reader.get(forbidden).status == 403
        assert owner.get(forbidden).status == 200
    assert reader.request("PATCH", f"/jobs/{manual.job_id}?mode=cancel").status == 403
    assert manual.calls == []
    assert Client(server.url, "wrong").get(path).status == 401


def test_state_needs_a_token_where_jobs_need_none(
    manual: ManualJob, tmp_path: Path, path: str
) -> None:
    with serve(manual, tmp_path, token="none") as server:
        server.state_token = STATE_TOKEN
        assert Client(server.url, None).get("/jobs").status == 200
        assert Client(server.url, None).get(path).status == 401
        assert Client(server.url, STATE_TOKEN).get(path).status == 200


def test_state_is_not_shown_unless_switched_on(
    server: RestServer, manual: ManualJob, client: Client, path: str
) -> None:
    manual.queries = None
    answer = client.get(path)
    assert answer.status == 403
    assert "queryable-state.enable" in answer.errors[0]


def test_the_command_prints_states_keys_and_ranges(server: RestServer, manual: ManualJob) -> None:
    listed = invoke("state", "get", manual.job_id)
    assert "q-total" in listed.stdout
    one = invoke("state", "get", "counting", "q-total", "3")
    total = expected(range(1, 56), 3)["total"]
    assert one.stdout.splitlines()[1].split()[1:] == ["3", str(total)]
    assert re.search(r"^1 row, live, epoch \d+, last checkpoint 1, 0 ms old$", one.stdout, re.M)
    few = invoke("state", "get", "counting", "q-total", "--limit", "2")
    assert "There are more rows: raise --limit" in few.stdout
    assert "more rows" not in invoke("state", "get", "counting", "q-total").stdout
    found = json.loads(
        invoke("state", "get", manual.job_id, "q-total", "1", "2", "--committed", "--json").stdout
    )
    assert (found["level"], len(found["rows"])) == ("committed", 2)
    every = json.loads(invoke("state", "get", manual.job_id, "q-total", "--json").stdout)
    assert [row["key"] for row in every["rows"]] == list(range(KEYS))


def test_the_command_says_what_is_wrong(server: RestServer, manual: ManualJob) -> None:
    unknown = invoke("state", "get", manual.job_id, "nothing", "1", code=2)
    assert "UnknownKvStateLocation" in unknown.stderr
    both = invoke("state", "get", manual.job_id, "q-total", "1", "--prefix", "a", code=2)
    assert "do not go together" in both.stderr
    old = invoke("state", "get", "counting", "q-total", "1", "--committed", "--max-age", "0")
    assert re.search(r"^1 row of checkpoint 1, epoch \d+, [\d,]+ ms old$", old.stdout, re.M)
    many = invoke("state", "get", "counting", "q-total", "--limit", "100001", code=2)
    assert "limit is 100001, expected 1 to 100000: ask for ranges" in many.stderr
