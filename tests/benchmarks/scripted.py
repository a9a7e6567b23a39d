"""A contender that answers once, then fails, then ends."""

import os
import time

from benchmarks.contenders.protocol import Outcome, Task, serve

DONE: list[str] = []


def run(task: Task) -> Outcome:
    if task.workload == "end":
        os._exit(1)
    DONE.append(task.workload)
    if len(DONE) > 1:
        msg = "the second one fails"
        raise ValueError(msg)
    return Outcome(task.contender, task.workload, startup=time.monotonic() - task.started)


if __name__ == "__main__":
    serve(run, dict)
