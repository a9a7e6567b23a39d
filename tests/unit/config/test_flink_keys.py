"""Every configuration key of Flink is read, or said to change nothing; none is taken for a typo.

`tests/flink_keys.txt` holds Flink's keys as facts, written by `scripts/flink_keys.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.config.effective import OWNED_NAMESPACES, Settings, is_known
from weir.config.effects import without_effect
from weir.config.flink_keys import AMONG_OURS, ELSEWHERE, why_nothing

FACTS = Path(__file__).parents[2] / "flink_keys.txt"
LINES = [line for line in FACTS.read_text("utf-8").splitlines() if not line.startswith("#")]
UNREAD = [key for line in LINES if not is_known(key := line.partition(" ")[2])]


def test_the_facts_cover_three_versions_of_flink() -> None:
    assert len(LINES) > 1000
    assert "abc parallelism.default" in LINES
    assert {letter for line in LINES for letter in line.partition(" ")[0]} == set("abc")


def test_keys_of_flink_that_weir_does_not_read_have_a_reason() -> None:
    assert [key for key in UNREAD if why_nothing(key) is None] == []


@pytest.mark.slow
def test_keys_of_flink_among_ours_are_said_to_change_nothing_and_never_refused() -> None:
    ours = [key for key in UNREAD if key.startswith((*OWNED_NAMESPACES, "rest.", "security."))]
    settings = Settings([dict.fromkeys(ours, "1")])
    assert settings.unknown_keys() == []
    assert [text.partition(" (")[0] for text in without_effect(settings)] == ours
    assert len(ours) > 100


@pytest.mark.parametrize("start", AMONG_OURS)
def test_a_reason_among_ours_stands_for_a_key_of_flink(start: str) -> None:
    assert any(key.startswith(start) for key in UNREAD)
    assert not is_known(start)


def test_the_longest_beginning_counts() -> None:
    assert why_nothing("security.ssl.internal.keystore") == ELSEWHERE["security.ssl."]
    assert why_nothing("security.kerberos.login.keytab") == ELSEWHERE["security."]
    assert why_nothing("my.own.key") is None


@pytest.mark.parametrize("key", ["execution.checkpointing.intervall", "state.backend.typ"])
def test_a_misspelt_key_of_ours_is_still_refused(key: str) -> None:
    (found,) = Settings([{key: "1"}]).unknown_keys()
    assert found.fatal
