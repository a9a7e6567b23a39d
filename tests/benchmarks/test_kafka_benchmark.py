"""The benchmark between topics: what runs say together, and how output is recounted."""

import json
import sys
from dataclasses import replace

import pytest
from benchmarks.contenders import kafka_java, kafka_rows
from benchmarks.kafka_contenders import AT_LEAST_ONCE, CONTENDERS, EXACTLY_ONCE, MODES
from benchmarks.kafka_report import (
    AIMS,
    Figures,
    Mark,
    Setting,
    line,
    of_json,
    of_rounds,
    ratios,
    render,
    steady_part,
    summary,
    to_json,
)
from benchmarks.kafka_topics import WrongValueError, checksum, expected, rows_of
from benchmarks.workloads.checksum import Checksum

from benchmarks import kafka_ends

SETTING = Setting("python -m benchmarks.kafka_ends", "2026-01-02", 3, 12, {"cores": "2"})


def speed(contender: str, number: int, fast: float, cheap: float, mode=EXACTLY_ONCE) -> Figures:
    made = Figures(contender, mode, "speed", number, rows=1_000_000)
    made.set_speed(Mark(0.0, 0, 0.0), Mark(1e6 / fast, 1_000_000, 1e6 / cheap))
    return made


def latency(contender: str, number: int, middle: float, mode=EXACTLY_ONCE) -> Figures:
    made = Figures(contender, mode, "latency", number)
    made.set_latency([middle + n for n in range(-50, 51)], 0.25)
    return made


RUNS = [
    *(speed("weir", n, fast, 80_000) for n, fast in enumerate((200_000, 240_000, 180_000), 1)),
    *(speed("pyflink", n, fast, 8_000) for n, fast in enumerate((9_000, 10_000, 10_000), 1)),
    *(speed("flink-java", n, 300_000, 200_000) for n in (1, 2, 3)),
    *(latency("weir", n, ms) for n, ms in enumerate((700, 600, 900), 1)),
    Figures("bytewax", AT_LEAST_ONCE, "speed", 1, error="wrong result"),
]


def verdicts(runs: list[Figures]) -> dict[tuple[str, str], str]:
    return {(a.below, a.name): a.verdict(runs)[1] for a in AIMS if a.bound is not None}


def test_the_steady_part_lies_between_steps_and_leaves_the_first_and_last_rows_out():
    marks = [Mark(float(n), rows, n / 2) for n, rows in enumerate((0, 200, 300, 600, 900, 1_000))]
    assert steady_part(marks, 1_000) == (marks[2], marks[4])


def test_a_steady_part_of_few_steps_ends_with_the_last_one():
    marks = [Mark(0.0, 0, 0.0), Mark(3.0, 500, 1.0), Mark(6.0, 1_000, 2.0)]
    assert steady_part(marks, 1_000) == (marks[1], marks[2])


@pytest.mark.parametrize("rows", [(), (0,), (0, 1_000)])
def test_one_step_says_nothing_of_speed(rows):
    assert steady_part([Mark(float(n), r, 0.0) for n, r in enumerate(rows)], 1_000) is None


def test_figures_of_a_steady_part_are_rows_by_time_and_by_cpu_time():
    found = Figures("weir", EXACTLY_ONCE, "speed")
    found.set_speed(Mark(10.0, 1_000, 4.0), Mark(12.0, 5_000, 7.0))
    assert (found.rows_per_second, found.seconds, found.cores) == (2_000, 2.0, 1.5)
    assert found.rows_per_cpu_second == pytest.approx(4_000 / 3)


def test_ratios_are_of_rounds_side_by_side_whatever_is_missing():
    missing = [run for run in RUNS if (run.contender, run.round) != ("pyflink", 2)]
    found = ratios(missing, "weir", "pyflink", EXACTLY_ONCE, name="rows_per_second")
    assert found == pytest.approx([200 / 9, 18])
    failed = [replace(run, error="killed") for run in RUNS]
    assert of_rounds(failed, "weir", EXACTLY_ONCE, "rows_per_second") == {}


def test_an_aim_is_judged_by_the_median_of_rounds():
    ratio = AIMS[0] if AIMS[0].below == "pyflink" else AIMS[1]
    found, verdict = ratio.verdict(RUNS)
    assert (found, verdict) == (pytest.approx(200 / 9), "met")
    assert verdicts(RUNS) == {
        ("pyflink", "rows_per_second"): "met",
        ("flink-java", "rows_per_cpu_second"): "not met",
    }
    assert set(verdicts([]).values()) == {"not measured"}


def test_comparisons_are_with_every_contender_that_has_the_guarantee():
    wanted = {(c.name, mode) for c in CONTENDERS.values() for mode in c.modes} - {
        ("weir", mode) for mode in MODES
    }
    assert {(aim.below, aim.mode) for aim in AIMS} == wanted


