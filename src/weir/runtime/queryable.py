"""The names under which states of a slot can be queried: each means one state of the job."""

from __future__ import annotations

import logging

from weir.errors import UsageError
from weir.graph.plan import OperatorNode
from weir.notices import warn_once

log = logging.getLogger("weir.state")


class QueryableNames:
    """What `set_queryable` said of the states that the operators of a slot have asked for."""

    def __init__(self, enabled: bool = False) -> None:
        self._enabled = enabled
        self._states: dict[str, tuple[str, str, str]] = {}

    def add(self, name: str, operator: OperatorNode, state: str) -> None:
        """Take note of a state; the same one may come again.

        Raises:
            UsageError: another state of the job has that name.
        """
        found = (operator.id, state, operator.name)
        known = self._states.setdefault(name, found)
        if not self._enabled:
            warn_once(
                log,
                f"set_queryable({name!r}) has no effect: nobody can query the state of this job "
                "before queryable-state.enable is true",
            )
        if known != found:
            msg = (
                f"the queryable state name {name!r} of state {state!r} of operator "
                f"'{operator.name}' is in use by state {known[1]!r} of operator '{known[2]}': a "
                "name means one state of a job, so call set_queryable with another one"
            )
            raise UsageError(msg)

    def of(self, operator_id: str) -> dict[str, str]:
        """Return the names of an operator's states, by state."""
        return {
            state: name for name, (owner, state, _) in self._states.items() if owner == operator_id
        }
