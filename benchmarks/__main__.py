"""Runs the benchmarks and writes their results.

Usage: python -m benchmarks [--quick | --smoke] [--only a,c] [--contenders NAME,...] [--aims]

`--smoke` runs everything on a few rows and checks results only; it writes nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks import chart, environments, plan, report
from benchmarks.aims import Cells
from benchmarks.contenders.protocol import Outcome
from benchmarks.runner import Cell, Runner, say
from benchmarks.schedule import Pair


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--quick", action="store_const", dest="mode", const="quick")
    how_much.add_argument("--smoke", action="store_const", dest="mode", const="smoke")
    parser.add_argument("--only", default="", help="letters or names of workloads")
    parser.add_argument("--contenders", default="", help="names of contenders")
    parser.add_argument("--aims", action="store_true", help="what the aims compare, without peers")
    parser.add_argument("--rounds", type=int, default=None, help="instead of the planned number")
    parser.add_argument("--output", type=Path, default=environments.HERE)
    parser.add_argument("--add", action="store_true", help="keep what the output has of others")
    parser.add_argument("--pages", type=Path, help="only write the pages of these results.json")
    parser.set_defaults(mode="full")
    return parser.parse_args()


def selected(text: str, known: set[str], what: str) -> set[str]:
    """Return the names in a list.

    Raises:
        SystemExit: one of them is unknown.
    """
    names = {name for name in text.split(",") if name}
    if unknown := names - known:
        msg = f"unknown {what} {sorted(unknown)}, expected some of {sorted(known)}"
        raise SystemExit(msg)
    return names


def planned(options: argparse.Namespace) -> list[Pair]:
    """Return what the command line asks for."""
    letters = {*plan.WORKLOADS, *(name[0] for name in plan.WORKLOADS if name != "epoch")}
    only = selected(options.only, letters, "workloads")
    names = selected(options.contenders, set(plan.CONTENDER), "contenders")
    return plan.pairs(options.mode, only, names, aims=options.aims)


def machine() -> dict[str, str]:
    """Return what the figures depend on."""
    java = Path(environments.java_home(), "bin", "java")
    told = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "Java": told.stderr.splitlines()[0] if told.stderr else "unknown",
        "load before": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def main() -> int:
    """Run, write, and say whether every result that was checked was right."""
    # Whoever ends this ends the contender that is running, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options = arguments()
    if options.pages is not None:
        rewrite(options.pages, options.output)
        return 0
    runner = Runner(options.mode, planned(options), options.rounds or None)
    setting = setting_of(options)
    if options.add:
        setting = add_to(runner, setting, options.output / "results.json")
    # An interrupted run leaves what it has.
    runner.run(lambda: write(runner, setting, options.output))
    write(runner, replace(setting, complete=True), options.output)
    failed = {key: cell for key, cell in runner.cells.items() if cell.why}
    for (contender, workload), cell in failed.items():
        say(f"FAILED {workload} {contender}: {cell.why}")
    if options.mode == "quick":
        say(report.quickly_checked())
    if options.mode != "smoke":
        say(f"wrote RESULTS.md, results.json and chart.svg in {options.output}")
    return 1 if failed else 0


def setting_of(options: argparse.Namespace) -> report.Setting:
    """Return the circumstances of a run that begins now."""
    command = f"python -m benchmarks {shlex.join(_without_output(sys.argv[1:]))}".strip()
    date = datetime.date.today().isoformat()
    return report.Setting(command, options.mode, options.rounds or None, date, machine())


def _without_output(words: list[str]) -> list[str]:
    """Return a command without where it writes, which no figure depends on."""
    if "--output" not in words:
        return words
    place = words.index("--output")
    return words[:place] + words[place + 2 :]


def write(runner: Runner, setting: report.Setting, directory: Path) -> None:
    """Write the page, the figures and the chart of what was measured so far, if anything is."""
    if setting.mode == "smoke":
        return
    figures = {
        "setting": {
            "command": setting.command,
            "date": setting.date,
            "mode": setting.mode,
            "rounds": setting.rounds,
            "complete": setting.complete,
            "machine": setting.machine,
        },
        "startup": runner.startups,
        "cells": [cell.to_json() for cell in runner.cells.values()],
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(figures, indent=1) + "\n")
    write_pages(runner.cells, setting, runner.startups, directory)


def write_pages(
    cells: Cells, setting: report.Setting, startups: dict[str, float], directory: Path
) -> None:
    """Write the page and the chart."""
    note = f"{setting.machine['cores']} cores, {setting.date}, {setting.mode} run"
    (directory / "RESULTS.md").write_text(report.render(cells, setting, startups))
    (directory / "chart.svg").write_text(chart.render(cells, note))


def rewrite(figures: Path, directory: Path) -> None:
    """Write the pages of a run again."""
    cells, setting, startups = read(figures)
    write_pages(cells, setting, startups, directory)


def add_to(runner: Runner, setting: report.Setting, figures: Path) -> report.Setting:
    """Take over what a run before has measured of other pairs; return the setting of both."""
    cells, before, startups = read(figures)
    own = {(contender.name, workload) for contender, workload in runner.pairs}
    runner.cells |= {key: cell for key, cell in cells.items() if key not in own}
    runner.startups |= startups
    return replace(setting, command=f"{before.command}; {setting.command}")


def read(figures: Path) -> tuple[dict[tuple[str, str], Cell], report.Setting, dict[str, float]]:
    """Return what a run has stored."""
    stored = json.loads(figures.read_text())
    cells = {}
    for form in stored["cells"]:
        runs = [Outcome(**run) for run in form.pop("runs")]
        cells[form["contender"], form["workload"]] = Cell(**form, runs=runs)
    return cells, report.Setting(**stored["setting"]), stored["startup"]


if __name__ == "__main__":
    sys.exit(main())
