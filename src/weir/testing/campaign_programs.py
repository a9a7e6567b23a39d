"""The programs of the crash campaign by name."""

from __future__ import annotations

from typing import Final

from weir.testing.campaign_aggregates import AGGREGATES
from weir.testing.campaign_checks import Program
from weir.testing.campaign_joins import JOINS
from weir.testing.campaign_patterns import PATTERNS
from weir.testing.campaign_program import TOTALS
from weir.testing.campaign_windows import WINDOWS

PLAIN: Final = "totals"
PROGRAMS: Final[dict[str, Program]] = {
    PLAIN: TOTALS,
    "windows": WINDOWS,
    "joins": JOINS,
    "patterns": PATTERNS,
    "aggregates": AGGREGATES,
}
