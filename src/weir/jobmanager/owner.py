"""Who owns a job's directory, and whether that process can still be alive.

A job that resumes from another one's checkpoint may remove that job's remains only when it is
certain that the other one has ended. "Cannot tell" counts as alive.
"""

from __future__ import annotations

from pathlib import Path

from weir.storage.processes import OWNER_NAME, note_process, noted_process_ended


def claim(job_dir: Path, job_name: str = "") -> None:
    """Note that this process runs the job."""
    note_process(job_dir, name=job_name)


def release(job_dir: Path) -> None:
    """Note that the job has ended."""
    (job_dir / OWNER_NAME).unlink(missing_ok=True)


def has_ended(job_dir: Path) -> bool:
    """Tell for certain that no process runs the job any more."""
    try:
        return noted_process_ended(job_dir)
    except FileNotFoundError:
        return job_dir.is_dir()
