"""Everything that is fuzzed."""

from __future__ import annotations

from tests.fuzz import (
    formats,
    host_files,
    lookups,
    operator_state,
    positions,
    rest_door,
    sinks,
    state_doors,
    state_files,
    texts,
)
from tests.fuzz.target import Target

_MODULES = (
    *(state_files, operator_state, formats, texts, positions, sinks, host_files),
    *(lookups, rest_door, state_doors),
)
TARGETS: dict[str, Target] = {
    target.name: target for module in _MODULES for target in module.TARGETS
}
