"""Everything that is fuzzed."""

from __future__ import annotations

from tests.fuzz import formats, operator_state, rest_door, state_doors, state_files, texts
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (state_files, operator_state, formats, texts, rest_door, state_doors)
    for target in module.TARGETS
}