def test_the_page_has_aims_medians_spreads_and_what_failed():
    page = render(RUNS, replace(SETTING, versions={"weir": "weir-spark 1"}))
    assert "not complete" in page
    assert "| at least 20 | 22 | 18.0 to 24 | met |" in page
    assert "| at least 0.5 | 0.40 | 0.40 to 0.40 | not met |" in page
    assert "| Weir | 200,000 | 180,000 to 240,000 | 80,000 |" in page
    assert "| Weir | exactly once | 700 | 600 to 900 |" in page
    assert "| Bytewax, round 1 | at least once | speed | wrong result |" in page
    assert "weir-spark 1" in page
    fastest, others = page.split("## Rows a second, exactly once")[1].split("| Weir |")[:2]
    assert "Flink Java" in fastest
    assert "PyFlink" in others
    tables = [row for row in page.splitlines() if row.startswith("|")]
    assert all(row.endswith("|") for row in tables)
    assert "not complete" not in render(RUNS, replace(SETTING, complete=True))


def test_a_page_is_written_again_from_its_figures(tmp_path, monkeypatch):
    kafka_ends.write(RUNS, SETTING, tmp_path)
    stored = json.loads((tmp_path / "kafka.json").read_text())
    assert of_json(stored) == (RUNS, SETTING)
    assert to_json(*of_json(stored)) == stored
    page = (tmp_path / "KAFKA.md").read_text()
    (tmp_path / "KAFKA.md").unlink()
    monkeypatch.setattr(sys, "argv", ["kafka_ends", "--page", str(tmp_path / "kafka.json")])
    assert kafka_ends.main() == 0
    assert (tmp_path / "KAFKA.md").read_text() == page


def test_medians_and_verdicts_are_said():
    said: list[str] = []
    summary(RUNS, said.append)
    assert any("rows_per_second" in text and "180,000 to 240,000" in text for text in said)
    assert any("aim at least 20: met" in text for text in said)
    assert "FAILED: wrong result" in line(RUNS[-1])
    assert line(RUNS[0], timed=False).endswith("right result")


def test_rounds_take_turns_and_begin_with_another_contender(monkeypatch):
    words = ["kafka_ends", "--rounds", "2", "--contenders", "weir,pyflink,bytewax"]
    monkeypatch.setattr(sys, "argv", words)
    planned = list(kafka_ends.planned(kafka_ends.arguments()))
    order = [(r.round, r.contender) for r in planned if (r.mode, r.measure) == (MODES[1], "speed")]
    assert order[:3] == [(1, "weir"), (1, "pyflink"), (1, "bytewax")]
    assert order[3:] == [(2, "pyflink"), (2, "bytewax"), (2, "weir")]
    assert not any(r.contender == "bytewax" and r.mode == EXACTLY_ONCE for r in planned)
    monkeypatch.setattr(sys, "argv", ["kafka_ends", "--smoke"])
    smoke = list(kafka_ends.planned(kafka_ends.arguments()))
    assert [run.contender for run in smoke] == [
        name for mode in MODES for name, c in CONTENDERS.items() if c.modes[0] == mode
    ]


def test_what_nobody_knows_cannot_be_chosen(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["kafka_ends", "--modes", "TWICE"])
    with pytest.raises(SystemExit, match="TWICE"):
        kafka_ends.arguments()


def test_the_recount_by_columns_is_that_of_plain_python():
    rows = list(zip(*(column.tolist() for column in rows_of(12_345)), strict=True))
    made = [kafka_rows.text(*row).encode() for row in kafka_rows.expected(rows)]
    found = Checksum()
    for begin in range(0, len(made), 1_000):
        found += checksum(made[begin : begin + 1_000])
    assert found == expected(12_345)
    assert checksum(made[1:]) != expected(12_345)
    assert checksum([]) == Checksum()


def test_fewer_rows_are_the_beginning_of_more():
    few, many = rows_of(5), rows_of(20_005)
    assert [c.tolist() for c in few] == [c[:5].tolist() for c in many]
    assert len(many[0]) == 20_005


@pytest.mark.parametrize("wrong", [b"1,2,3,x", b"1," + b"x" * 98])
def test_output_of_another_shape_is_refused(wrong):
    with pytest.raises(WrongValueError, match="100 bytes"):
        checksum([kafka_rows.text(1, 2, 3).encode(), wrong])


def test_flink_in_java_gets_the_settings_of_the_others_and_its_own_jvm_options(
    monkeypatch, tmp_path
):
    (tmp_path / "conf").mkdir()
    options = "--add-opens=java.base/java.util=ALL-UNNAMED"
    (tmp_path / "conf" / "config.yaml").write_text(f"env:\n  java:\n    all: {options}\n")
    monkeypatch.setenv("JAVA_HOME", "jdk")
    monkeypatch.setenv("JVM_ARGS", "-Xmx4g")
    jars = ["classes", str(tmp_path / "lib" / "flink-dist.jar")]
    told = {"address": "a:1", "input": "i", "output": "o", "mode": EXACTLY_ONCE}
    words = kafka_java.command({**told, "folder": str(tmp_path), "jars": jars})
    assert words[:3] == ["jdk/bin/java", "-Xmx4g", options]
    assert words[words.index("-cp") + 1] == ":".join(jars)
    assert words[words.index("KafkaLeast") + 1 :][:5] == ["a:1", "i", "o", EXACTLY_ONCE, "600000"]
    assert {"execution.checkpointing.interval=1 s", "pipeline.object-reuse=true"} <= set(words)
