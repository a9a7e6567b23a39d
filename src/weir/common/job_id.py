"""`JobID`: 32 hexadecimal digits that name a job."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from weir.errors import UsageError
from weir.ids import new_job_id

__all__ = ["JobID"]


@dataclass(frozen=True)
class JobID:
    """The identity of a job; random unless given.

    Example:
        str(JobID("0123456789abcdef0123456789abcdef"))
    """

    value: str = field(default_factory=new_job_id)

    def __post_init__(self) -> None:
        """Refuse anything but 32 hexadecimal digits."""
        if not re.fullmatch("[0-9a-f]{32}", str(self.value)):
            msg = f"a job id has 32 hexadecimal digits, got {self.value!r}"
            raise UsageError(msg)

    @staticmethod
    def from_hex_string(text: str) -> JobID:
        """Read a job id."""
        return JobID(text)

    def to_hex_string(self) -> str:
        """Return the digits."""
        return self.value

    def __str__(self) -> str:
        """Return the digits."""
        return self.value
