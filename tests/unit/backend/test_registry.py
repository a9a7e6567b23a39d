"""Backends by name: what is offered, when it is imported, and what is said of unknown names."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from weir.backend.base import NATIVE_PREFIX, RestoreSource, StateLayer
from weir.backend.factory import BackendContext, BackendSettings, create_backend
from weir.backend.registry import BackendProvider, provider
from weir.backend.restored import common_sources
from weir.common.typeinfo import Types
from weir.config.backend import STATE_BACKEND
from weir.config.state_backends import STATE_BACKENDS, state_backend
from weir.errors import IncompatibleStateError, UsageError
from weir.keygroup import KeyGroupRange
from weir.testing.campaign_backends import BACKENDS, SHARES, settings_of

GROUPS = KeyGroupRange(0, 7)
NAMES = [facts.name for facts in STATE_BACKENDS]


class Empty:
    """A snapshot file of which only the name is asked for."""

    name = "checkpoint/1"


@pytest.mark.parametrize("name", NAMES)
def test_every_backend_in_the_table_has_its_package_and_makes_backends(name: str) -> None:
    assert isinstance(provider(name), BackendProvider)
    assert STATE_BACKEND.parse(name, STATE_BACKEND.key) == name
    for settings in (BackendSettings(name), BackendSettings(name, changelog=True)):
        backend = create_backend(BackendContext(settings), Types.STRING(), GROUPS)
        assert backend.key_groups == GROUPS
        backend.close()


def test_an_unknown_backend_is_refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"no state backend 'forts'.* 'hashmap', 'rocksdb'"):
        create_backend(BackendContext(BackendSettings("forts")), Types.STRING(), GROUPS)


@pytest.mark.parametrize("old", ["filesystem", "jobmanager"])
def test_old_names_mean_the_backend_that_keeps_state_in_memory(old: str) -> None:
    assert state_backend(old).name == "hashmap"


def test_files_of_a_backend_that_nobody_knows_are_refused_by_name() -> None:
    layer = StateLayer(Empty(), {NATIVE_PREFIX + "forst": {"groups": {}}})  # type: ignore[arg-type]
    source = RestoreSource((layer,), GROUPS, GROUPS)
    with pytest.raises(IncompatibleStateError, match=r"'checkpoint/1' .* backend 'forst'"):
        common_sources([source], GROUPS)
    common = replace(source, layers=(replace(layer, states={}),))
    assert common_sources([common], GROUPS) == [common]


@pytest.mark.slow
def test_who_does_not_use_a_backend_need_not_have_its_package() -> None:
    code = (
        "import sys, weir.backend.factory as f; from weir.keygroup import KeyGroupRange\n"
        "f.create_backend(f.BackendContext(), None, KeyGroupRange(0, 7))\n"
        "print(sorted(n for n in sys.modules if 'rocksd' in n))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_campaigns_run_every_backend_plain_incremental_and_with_a_changelog() -> None:
    kinds = {(s.kind, s.incremental, s.changelog) for s in map(settings_of, BACKENDS)}
    modes = [(False, False), (True, False), (False, True)]
    assert kinds == {(name, *mode) for name in NAMES for mode in modes}
    assert set(SHARES) == set(BACKENDS)
