"""`make chaos`: attack a job on Spark with seeded faults and count what comes out.

Usage: python -m tests.chaos [--faults N] [--seed N] [--backend NAME] [--mode NAME] [--kinds A,B]
                             [--storage NAME] [--cluster] [--ends] [--[no-]local-recovery]
                             [--patience N] [--report FILE] [--limits]

With --ends the job reads from Kafka and writes to Kafka and PostgreSQL, both of the run, which are
attacked, too. Without --backend, --kinds, --storage, --cluster and --ends the faults are dealt out
to all backends, which take turns in the modes, from 50 faults on to all pairs of both, and a tenth
each to runs with jumping clocks, with checkpoints in S3, on a cluster of two hosts, and with at
least once, where duplicates are no fault. The exit code is 0 if nothing was lost, duplicated, wrong
or left over, no job died, was stuck, restarted without need, or refused what it was asked for, and
every kind of fault that was dealt has struck. With --limits recovery may not be too slow either,
which needs an idle machine. Every run begins with the command that repeats it alone.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

from tests.chaos import report
from tests.chaos.faults import NEED_ENDS, Kind
from tests.chaos.plan import BACKENDS, MODES, STORAGES, Plan, Wishes, deal, surroundings
from tests.chaos.run import ChaosRun


class Judging(NamedTuple):
    """What becomes of the outcomes: where tables go, and whether slow recovery is a failure."""

    path: Path | None = None
    limits: bool = False


def wishes_of(words: list[str]) -> tuple[Wishes, Judging]:
    """Return what the command line asks for, and how it is judged."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=list(BACKENDS))
    parser.add_argument("--mode", choices=list(MODES))
    parser.add_argument("--kinds", help="names of kinds of faults, with commas between them")
    parser.add_argument("--storage", choices=list(STORAGES))
    parser.add_argument("--cluster", action="store_true", help="two hosts in namespaces: root")
    parser.add_argument("--ends", action="store_true", help="from Kafka to Kafka and PostgreSQL")
    parser.add_argument(
        "--local-recovery", action=argparse.BooleanOptionalAction, help="slots keep local copies"
    )
    parser.add_argument("--patience", type=float, default=1.0, help="wait so many times as long")
    parser.add_argument("--report", type=Path, help="write tables in Markdown to a file")
    parser.add_argument("--limits", action="store_true", help="slow recovery is a failure")
    found = vars(parser.parse_args(words))
    names, judging = found.pop("kinds"), Judging(found.pop("report"), found.pop("limits"))
    unknown = sorted(set(names.split(",")) - set(Kind.__members__)) if names else []
    if unknown:
        parser.error(
            f"--kinds: {', '.join(unknown)}; expected some of {', '.join(Kind.__members__)}"
        )
    kinds = tuple(Kind[name] for name in names.split(",")) if names else ()
    if found["mode"] == "at-least-once" and (found["ends"] or set(kinds) & NEED_ENDS):
        parser.error("--mode at-least-once: the outputs of --ends are counted exactly once")
    return Wishes(**found, kinds=kinds), judging


def lacking(plans: list[Plan], lacks: dict[str, str]) -> str:
    """Say why plans that were asked for cannot be carried out; "" if they can."""
    needs = [name for plan in plans for name in _needs(plan)]
    return "; ".join(sorted({lacks[name] for name in needs if lacks[name]}))


def _needs(plan: Plan) -> list[str]:
    wanted = {
        "clock": set(plan.kinds) == {Kind.CLOCK},
        "s3": plan.storage == "s3",
        "cluster": plan.cluster,
        "ends": plan.ends,
    }
    return [name for name, needed in wanted.items() if needed]


def attack(plan: Plan) -> report.Outcome | None:
    """Carry out one run and say what came of it; None if it could not be carried out."""
    root = Path(tempfile.mkdtemp(prefix="weir-chaos-"))
    _say(f"{plan}: {plan.command}")
    try:
        outcome = ChaosRun(root, plan, say=_say).run()
    except Exception:
        # The runs after this one are worth having; the exit code tells.
        _say(f"{traceback.format_exc()}this run has no result; everything is below {root}")
        return None
    _say("\n".join(outcome.summary(plan)))
    if outcome.good:
        shutil.rmtree(root)
    else:
        _say(f"everything is below {root}")
    return outcome


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """Run what the command line asks for."""
    wishes, judging = wishes_of(sys.argv[1:])
    lacks = surroundings()
    plans = deal(wishes, lacks)
    if reason := lacking(plans, lacks):
        _say(f"skipped: {reason}")
        return 0
    if wishes.plain:
        for name, why in lacks.items():
            _say(f"no run with {name}: {why}") if why else None
    return 0 if attack_all(plans, judging) else 1


def attack_all(plans: list[Plan], judging: Judging) -> bool:
    """Carry out all runs, whatever becomes of one; tells whether all are good."""
    outcomes: list[tuple[Plan, report.Outcome]] = []
    for plan in plans:
        outcome = attack(plan)
        outcomes += [] if outcome is None else [(plan, outcome)]
        if judging.path is not None:
            report.write(judging.path, outcomes)
    found = [outcome for _, outcome in outcomes]
    well = len(found) == len(plans) and all(outcome.good for outcome in found)
    if idle := report.never_struck(found):
        _say(f"never struck: {', '.join(kind.name for kind in idle)}")
    if judging.limits:
        kept, lines = report.judge_limits(found, plans[0].patience)
        _say("\n".join(lines))
        well = well and kept
    return well and not idle


if __name__ == "__main__":
    sys.exit(main())
