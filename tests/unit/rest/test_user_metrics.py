"""Metrics of user functions: Flink's ids in REST, Flink's names and labels for Prometheus."""

import logging
from dataclasses import replace

import pytest
from tests.unit.rest.client import Client
from tests.unit.rest.samples import COUNT, JOB_ID, SOURCE, sample_view
from tests.unit.rest.test_metrics import page

from weir import notices
from weir.metrics import Scope
from weir.rest.metrics import FAMILIES
from weir.runtime.metrics import SubtaskMetric
from weir.testing.manual_job import ManualJob

VERTEX = f"/jobs/{JOB_ID}/vertices/{COUNT}"
TENANT = Scope(("words", "tenant", "blue sky"), ("words", "tenant"), (("tenant", "blue sky"),))
PREFIX = "flink_taskmanager_job_task_operator_"
NAME = 'Count "words"\\'


def show(job: ManualJob, *metrics: SubtaskMetric) -> None:
    """Let the function of the counting operator have metrics."""
    source, count = sample_view().vertices
    job.change(vertices=(source, replace(count, metrics=metrics)))


@pytest.fixture(autouse=True)
def _metrics(job: ManualJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_said", set())
    show(
        job,
        SubtaskMetric(0, Scope(), "seen", 3),
        SubtaskMetric(0, TENANT, "late", 1),
        SubtaskMetric(0, Scope(), "mode", "fast"),
        SubtaskMetric(1, Scope(), "seen", 5),
        SubtaskMetric(1, Scope(), "on", True),
        SubtaskMetric(1, Scope(), "rate", 0.5),
    )


def ids(client: Client, path: str) -> list[str]:
    return [metric["id"] for metric in client.json(path)]


def test_metrics_of_an_operator_are_listed_by_subtask(client: Client) -> None:
    name = 'Count_"words"\\'
    assert ids(client, f"{VERTEX}/metrics") == [
        "0.currentInputWatermark",
        f"0.{name}.seen",
        f"0.{name}.words.tenant.blue_sky.late",
        f"0.{name}.mode",
        f"1.{name}.seen",
        f"1.{name}.on",
        f"1.{name}.rate",
    ]
    wanted = "0.Count_%22words%22%5C.mode,1.Count_%22words%22%5C.on,unknown"
    assert client.json(f"{VERTEX}/metrics?get={wanted}") == [
        {"id": f"0.{name}.mode", "value": "fast"},
        {"id": f"1.{name}.on", "value": "true"},
    ]


def test_metrics_of_one_subtask_have_no_number_in_front(client: Client) -> None:
    name = 'Count_"words"\\'
    path = f"{VERTEX}/subtasks/1/metrics"
    assert ids(client, path) == [f"{name}.seen", f"{name}.on", f"{name}.rate"]
    assert client.json(f"{path}?get=Count_%22words%22%5C.seen") == [
        {"id": f"{name}.seen", "value": "5"}
    ]
    zero = f"{VERTEX}/subtasks/0/metrics?get=currentInputWatermark"
    assert client.json(zero) == [{"id": "currentInputWatermark", "value": "1000"}]


def test_a_subtask_that_is_not_there_is_not_found(client: Client) -> None:
    answer = client.get(f"{VERTEX}/subtasks/2/metrics")
    assert answer.status == 404
    assert f"Subtask 2 not found in vertex {COUNT}" in answer.raw.decode()


def test_numbers_are_aggregated_over_subtasks(client: Client) -> None:
    path, name = f"{VERTEX}/subtasks/metrics", 'Count_"words"\\.seen'
    assert name in ids(client, path)
    assert 'Count_"words"\\.mode' not in ids(client, path)
    assert client.json(f"{path}?get=Count_%22words%22%5C.seen") == [
        {"id": name, "min": 3.0, "max": 5.0, "avg": 4.0, "sum": 8.0}
    ]


def test_an_operator_without_a_slot_has_no_metrics(client: Client) -> None:
    assert client.json(f"/jobs/{JOB_ID}/vertices/{SOURCE}/metrics") == []


def test_a_long_operator_name_is_cut_as_in_flink(client: Client, job: ManualJob) -> None:
    show(job, SubtaskMetric(0, Scope(), "n", 1))
    source, count = job.current.vertices
    job.change(vertices=(source, replace(count, name="x" * 200)))
    assert f"0.{'x' * 80}.n" in ids(client, f"{VERTEX}/metrics")


def test_prometheus_sees_flinks_names_with_subtask_and_variables_as_labels(client: Client) -> None:
    kinds, samples = page(client)
    ours = {family.name for family in FAMILIES}
    mine = {name: kind for name, kind in kinds.items() if PREFIX in name and name not in ours}
    own = {name.removeprefix(PREFIX): kind for name, kind in mine.items()}
    assert own == dict.fromkeys(["on", "rate", "seen", "words_tenant_late"], "gauge")
    labels = {
        "job_id": JOB_ID,
        "job_name": 'words "today"\n',
        "operator_id": COUNT,
        "operator_name": NAME,
    }
    assert samples[PREFIX + "seen"] == [
        ({**labels, "subtask_index": "0"}, 3),
        ({**labels, "subtask_index": "1"}, 5),
    ]
    assert samples[PREFIX + "words_tenant_late"] == [
        ({**labels, "subtask_index": "0", "tenant": "blue sky"}, 1)
    ]
    assert [value for _, value in samples[PREFIX + "on"]] == [1]


def test_a_variable_cannot_take_the_place_of_another_label(client: Client, job: ManualJob) -> None:
    variables = (("job_id", "mine"), ("a.b", "1"), ("a_b", "2"), ("2nd", "3"), ("__name__", "4"))
    show(job, SubtaskMetric(0, Scope((), (), variables), "n", 1))
    ((labels, _),) = page(client)[1][PREFIX + "n"]
    assert labels["job_id"] == JOB_ID
    others = {key: value for key, value in labels.items() if value in {"mine", "1", "2", "3", "4"}}
    assert others == {
        "user_job_id": "mine",
        "a_b": "1",
        "user_a_b": "2",
        "user_2nd": "3",
        "user___name__": "4",
    }


def test_two_metrics_with_one_name_for_prometheus_are_said_and_shown_once(
    client: Client, job: ManualJob, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    show(job, SubtaskMetric(0, Scope(), "a b", 1), SubtaskMetric(0, Scope(), "a_b", 2))
    for _ in range(2):
        assert [value for _, value in page(client)[1][PREFIX + "a_b"]] == [1]
    assert caplog.text.count("one of them is left out") == 1


def test_a_metric_of_a_function_does_not_take_the_name_of_ours(
    client: Client, job: ManualJob, caplog: pytest.LogCaptureFixture
) -> None:
    show(job, SubtaskMetric(0, Scope(), "numRecordsIn", 99))
    with caplog.at_level(logging.WARNING):
        _, samples = page(client)
    assert [value for _, value in samples[f"{PREFIX}numRecordsIn"]] == [30, 20]
    assert "one of Weir's own" in caplog.text
