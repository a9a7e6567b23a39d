"""What can be said about an operator after it was declared: names, uids, parallelism, chaining.

Streams and sinks share it. A handle without an operator (a union, a keyed or repartitioned stream)
refuses, because there is nothing that a name or a uid could belong to.
"""

from __future__ import annotations

import logging
import re
from typing import TypeVar

from weir.datastream._checks import check_max_parallelism, check_parallelism
from weir.datastream.slot_sharing_group import SlotSharingGroup, warn_about_slot_sharing
from weir.errors import UsageError
from weir.graph.transformation import Transformation
from weir.notices import warn_once

H = TypeVar("H", bound="OperatorHandle")

log = logging.getLogger("weir.datastream")
_CHAINS = (
    "operators between two exchanges always run in one call of their slot; rebalance() puts an "
    "exchange between two operators"
)
_UID_HASH = re.compile(r"[0-9a-fA-F]{32}")


class OperatorHandle:
    """A view of the operator (or the few operators) that one call declared."""

    def __init__(self, operators: tuple[Transformation, ...]) -> None:
        """Bind to operators: the first has the identity, parallelism applies to all."""
        self._operators = operators

    def get_name(self) -> str:
        """Return the operator's name."""
        return self._operator("get_name").name

    def name(self: H, name: str) -> H:
        """Name the operator for plans, logs and errors."""
        self._operator("name").name = name
        return self

    def uid(self: H, uid: str) -> H:
        """Give the operator the id under which its state is found again in later programs."""
        if not isinstance(uid, str) or not uid:
            msg = f"a uid is a non-empty string, found {uid!r}"
            raise UsageError(msg)
        self._operator("uid").uid = uid
        return self

    def set_uid_hash(self: H, uid_hash: str) -> H:
        """Give the operator's id itself: 32 hexadecimal digits, as printed in logs."""
        if not isinstance(uid_hash, str) or not _UID_HASH.fullmatch(uid_hash):
            msg = f"a uid hash is a string of 32 hexadecimal digits, found {uid_hash!r}"
            raise UsageError(msg)
        self._operator("set_uid_hash").uid_hash = uid_hash.lower()
        return self

    def set_parallelism(self: H, parallelism: int) -> H:
        """Set how many subtasks the operator has."""
        operator = self._operator("set_parallelism")
        check_parallelism(parallelism, f"operator '{operator.name}'")
        if operator.options.get("non_parallel") and parallelism != 1:
            msg = (
                f"operator '{operator.name}' is not parallel: its parallelism must be 1, "
                f"found {parallelism!r}"
            )
            raise UsageError(msg)
        for each in self._operators:
            each.parallelism = parallelism
        return self

    def get_parallelism(self) -> int | None:
        """Return the operator's own parallelism, None when it follows the environment."""
        return self._operator("get_parallelism").parallelism

    def set_max_parallelism(self: H, max_parallelism: int) -> H:
        """Set the number of key groups: the bound for rescaling, fixed once state exists."""
        operator = self._operator("set_max_parallelism")
        check_max_parallelism(max_parallelism, f"operator '{operator.name}'")
        for each in self._operators:
            each.max_parallelism = max_parallelism
        return self

    def force_non_parallel(self: H) -> H:
        """Fix parallelism and max parallelism at one."""
        for each in (self._operator("force_non_parallel"), *self._operators[1:]):
            each.parallelism = each.max_parallelism = 1
            each.options["non_parallel"] = True
        return self

    def set_description(self: H, description: str) -> H:
        """Describe the operator at length, for the plan and the web page."""
        self._operator("set_description").options["description"] = description
        return self

    def set_buffer_timeout(self: H, timeout_millis: int) -> H:
        """Accept the setting, which has no effect, and warn once: records move once an epoch."""
        self._operator("set_buffer_timeout")
        warn_once(
            log,
            "set_buffer_timeout() has no effect, because records do not wait in buffers: they move "
            "once an epoch; weir.trigger sets how often there is one",
        )
        return self

    def start_new_chain(self: H) -> H:
        """Accept the wish, which has no effect, and warn once: chains follow from exchanges."""
        self._operator("start_new_chain")
        warn_once(log, f"start_new_chain() has no effect, because {_CHAINS}")
        return self

    def disable_chaining(self: H) -> H:
        """Accept the wish, which has no effect, and warn once: chains follow from exchanges."""
        self._operator("disable_chaining")
        warn_once(log, f"disable_chaining() has no effect, because {_CHAINS}")
        return self

    def slot_sharing_group(self: H, slot_sharing_group: str | SlotSharingGroup) -> H:
        """Accept the wish, which has no effect, and warn once: all operators share all slots."""
        self._operator("slot_sharing_group")
        warn_about_slot_sharing("slot_sharing_group()")
        return self

    def _operator(self, method: str) -> Transformation:
        if not self._operators:
            msg = (
                f"{method}() is not supported on this {type(self).__name__}: it is a way of "
                "spreading records, not an operator; call it on the operator before or after it"
            )
            raise UsageError(msg)
        return self._operators[0]
