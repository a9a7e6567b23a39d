"""Checkpoint statistics with Flink's names, asked over a real socket."""

import pytest
from tests.unit.rest.client import Client
from tests.unit.rest.samples import COUNT, JOB_ID, SOURCE, START

from weir.checkpoint.settings import CheckpointingMode, CheckpointSettings, Retention
from weir.jobmanager.history import CheckpointEntry, HistoryView, SubtaskEntry
from weir.rest.checkpoint_routes import spread
from weir.testing.manual_job import ManualJob

CHECKPOINTS = f"/jobs/{JOB_ID}/checkpoints"


def test_counts_are_those_of_the_whole_life_of_the_job(client: Client) -> None:
    assert client.json(CHECKPOINTS)["counts"] == {
        "restored": 1,
        "total": 9,
        "in_progress": 1,
        "completed": 6,
        "failed": 2,
    }


def test_the_latest_of_each_kind_is_named(client: Client) -> None:
    latest = client.json(CHECKPOINTS)["latest"]
    assert latest["completed"]["id"] == 1
    assert latest["completed"]["discarded"] is True
    assert latest["savepoint"]["id"] == 2
    assert latest["savepoint"]["external_path"].startswith("file:///savepoints/savepoint-012345-")
    assert latest["failed"]["failure_message"] == "the disk is full"
    assert latest["failed"]["failure_timestamp"] == START + 4500
    assert latest["restored"] == {
        "id": 1,
        "restore_timestamp": START + 6000,
        "is_savepoint": False,
        "external_path": "file:///checkpoints/chk-1",
    }


def test_the_history_is_newest_first_and_has_no_details(client: Client) -> None:
    history = client.json(CHECKPOINTS)["history"]
    assert [entry["id"] for entry in history] == [4, 3, 2, 1]
    assert [entry["className"] for entry in history] == [
        "in_progress",
        "failed",
        "completed",
        "completed",
    ]
    assert [entry["checkpoint_type"] for entry in history] == [
        "CHECKPOINT",
        "CHECKPOINT",
        "SAVEPOINT",
        "UNALIGNED_CHECKPOINT",
    ]
    assert [entry["tasks"] for entry in history] == [{}] * 4
    savepoint = history[2]
    assert savepoint["savepointFormat"] == "CANONICAL"
    assert (savepoint["checkpointed_size"], savepoint["state_size"]) == (200, 600)
    assert savepoint["persisted_data"] == 7


def test_a_checkpoint_that_nobody_acknowledged_has_no_duration_yet(
    client: Client, job: ManualJob
) -> None:
    pending, failed = client.json(CHECKPOINTS)["history"][:2]
    assert pending["num_acknowledged_subtasks"] == 1
    assert (failed["latest_ack_timestamp"], failed["end_to_end_duration"]) == (-1, 500)


def test_the_summary_spreads_over_completed_checkpoints(client: Client) -> None:
    duration = client.json(CHECKPOINTS)["summary"]["end_to_end_duration"]
    assert (duration["min"], duration["max"], duration["avg"], duration["p50"]) == (40, 80, 60, 60)


def test_a_job_without_checkpoints_has_an_empty_summary(client: Client, job: ManualJob) -> None:
    job.checkpoints = type(job.checkpoints)()
    answer = client.json(CHECKPOINTS)
    assert answer["summary"]["state_size"]["p99"] == 0
    assert answer["latest"] == dict.fromkeys(("completed", "savepoint", "failed", "restored"))


@pytest.mark.parametrize(
    ("values", "p50", "p90"), [([], 0, 0), ([5], 5, 5), ([1, 2], 1.5, 2), (range(1, 10), 5, 9)]
)
def test_percentiles_are_interpolated(values: list[int], p50: float, p90: float) -> None:
    stats = spread(values)
    assert (stats.p50, stats.p90) == (p50, p90)


