"""Seeds of the random campaign, dealt out to test files, which run side by side."""

from __future__ import annotations

import os

from weir.testing.campaign import Mode, failures

SEEDS = int(os.environ.get("WEIR_CAMPAIGN_SEEDS", "2000"))
MODES = list(Mode)


def wrong(share: int, shares: int) -> tuple[int, list[str]]:
    """Run a share of all seeds, a third in every mode; returns how many, and what went wrong."""
    count, found = 0, []
    for index, mode in enumerate(MODES):
        seeds = range(1 + share + shares * index, SEEDS + 1, shares * len(MODES))
        for failure in failures(seeds, mode=mode):
            count += 1
            if failure is not None:
                found.append(failure)
    return count, found
