"""A program as users start it with `weir run`; its job counts words in this process, without Spark.

Supervisor, slots, checkpoints, REST and the announcement are those of every job. It resumes from
`execution.state-recovery.path`, has the parallelism of `parallelism.default`, ends with its job.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(folder: Path) -> None:
    from tests.live_job import LiveJob, counting, some_words

    from weir.config import ambient
    from weir.config.checkpointing import RECOVERY_PATH
    from weir.config.effective import Settings
    from weir.config.execution import PARALLELISM
    from weir.jobmanager.announcement import Announcement
    from weir.jobmanager.past import keep
    from weir.jobmanager.recovery import load_restore_point
    from weir.rest import RestServer

    settings = Settings(ambient.layers())
    path = settings.get(RECOVERY_PATH)
    job = LiveJob(
        folder,
        counting(),
        some_words,
        parallelism=settings.get(PARALLELISM) or 2,
        restore=None if path is None else load_restore_point(path),
        # Slots of the harness know one storage.
        savepoints="checkpoints",
    )
    server = RestServer(ports=(0,))
    server.register(job.control)
    server.start()
    announcement = Announcement(server.local_url, server.token or "")
    job.start()
    announcement.update(job.harness.supervisor)
    keep(job.control)
    job.over.wait()
    announcement.update(job.harness.supervisor)
    keep(job.control)
    server.close()
    job.close()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(Path(sys.argv[1]))
