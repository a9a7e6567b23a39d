"""PyFlink's own examples on Weir, with nothing but their imports changed.

Usage: python -m tests.pyflink_examples DIRECTORY [--only NAME]

DIRECTORY is `pyflink/examples/datastream` of an installed PyFlink. Every example runs in a process
of its own, as a user starts it. Those for Kafka get a broker; where they name another address than
its own, that is changed, too, and since they read for ever they are interrupted when everything was
printed. What an example has to print follows from its text. The table goes to
docs/guides/moving-a-pyflink-program.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.brokers import Broker
from tests.kafka.topics import Topics

SECONDS_MAX = 600
_IMPORT = re.compile(r"^(\s*(?:from|import) )pyflink\b", re.MULTILINE)
_ERROR = re.compile(r"[\w.]+(Error|Exception)\b")
_PLACE = "localhost:9092"
PEOPLE = [
    ("Flink", 124, "Germany", "Berlin"),
    ("hello", 136, "China", "Shanghai"),
    ("world", 125, "USA", "NewYork"),
    ("PyFlink", 33, "China", "Hangzhou"),
]
GREETINGS = [(1, "hi"), (2, "hello"), (3, "hi"), (4, "hello"), (5, "hi"), *[(6, "hello")] * 2]


@dataclass(frozen=True)
class Case:
    """An example, its options, and what it has to print, in any order; None: it is refused."""

    path: str
    expected: Callable[[str], list[str]] | None
    options: tuple[str, ...] = ()
    topic: str | None = None
    reads_for_ever: bool = False


@dataclass
class Run:
    """What became of a case."""

    case: Case
    lines: list[str] = field(default_factory=list)
    error: str = ""
    code: int | None = None
    seconds: float = 0.0
    check: str = ""
    missing: list[str] = field(default_factory=list)

    @property
    def result(self) -> str:
        if self.case.expected is None:
            refused = "refused" if "Error" in self.error else "NOT REFUSED"
            return f"{refused}: {self.error}"
        if self.missing or self.code != 0:
            return f"FAILS: exit code {self.code}; missing {self.missing[:3]}; {self.error}"
        return "as PyFlink"


def _people(write: Callable[[str, int, str, str], str]) -> list[str]:
    return [f"({n}, {write(*person)})" for n, person in enumerate(PEOPLE, 1)]


def _json(name: str, tel: int, country: str, city: str) -> str:
    addr = f'{{"country": "{country}", "city": "{city}"}}'
    return f"""'{{"name": "{name}", "tel": {tel}, "addr": {addr}}}'"""


def _dict(name: str, tel: int, country: str, city: str) -> str:
    return (
        f"{{'name': '{name}', 'tel': {tel}, 'addr': {{'country': '{country}', 'city': '{city}'}}}}"
    )


def basic_operations(_: str) -> list[str]:
    told = _people(_json)
    return [
        *told,
        told[0],
        *(
            f"('{c}', {n})"
            for c, n in [("Germany", 123), ("China", 135), ("USA", 124), ("China", 167)]
        ),
    ]


def windows(*found: tuple[int, int, int]) -> Callable[[str], list[str]]:
    return lambda _: [f"(hi,{start},{end},{count})" for start, end, count in found]


def words(text: str) -> list[str]:
    """Return the counts of the words that the example has in its text."""
    assigned = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    lines = next(ast.literal_eval(n.value) for n in assigned if isinstance(n.value, ast.List))
    counted = Counter(word for line in lines for word in line.split())
    return [f"({word},{count})" for word, count in counted.items()]


def sums(*found: tuple[str, str]) -> Callable[[str], list[str]]:
    """Sums of 32 bits, which have more digits than they mean."""
    return lambda _: [f"('{name}', {total})" for name, total in found]


ALICE, BOB = ("Alice", "163.3"), ("Bob", "102.5")
CASES = [
    Case("asyncio/remote_model_inference.py", None),
    Case("basic_operations.py", basic_operations),
    *[
        Case(
            f"connectors/kafka_{name}_format.py",
            lambda _: [f"+I[{number},{word}]" for number, word in GREETINGS],
            topic=f"test_{name}_topic",
            reads_for_ever=True,
        )
        for name in ("avro", "csv", "json")
    ],
    Case(
        "connectors/kafka_bytearray_format.py",
        lambda _: [
            json.dumps({"id": n, "country": country})
            for n, country in enumerate(("USA", "Canada", "Germany"), 1)
        ],
        topic="test_bytearray_topic",
        reads_for_ever=True,
    ),
    Case(
        "connectors/kafka_row_field_extractor_example.py",
        lambda _: [f"user-00{n}" for n in (1, 2, 1, 3)],
        topic="row-extractor-example",
    ),
    Case("connectors/elasticsearch.py", None),
    Case("connectors/pulsar.py", None),
    Case("event_time_timer.py", sums(*[ALICE] * 4, *[BOB] * 4)),
    Case("process_json_data.py", lambda _: _people(_dict)[1::2]),
    Case(
        "state_access.py",
        sums(
            ("Alice", "110.1"),
            ("Alice", "130.1"),
            ("Alice", "143.2"),
            ALICE,
            ("Bob", "30.2"),
            ("Bob", "83.3"),
            ("Bob", "86.4"),
            BOB,
        ),
    ),
    Case("streaming_word_count.py", None),
    Case("windowing/session_with_dynamic_gap_window.py", windows((1, 30, 7))),
    Case("windowing/session_with_gap_window.py", windows((1, 14, 6), (15, 20, 1))),
    Case(
        "windowing/sliding_time_window.py",
        windows(
            (-2, 3, 2),
            (0, 5, 4),
            (2, 7, 4),
            (4, 9, 3),
            (6, 11, 2),
            (8, 13, 2),
            (12, 17, 1),
            (14, 19, 1),
        ),
    ),
    Case("windowing/tumbling_count_window.py", lambda _: ["(hi,4)", "(hello,6)", "(hello,12)"]),
    Case("windowing/tumbling_time_window.py", windows((0, 5, 4), (5, 10, 3), (15, 20, 1))),
    Case("word_count.py", words),
    Case("word_count.py", words, options=("--input", "INPUT", "--output", "OUTPUT")),
]


@contextmanager
def broker(folder: Path) -> Iterator[Topics]:
    """Run a broker with the topics that the examples expect."""
    folder.mkdir()
    server = Broker(folder)
    server.start()
    try:
        topics = Topics(server.address)
        for topic in {case.topic for case in CASES if case.topic is not None}:
            topics.new(name=topic)
        yield topics
    finally:
        server.kill()


def run(case: Case, examples: Path, folder: Path, topics: Topics | None) -> Run:
    """Change the imports of an example and run it."""
    text = _IMPORT.sub(r"\1weir", (examples / case.path).read_text())
    if topics is not None:
        text = text.replace(_PLACE, topics.address)
    program = folder / Path(case.path).name
    program.write_text(text)
    places = {"INPUT": folder / "words.txt", "OUTPUT": folder / "out"}
    if case.options:
        lines = [line for line in ast.walk(ast.parse(text)) if isinstance(line, ast.List)]
        places["INPUT"].write_text("\n".join(ast.literal_eval(lines[0])) + "\n")
    found = Run(case)
    expected = [] if case.expected is None else case.expected(text)
    options = [str(places.get(option, option)) for option in case.options]
    _execute(found, [sys.executable, str(program), *options], folder, expected)
    if case.options:
        files = sorted((folder / "out").rglob("prefix*.ext"))
        found.lines = [line for file in files for line in file.read_text().splitlines()]
    elif case.topic is not None and not case.reads_for_ever and topics is not None:
        found.lines = [key.decode() for key, _ in topics.read(case.topic)]
    found.missing = _missing(found.lines, expected)
    checked = subprocess.run(
        [sys.executable, "-m", "weir.cli.main", "check", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    found.check = checked.stderr.strip().rpartition("\n")[2].removeprefix("1 program: ")
    return found


def _execute(found: Run, command: list[str], folder: Path, expected: list[str]) -> None:
    environment = {**os.environ, "WEIR_RUN_DIR": str(folder / "run")}
    begun = time.monotonic()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )
    said: list[str] = []
    readers = [
        threading.Thread(target=lambda: found.lines.extend(process.stdout or ()), daemon=True),
        threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True),
    ]
    # Lines come with their ends; who compares strips them.
    for reader in readers:
        reader.start()
    interrupted = False
    while process.poll() is None:
        elapsed = time.monotonic() - begun
        done = found.case.reads_for_ever and not _missing(found.lines, expected)
        if done and not interrupted:
            process.send_signal(signal.SIGINT)
            interrupted = True
        elif elapsed > SECONDS_MAX:
            process.kill()
        time.sleep(0.2)
    for reader in readers:
        reader.join(10)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    found.seconds = time.monotonic() - begun
    found.code = 0 if interrupted else process.returncode
    lines = [line.strip() for line in said if line.strip()]
    # Behind the error of a query Spark shows its plan.
    errors = [line for line in lines if _ERROR.match(line)] or lines
    found.error = errors[-1][:160] if errors and found.code else ""


def _missing(lines: list[str], expected: list[str]) -> list[str]:
    """Return what was expected and is not there; each line stands for one thing."""
    rest = [line.strip().partition("> ")[2] or line.strip() for line in lines]
    missing = []
    for one in expected:
        at = next((n for n, line in enumerate(rest) if line == one or _is_sum(line, one)), None)
        if at is None:
            missing.append(one)
        else:
            del rest[at]
    return missing


def _is_sum(line: str, one: str) -> bool:
    """Tell whether a line is a name and its sum, but for digits that 32 bits do not hold."""
    try:
        (name, found), (expected, total) = ast.literal_eval(line), ast.literal_eval(one)
        return bool(name == expected and abs(found - total) < 1e-4)
    except (ValueError, TypeError, SyntaxError):
        return False


def main() -> int:
    """Run the examples and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    chosen = [case for case in CASES if options.only in case.path]
    there = [case for case in chosen if (options.directory / case.path).exists()]
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="weir-pyflink-") as made:
        root = Path(made)
        wants_broker = any(case.topic for case in there)
        with broker(root / "kafka") if wants_broker else _nobody() as topics:
            for number, case in enumerate(there):
                folder = root / str(number)
                folder.mkdir()
                runs.append(run(case, options.directory, folder, topics))
                name = " ".join([case.path, *case.options]).replace("INPUT", "").strip()
                one = runs[-1]
                print(
                    f"| `{name}` | {one.result} | {one.check} | {one.seconds:.0f} s |", flush=True
                )
    for case in chosen:
        if case not in there:
            print(f"{case.path} is not in this version")
    bad = [one for one in runs if one.result.startswith(("FAILS", "NOT"))]
    return 1 if bad else 0


@contextmanager
def _nobody() -> Iterator[None]:
    yield None


if __name__ == "__main__":
    sys.exit(main())
