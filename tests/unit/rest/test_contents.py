"""State in checkpoints over REST: described, spread, read and compared, and never unpickled."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from tests.live_job import counting, some_words
from tests.unit.rest.client import Client

from weir.backend.factory import BackendSettings
from weir.checkpoint.settings import CheckpointSettings, Retention
from weir.rest import RestServer
from weir.storage.local import LocalStorage
from weir.testing.harness import HarnessOptions, JobHarness


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A job with two checkpoints, which nothing deletes."""
    folder = tmp_path_factory.mktemp("state")
    kept = CheckpointSettings(num_retained=2, retention=Retention.RETAIN_ON_CANCELLATION)
    options = HarnessOptions(storage=LocalStorage(str(folder)), checkpoints=kept)
    job = JobHarness(counting().build_graph("words"), 2, options).start()
    job.run_epoch(some_words(1))
    first = job.checkpoint()
    job.run_epoch([("new", 1), ("one", 2)])
    second = job.checkpoint()
    operator = next(op.id for op in job.plan.operators if op.uid == "count")
    return SimpleNamespace(job=job, first=first, second=second, operator=operator, folder=folder)


@pytest.fixture
def asked(counted: SimpleNamespace) -> Iterator[Client]:
    server = RestServer(ports=(0,))
    server.register(counted.job.control)
    server.start()
    yield Client(server.url, server.token)
    server.close()


def checkpoints(counted: SimpleNamespace) -> str:
    return f"/jobs/{counted.job.job_id}/checkpoints"


def contents(counted: SimpleNamespace, number: int) -> str:
    return f"{checkpoints(counted)}/details/{number}/contents"


def test_operators_know_their_states_once_a_checkpoint_told_them(counted, asked) -> None:
    vertices = asked.json(f"/jobs/{counted.job.job_id}")["vertices"]
    assert {v["uid"]: v["states"] for v in vertices if v["uid"]}["count"] == ["last", "total"]


def test_a_checkpoint_is_described(counted, asked) -> None:
    found = asked.json(contents(counted, counted.second))
    (operator,) = [op for op in found["operators"] if op["id"] == counted.operator]
    states = {s["name"]: s for s in operator["states"]}
    assert states["total"]["entries"] == 9
    assert states["total"]["types"]["value"] == "LONG"
    assert found["sources"][0]["uid"] == "words"
    assert found["problems"] == []


def test_entries_are_spread_over_key_groups(counted, asked) -> None:
    path = f"{contents(counted, counted.second)}/{counted.operator}/key-groups?state=total"
    answer = asked.json(path)
    assert answer["max-parallelism"] == 128
    assert sum(group["entries"] for group in answer["groups"]) == 9
    assert answer["changes"] is False
    assert all(0 <= group["group"] < 128 for group in answer["groups"])


def test_rows_are_the_first_ones_or_those_of_a_key(counted, asked) -> None:
    path = f"{contents(counted, counted.second)}/{counted.operator}/rows?state=total"
    answer = asked.json(f"{path}&limit=3")
    assert (len(answer["rows"]), answer["more"]) == (3, True)
    found = asked.json(f"{path}&key=new")
    assert found["columns"][1:] == ["key", "value"]
    assert [row[1:] for row in found["rows"]] == [["new", "1"]]
    assert asked.json(f"{path}&key=never")["rows"] == []


def test_two_checkpoints_are_compared(counted, asked) -> None:
    path = f"{checkpoints(counted)}/diff?from={counted.first}&to={counted.second}"
    states = {s["state"]: s for s in asked.json(path)["states"] if s["operator"] == "count"}
    assert (states["total"]["added"], states["total"]["changed"]) == (1, 1)
    assert states["total"]["same"] == 7
    assert {x["what"] for x in states["total"]["examples"]} == {"added", "changed"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("details/99/contents", 404),
        ("details/{n}/contents/{op}/rows", 400),
        ("details/{n}/contents/{op}/rows?state=nothing", 400),
        ("details/{n}/contents/{op}/rows?state=total&limit=0", 400),
        ("details/{n}/contents/{op}/rows?state=total&limit=1001", 400),
        ("details/{n}/contents/{op}/key-groups?state=nothing", 400),
        ("details/{n}/contents/ffffffffffffffffffffffffffffffff/rows?state=total", 400),
        ("diff?from=1&to=99", 404),
        ("diff?from=x&to=1", 400),
    ],
)
def test_what_is_not_there_is_refused(counted, asked, path: str, status: int) -> None:
    filled = path.format(n=counted.second, op=counted.operator)
    answer = asked.get(f"{checkpoints(counted)}/{filled}")
    assert answer.status == status
    assert answer.errors


def test_a_file_of_a_chain_is_held_by_all_that_refer_to_it(tmp_path) -> None:
    kept = CheckpointSettings(num_retained=3, retention=Retention.RETAIN_ON_CANCELLATION)
    options = HarnessOptions(
        storage=LocalStorage(str(tmp_path)),
        checkpoints=kept,
        backend=BackendSettings(incremental=True),
    )
    job = JobHarness(counting().build_graph("words"), 2, options).start()
    # Much at first, which later checkpoints refer to, and then little.
    for words in (2_000, 5, 5):
        job.run_epoch([(f"word {number}", number) for number in range(words)])
        job.checkpoint()
    server = RestServer(ports=(0,))
    server.register(job.control)
    server.start()
    client, place = Client(server.url, server.token), f"/jobs/{job.job_id}/checkpoints"
    found = client.json(f"{place}/files")
    operator = next(op.id for op in job.plan.operators if op.uid == "count")
    spread = client.json(f"{place}/details/3/contents/{operator}/key-groups?state=total")
    server.close()
    assert spread["changes"] is True
    assert (found["checkpoints"], found["left-out"], found["problems"]) == ([3, 2, 1], 0, [])
    chained = [file for file in found["files"] if file["checkpoints"] == [3, 2, 1]]
    assert chained
    assert all((tmp_path / file["path"].removeprefix(f"file://{tmp_path}/")).exists()
               for file in found["files"])  # fmt: skip
    assert found["shared-bytes"] == sum(
        file["bytes"] for file in found["files"] if len(file["checkpoints"]) > 1
    )


@pytest.fixture
def damaged(counted) -> Iterator[None]:
    """The metadata of the first checkpoint is cut for a while."""
    metadata = next(counted.folder.rglob(f"chk-{counted.first}/_metadata"))
    whole = metadata.read_bytes()
    metadata.write_bytes(whole[:20])
    yield
    metadata.write_bytes(whole)


@pytest.mark.usefixtures("damaged")
def test_a_checkpoint_that_is_damaged_holds_nothing_and_is_told(counted, asked) -> None:
    found = asked.json(f"{checkpoints(counted)}/files")
    (problem,) = found["problems"]
    assert problem.startswith(f"checkpoint {counted.first}: ")
    assert all(counted.first not in file["checkpoints"] for file in found["files"])
