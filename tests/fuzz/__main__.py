"""`make fuzz`: mutated bytes against every format and the REST door.

Usage: python -m tests.fuzz [--seconds N] [--only A,B] [--seed N] [--engine guided|own] [--jobs N]
       python -m tests.fuzz --only A --repeat FILE

Every target runs in a process of its own, for an equal share of the time. The exit code is 0 if
there was no finding; a finding is a file, and the command that repeats it is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import guided_engine, own_engine

ROOT = Path(__file__).resolve().parents[2]
FOUND = ROOT / "artifacts" / "fuzz" / "found"
# A call that does not end costs the processor that; a machine that is busy may take far longer.
GRACE_CPU_S = 120
GRACE_S = 3600
MEMORY_MAX = 6 << 30
_SHOWN = 200


@dataclass(frozen=True)
class Outcome:
    """How the fuzzing of one target ended; `input` is the file with what it stumbled over."""

    name: str
    executions: int
    problem: str = ""
    input: Path | None = None


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", default="", help="names of targets, with commas between them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("guided", "own"))
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--repeat", type=Path, help="a file with an input: call the target once")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    from tests.fuzz.targets import TARGETS

    names = [name for name in options.only.split(",") if name] or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"no target {', '.join(unknown)}: there are {', '.join(TARGETS)}")
    if options.repeat is not None:
        taken = TARGETS[names[0]].function()(options.repeat.read_bytes())
        say(f"{names[0]}: the input was {'taken' if taken else 'refused'}")
        return 0
    engine = options.engine or choose()
    share = options.seconds * options.jobs / len(names)
    say(f"{len(names)} targets, {share:.0f} s each, engine {engine}, seed {options.seed}")
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(
            pool.map(lambda name: fuzz(name, engine, options.seed, share), names),
        )
    total = sum(outcome.executions for outcome in outcomes)
    bad = sum(bool(outcome.problem) for outcome in outcomes)
    say(f"{total:,} inputs, {bad} findings")
    return 1 if bad else 0


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)


def choose() -> str:
    """Return the engine with coverage if it can be had, else say why not."""
    try:
        guided_engine.install()
    except guided_engine.Unavailable as error:
        say(f"no engine with coverage, our own runs instead: {error}")
        return "own"
    return "guided"


def fuzz(name: str, engine: str, seed: int, seconds: float) -> Outcome:
    """Fuzz a target in a process of its own, and say how that went."""
    FOUND.mkdir(parents=True, exist_ok=True)
    before = set(FOUND.iterdir())
    command = [sys.executable, "-m", "tests.fuzz", "--child", "--only", name]
    command += ["--engine", engine, "--seed", str(seed), "--seconds", str(seconds)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            code: int | None = process.wait(seconds + GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
        log.seek(0)
        text = log.read()
    count = guided_engine.executions(text) if engine == "guided" else counted(text)
    if code == 0:
        outcome = Outcome(name, count)
    else:
        made = sorted(p for p in set(FOUND.iterdir()) - before if p.name.startswith(f"{name}-"))
        problem = "it did not end" if code is None else f"exit code {code}\n{text[-3000:]}"
        outcome = Outcome(name, count, problem, made[0] if made else None)
    say("\n".join(described(outcome)))
    return outcome


def described(outcome: Outcome) -> list[str]:
    """Return the lines about one target."""
    lines = [f"{outcome.name:24} {outcome.executions:>10,} inputs"]
    if not outcome.problem:
        return lines
    lines += [outcome.problem, f"FINDING in {outcome.name}"]
    if outcome.input is not None:
        data = outcome.input.read_bytes()
        lines += [data.hex()] if len(data) <= _SHOWN else []
        file = outcome.input.relative_to(ROOT)
        lines.append(
            f"repeat: .venv/bin/python -m tests.fuzz --only {outcome.name} --repeat {file}"
        )
    return lines


def counted(text: str) -> int:
    """Return the number of inputs that our own engine has reported."""
    found = re.findall(r'^\{"executions": ([0-9]+)\}$', text, re.MULTILINE)
    return int(found[-1]) if found else 0


def child(options: argparse.Namespace) -> int:
    """Fuzz one target in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    cpu_s = round(4 * options.seconds) + GRACE_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    if options.engine == "guided":
        guided_engine.run(options.only, options.seed, options.seconds, FOUND)
        return 0
    from tests.fuzz.targets import TARGETS

    # The input is on the disk before it is tried, so that it is there if the process dies of it.
    current = FOUND / f"{options.only}-{os.getpid()}"
    with current.open("wb") as file:
        done = own_engine.run(
            TARGETS[options.only], options.seed, options.seconds, noting(file.fileno())
        )
    say(json.dumps({"executions": done.executions}))
    if done.problem is None:
        current.unlink()
        return 0
    traceback.print_exception(done.problem)
    return 1


def noting(descriptor: int) -> Callable[[bytes], None]:
    """Return what puts an input into a file, in place of the one before."""

    def note(data: bytes) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)

    return note


if __name__ == "__main__":
    sys.exit(main())
