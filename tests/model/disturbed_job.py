"""Shared by models of whole jobs: a job that is killed, rescaled or succeeded between epochs."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from weir.errors import WeirError
from weir.testing.campaign_backends import settings_of
from weir.testing.harness import HarnessOptions, JobHarness

DISTURBANCES = st.sampled_from(["none", "none", "kill", "rescale", "successor"])


class DisturbedJob:
    """A job and its successors: what all of them gave."""

    def __init__(self, env, kind, **options):
        options = HarnessOptions(backend=settings_of(kind), **options)
        self.harness = JobHarness(env.build_graph(), 2, options).start()
        self.earlier = []

    def disturb(self, how, parallelism):
        harness = self.harness
        if how == "kill":
            harness.kill_slot(0)
            with pytest.raises(WeirError):
                harness.run_epoch(take=0, checkpoint=True)
            harness.fail_over()
        elif how == "rescale":
            asked = harness.control.rescale(parallelism)
            harness.turn_until(asked.done)
        elif how == "successor":
            self.earlier.append(harness)
            self.harness = harness.restart(parallelism)

    def results(self, handle):
        return [r for job in (*self.earlier, self.harness) for r in job.collected(handle)]
