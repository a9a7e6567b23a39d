"""Latency under Flink's name: how long records take from their source to each operator.

Flink sends markers through the stream, and leaves that off by default. Here it is known of every
epoch with input, of the last of which this tells quantiles: from the moment when it was decided
what to read until a subtask had handled all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.metrics_core import Metric

from weir.jobmanager.operations import JobView, VertexView

LATENCY: Final = (
    "flink_taskmanager_job_latency_source_id_operator_id_operator_subtask_index_latency"
)
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


def latency_summary(views: Iterable[JobView]) -> Metric:
    """Return the metric of all jobs."""
    metric = Metric(LATENCY, "Milliseconds from a source to an operator.", "summary")
    for view in views:
        for labels, values in _windows(view):
            for quantile in QUANTILES:
                value = at_quantile(values, quantile)
                metric.add_sample(LATENCY, {**labels, "quantile": f"{quantile:g}"}, value)
            metric.add_sample(f"{LATENCY}_count", labels, len(values))
    return metric


def at_quantile(values: Sequence[int], quantile: float) -> float:
    """Return the least value that so large a share of values does not exceed."""
    ordered = sorted(values)
    place = max(0, -(-round(quantile * 1000) * len(ordered) // 1000) - 1)
    return float(ordered[min(place, len(ordered) - 1)])


def _windows(view: JobView) -> Iterator[tuple[dict[str, str], Sequence[int]]]:
    vertices = {vertex.id: vertex for vertex in view.vertices}
    for arrivals in view.arrivals:
        for vertex in view.vertices:
            if vertex.level != arrivals.level or not arrivals.latencies_ms:
                continue
            if arrivals.subtask >= vertex.parallelism:
                continue
            for source in sorted(_sources(vertex, vertices)):
                yield (
                    {
                        "job_id": view.job_id,
                        "job_name": view.name,
                        "source_id": source,
                        "operator_id": vertex.id,
                        "operator_subtask_index": str(arrivals.subtask),
                    },
                    arrivals.latencies_ms,
                )


def _sources(vertex: VertexView, vertices: Mapping[str, VertexView]) -> set[str]:
    """Return the sources whose records reach an operator."""
    found, left = set(), [vertex.id]
    seen = set(left)
    while left:
        here = vertices[left.pop()]
        if not here.inputs:
            found.add(here.id)
        for sender, _ in here.inputs:
            if sender in vertices and sender not in seen:
                seen.add(sender)
                left.append(sender)
    return found