def test_details_tell_the_part_of_each_operator(client: Client) -> None:
    details = client.json(f"{CHECKPOINTS}/details/1")
    assert details["className"] == "completed"
    count, source = details["tasks"][COUNT], details["tasks"][SOURCE]
    assert (count["checkpointed_size"], count["num_acknowledged_subtasks"]) == (180, 2)
    assert count["latest_ack_timestamp"] == START + 2010
    assert count["end_to_end_duration"] == 1010
    assert (source["num_subtasks"], source["num_acknowledged_subtasks"]) == (2, 2)
    assert (
        client.json(f"{CHECKPOINTS}/details/4")["tasks"][SOURCE]["num_acknowledged_subtasks"] == 0
    )


def test_subtask_details_tell_phases_and_who_is_missing(client: Client) -> None:
    answer = client.json(f"{CHECKPOINTS}/details/4/subtasks/{COUNT}")
    first, second = answer["subtasks"]
    assert first["className"] == first["status"] == "completed"
    assert first["checkpoint"] == {"sync": 2, "async": 20}
    assert second == {"className": "pending", "index": 1, "status": "pending_or_failed"}
    assert answer["summary"]["checkpoint_duration"]["async"]["max"] == 20
    overtaken = client.json(f"{CHECKPOINTS}/details/1/subtasks/{COUNT}")["subtasks"][1]
    assert overtaken["unaligned_checkpoint"] is True
    assert overtaken["alignment"]["persisted"] == 7


@pytest.mark.parametrize("path", ["details/99", f"details/99/subtasks/{COUNT}"])
def test_a_checkpoint_that_is_not_remembered_is_not_found(client: Client, path: str) -> None:
    answer = client.get(f"{CHECKPOINTS}/{path}")
    assert answer.status == 404
    assert "99" in answer.errors[0]


def test_settings_have_flinks_words(client: Client, job: ManualJob) -> None:
    config = client.json(f"{CHECKPOINTS}/config")
    assert (config["mode"], config["interval"], config["timeout"]) == (
        "exactly_once",
        1000,
        600_000,
    )
    assert config["externalization"] == {"enabled": True, "delete_on_cancellation": False}
    assert config["state_backend"] == "HashMapStateBackend"
    assert config["tolerable_failed_checkpoints"] == 3
    job.change(
        checkpoint_settings=CheckpointSettings(
            mode=CheckpointingMode.AT_LEAST_ONCE, retention=Retention.DELETE_ON_CANCELLATION
        ),
        configuration={"state.changelog.enabled": "true"},
        checkpoint_dir=None,
    )
    config = client.json(f"{CHECKPOINTS}/config")
    assert (config["mode"], config["interval"]) == ("at_least_once", 2**63 - 1)
    assert config["externalization"] == {"enabled": True, "delete_on_cancellation": True}
    assert config["state_changelog_enabled"] is True
    assert config["checkpoint_storage"] == "JobManagerCheckpointStorage"


def test_states_have_their_sizes_checkpoint_after_checkpoint(
    client: Client, job: ManualJob
) -> None:
    def done(number: int, sizes: dict[str, int], reused: int) -> CheckpointEntry:
        acks = {
            i: SubtaskEntry(i, START, reused=reused, state_sizes={COUNT: sizes}) for i in range(2)
        }
        return CheckpointEntry(number, START + number, 2, status="COMPLETED", acks=acks, path="p")

    failed = CheckpointEntry(3, START + 3, 2, status="FAILED")
    job.checkpoints = HistoryView(
        3, 2, entries=(done(4, {"total": 7, "last": 3}, 5), failed, done(2, {"total": 5}, 0))
    )
    answer = client.json(f"{CHECKPOINTS}/state-sizes")
    assert (answer["at"], answer["checkpoints"]) == ([START + 2, START + 4], [2, 4])
    name = 'Count "words"\\'
    assert answer["states"] == [
        {"operator": COUNT, "name": name, "state": "last", "bytes": [None, 6]},
        {"operator": COUNT, "name": name, "state": "total", "bytes": [10, 14]},
    ]
    assert [c["reused_size"] for c in client.json(CHECKPOINTS)["history"]] == [10, 0, 0]
