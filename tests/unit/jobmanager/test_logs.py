"""Logs by name and part: nothing but logs of slots can be read, and links are none."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weir.jobmanager.logs import DriverLog, read_part, slot_logs


def test_logs_of_slots_are_found_newest_first(tmp_path: Path) -> None:
    for number, name in enumerate(("slot-0-attempt-0.log", "slot-11-attempt-2.log")):
        (tmp_path / name).write_text("x" * (number + 1))
        os.utime(tmp_path / name, (100 + number, 100 + number))
    assert [(f.name, f.subtask, f.size, f.modified_ms) for f in slot_logs(tmp_path)] == [
        ("slot-11-attempt-2.log", 11, 2, 101_000),
        ("slot-0-attempt-0.log", 0, 1, 100_000),
    ]


def test_what_is_no_log_of_a_slot_is_not_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    (tmp_path / "slot-0-attempt-0.log").symlink_to(secret)
    (tmp_path / "slot-1-attempt-0.log").mkdir()
    (tmp_path / "slot-2-attempt-0.log.old").write_text("")
    assert slot_logs(tmp_path) == []
    assert slot_logs(tmp_path / "nowhere") == []
    assert slot_logs(None) == []


def test_what_cannot_be_a_directory_has_no_logs() -> None:
    assert slot_logs(Path("/tmp/a\0b")) == []
    assert slot_logs(Path("/tmp/\ud800")) == []


def test_parts_count_from_the_beginning_or_from_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"0123456789")
    assert read_part(log, 0, 4) == b"0123"
    assert read_part(log, 8, 100) == b"89"
    assert read_part(log, -3, 2) == b"78"
    assert read_part(log, -100, 100) == b"0123456789"
    assert read_part(log, 100, 4) == b""


def test_a_link_that_takes_the_place_of_a_log_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="log"):
        read_part(tmp_path / "log", 0, 10)


def test_the_driver_keeps_its_last_lines() -> None:
    log = DriverLog(lines=2)
    for number in range(3):
        record = logging.LogRecord("weir.x", logging.INFO, "f", 1, "line %s", (number,), None)
        log.handle(record)
    lines = log.text().splitlines()
    assert [line.rpartition(" weir.x: ")[2] for line in lines] == ["line 1", "line 2"]


def test_who_follows_the_driver_finds_the_next_line_also_when_old_ones_are_forgotten() -> None:
    log = DriverLog(lines=3)
    log.setFormatter(logging.Formatter("%(message)s"))
    at, seen = 0, b""
    for number in range(10):
        log.handle(logging.LogRecord("weir.x", logging.INFO, "f", 1, f"line {number}", (), None))
        begin, data = log.part(at, 100)
        assert begin == at
        at, seen = begin + len(data), seen + data
    assert seen.decode().splitlines() == [f"line {number}" for number in range(10)]
    assert at == log.end() == 70
    assert log.part(0, 100) == (49, b"line 7\nline 8\nline 9\n")
    assert log.part(-7, 4) == (63, b"line")
    assert log.part(900, 4)[1] == b""
    assert log.last(100) == "line 7\nline 8\nline 9\n"
    assert log.last(15) == "line 8\nline 9\n"
    assert log.last(3) == ""


def test_a_record_that_nobody_else_handles_is_still_shown(tmp_path: Path) -> None:
    """In a process of its own: pytest listens to all loggers."""
    program = """
import logging
from weir.jobmanager.logs import DriverLog
logs = [DriverLog(), DriverLog()]
for log in logs:
    logging.getLogger("weir").addHandler(log)
logging.getLogger("weir.job").warning("seen once")
logging.getLogger("weir.job").info("not worth it")
logging.basicConfig(format="configured: %(message)s")
logging.getLogger("weir.job").warning("by others")
assert logs[0].text().count("\\n") == 2, logs[0].text()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines() == ["seen once", "configured: by others"]
