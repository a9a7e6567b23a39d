"""The dashboard and the alerts name metrics and labels that a job has."""

import json
import re
from pathlib import Path

import yaml
from tests.unit.rest.samples import sample_history, sample_view
from tests.unit.rest.test_metrics import parsed

from weir.rest.metrics import prometheus

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "operating" / "prometheus"
METRIC = re.compile(r"\b(?:weir|flink)_[a-zA-Z_]+")
SELECTOR = re.compile(r"((?:weir|flink)_[a-zA-Z_]+)\{([^}]*)\}")
GROUPED = re.compile(r"by \(([^)]*)\)")


def expressions() -> dict[str, str]:
    board = json.loads((FOLDER / "dashboard.json").read_text())
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    return found | {rule["alert"]: rule["expr"] for rule in rules}


def known() -> dict[str, set[str]]:
    """Return the labels of every metric that a job with everything to show has."""
    view = sample_view()
    _, samples = parsed(prometheus([(view, sample_history())]))
    return {name: {key for labels, _ in found for key in labels} for name, found in samples.items()}


def test_every_metric_that_is_named_exists_with_its_labels() -> None:
    metrics = known()
    wrong = []
    for where, expression in expressions().items():
        wrong += [f"{where}: {x}" for x in METRIC.findall(expression) if x not in metrics]
        for name, selector in SELECTOR.findall(expression):
            labels = set(re.findall(r"(\w+)\s*[=!]", selector))
            wrong += [f"{where}: {name} has no {x}" for x in labels - metrics.get(name, set())]
        named = {label for name in METRIC.findall(expression) for label in metrics.get(name, ())}
        for group in GROUPED.findall(expression):
            labels = {label.strip() for label in group.split(",")}
            wrong += [f"{where}: nothing to group by {x}" for x in labels - named]
    assert wrong == []


def test_the_check_can_fail() -> None:
    assert METRIC.findall("rate(weir_no_such_total[1m])") == ["weir_no_such_total"]
    assert "weir_no_such_total" not in known()


def test_panels_do_not_lie_on_each_other() -> None:
    board = json.loads((FOLDER / "dashboard.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
