"""How often a record may reach an external system when things fail."""

from __future__ import annotations

import enum


class DeliveryGuarantee(enum.Enum):
    """What a sink promises; a job as a whole keeps the weakest promise of its parts.

    Example:
        DeliveryGuarantee.EXACTLY_ONCE.name
    """

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2
