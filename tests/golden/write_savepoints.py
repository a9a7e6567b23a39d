"""Write golden savepoints of windows and others: `python -m tests.golden.write_savepoints`.

Each is of a program of `tests.harness.surviving`, half-way. Run it for a program that has none yet:
those that are there stay as they are, since what they hold must be read for ever.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.harness.programs import started
from tests.harness.surviving import HALF, SUBJECTS, program
from tests.harness.test_savepoints import SETTINGS, savepoint_of

from weir.jobmanager.settings import StateFileSettings
from weir.storage.local import LocalStorage

HERE = Path(__file__).resolve().parent / "savepoints"
# Everything is in the metadata: one file for each.
INLINE = StateFileSettings(1 << 20)


def folder_of(subject: str) -> Path:
    """Return where the savepoint of a program is."""
    return HERE / subject.replace(" ", "-")


def write(subject: str) -> None:
    """Write the savepoint of one program."""
    with tempfile.TemporaryDirectory() as directory:
        storage = LocalStorage(directory)
        job = started(program(subject), storage=storage, checkpoints=SETTINGS, state_files=INLINE)
        job.run_epoch(take=HALF)
        savepoint_of(job, storage)
        job.end_slots()
        (metadata,) = (Path(directory) / "sp" / "savepoint-1").iterdir()
        folder_of(subject).mkdir(parents=True)
        (folder_of(subject) / metadata.name).write_bytes(metadata.read_bytes())


def main() -> None:
    """Write those that are missing."""
    for subject in SUBJECTS:
        if not folder_of(subject).exists():
            write(subject)


if __name__ == "__main__":
    main()
