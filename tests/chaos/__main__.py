"""`make chaos`: attack a job on Spark with seeded faults and count what comes out.

Usage: python -m tests.chaos [--faults N] [--seed N] [--backend NAME] [--mode NAME] [--kinds A,B]

Without --backend the faults are dealt out to all backends, which take turns in the modes. The exit
code is 0 if nothing was lost, duplicated, wrong or left over.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.faults import Kind
from tests.chaos.run import BACKENDS, MODES, ChaosRun, Plan


def plans(options: argparse.Namespace) -> list[Plan]:
    """Return the runs, one for each backend."""
    backends = [options.backend] if options.backend else list(BACKENDS)
    kinds = tuple(Kind[name] for name in options.kinds.split(",")) if options.kinds else tuple(Kind)
    modes = [options.mode] if options.mode else list(MODES)
    shares = [options.faults // len(backends)] * len(backends)
    shares[0] += options.faults - sum(shares)
    return [
        Plan(options.seed + n, share, backend, mode=modes[n % len(modes)], kinds=kinds)
        for n, (backend, share) in enumerate(zip(backends, shares, strict=True))
        if share
    ]


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=list(BACKENDS))
    parser.add_argument("--mode", choices=list(MODES))
    parser.add_argument("--kinds", help="names of kinds of faults, with commas between them")
    bad = 0
    for plan in plans(parser.parse_args()):
        root = Path(tempfile.mkdtemp(prefix="weir-chaos-"))
        outcome = ChaosRun(root, plan, say=lambda text: print(text, flush=True)).run()
        print("\n".join(outcome.summary(plan)), flush=True)
        good = outcome.verdict.exact and not outcome.left_over
        bad += not good
        if not good:
            print(f"everything is below {root}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
