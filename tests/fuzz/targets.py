"""Everything that is fuzzed."""

from __future__ import annotations

from tests.fuzz import rest_door, state_files, texts
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target for target in (*state_files.TARGETS, *texts.TARGETS, *rest_door.TARGETS)
}
