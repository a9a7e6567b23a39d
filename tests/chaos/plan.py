"""What runs do: settings of the attacked job, where it runs, and how faults are dealt out."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.chaos import clock
from tests.chaos.cluster import without_namespaces
from tests.chaos.faults import (
    DAMAGING,
    LEASE_S,
    NEED_BUCKET,
    NEED_CLUSTER,
    NEED_ENDS,
    NEED_MOUNT,
    NOT_ON_CLUSTER,
    Kind,
)
from tests.chaos.places import without_s3
from tests.chaos.servers import without_servers

BACKENDS = {
    "hashmap": {"state.backend.type": "hashmap"},
    "hashmap-incremental": {
        "state.backend.type": "hashmap",
        "execution.checkpointing.incremental": "true",
    },
    "rocksdb": {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
    },
    "changelog": {"state.backend.type": "hashmap", "state.changelog.enabled": "true"},
    "rocksdb-changelog": {"state.backend.type": "rocksdb", "state.changelog.enabled": "true"},
}
_UNALIGNED = "execution.checkpointing.unaligned.enabled"
_GUARANTEE = "execution.checkpointing.mode"
MODES = {
    "aligned": {_UNALIGNED: "false"},
    "unaligned": {_UNALIGNED: "true"},
    "at-least-once": {_UNALIGNED: "false", _GUARANTEE: "AT_LEAST_ONCE"},
}
EXACT_MODES = ("aligned", "unaligned")
# From so many faults on there are enough for every pair of a backend and a mode.
ALL_PAIRS_FAULTS = 50
STORAGES = ("disk", "s3")
_RESTARTS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100000",
    "restart-strategy.fixed-delay.delay": "200 ms",
}
# State of the job is small, and there are to be files of every kind. A file that is gone is waited
# for, but not for minutes.
_DAMAGED = {
    "execution.checkpointing.data-inline-threshold": "256 b",
    "weir.recovery.missing-files-timeout": "4 s",
}
# One of so many faults goes to each of the runs with a clock, a bucket, a cluster, at-least-once.
SPECIAL_SHARE = 10
# What a job between a broker and a database has to survive.
AT_THE_ENDS = (
    Kind.SLOT,
    Kind.STARTING_SLOT,
    Kind.FROZEN_SLOT,
    Kind.ZOMBIE,
    Kind.WORKER,
    Kind.DRIVER,
    Kind.JVM,
    Kind.BROKER,
    Kind.DATABASE,
    Kind.RESCALE,
    Kind.STOP,
)


@dataclass(frozen=True)
class Plan:
    """What a run does; `kinds` that its surroundings do not have are left out."""

    seed: int
    faults: int
    backend: str = "hashmap"
    mode: str = "aligned"
    kinds: tuple[Kind, ...] = tuple(Kind)
    storage: str = "disk"
    cluster: bool = False
    ends: bool = False
    local_recovery: bool = False
    patience: float = 1.0

    def __str__(self) -> str:
        where = ["local recovery"] if self.local_recovery else []
        where += [self.storage] if self.storage != "disk" else []
        where += ["two hosts"] if self.cluster else []
        where += ["jumping clock"] if Kind.CLOCK in self.kinds else []
        where += ["from Kafka to Kafka and PostgreSQL"] if self.ends else []
        return ", ".join([f"seed {self.seed}", self.backend, self.mode, *where])

    @property
    def command(self) -> str:
        """Return the command that repeats this run alone."""
        words = [f"--faults {self.faults} --seed {self.seed}"]
        words += [f"--backend {self.backend} --mode {self.mode} --storage {self.storage}"]
        words += ["--cluster"] if self.cluster else []
        words += ["--ends"] if self.ends else []
        words += [f"--{'' if self.local_recovery else 'no-'}local-recovery"]
        words += [f"--patience {self.patience:g}"] if self.patience != 1 else []
        words += [f"--kinds {','.join(kind.name for kind in self.kinds)}"]
        return f'make chaos ARGS="{" ".join(words)}"'

    @property
    def exactly_once(self) -> bool:
        """Tell whether nothing may come twice."""
        return self.mode in EXACT_MODES

    @property
    def settings(self) -> dict[str, str]:
        """Return the job's settings."""
        # A storage that fails for a while must not be the end of a job that nobody configured.
        restarts = _RESTARTS if self.storage == "disk" else {}
        return {
            "execution.checkpointing.interval": "500 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.num-retained": "3",
            "execution.state-recovery.from-local": str(self.local_recovery).lower(),
            "execution.checkpointing.timeout": "60 s",
            "weir.slot.lease": f"{LEASE_S} s",
            "parallelism.default": "2",
            **restarts,
            **(_DAMAGED if DAMAGING & set(self.kinds) else {}),
            **BACKENDS[self.backend],
            **MODES[self.mode],
        }

    def refuses(self, kind: Kind) -> str:
        """Say why a kind of fault cannot be in this run; "" if it can."""
        if self.cluster and kind in NOT_ON_CLUSTER:
            return "not on a cluster"
        if kind in NEED_CLUSTER and not self.cluster:
            return "needs --cluster"
        if kind in NEED_ENDS and not self.ends:
            return "needs --ends"
        if kind in NEED_BUCKET and self.storage != "s3":
            return "needs --storage s3"
        if kind in NEED_MOUNT and self.storage != "disk":
            return "needs --storage disk"
        if kind is Kind.CLOCK and clock.library() is None:
            return "needs libfaketime (package faketime)"
        if kind in NEED_MOUNT and os.getuid() != 0:
            return "needs root"
        return ""


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for."""

    faults: int = 20
    seed: int = 1
    backend: str | None = None
    mode: str | None = None
    kinds: tuple[Kind, ...] = ()
    storage: str | None = None
    cluster: bool = False
    ends: bool = False
    local_recovery: bool | None = None
    patience: float = 1.0

    @property
    def plain(self) -> bool:
        """Tell that nothing was said about where and what: everything is to be tried."""
        chosen = self.backend or self.kinds or self.storage or self.cluster or self.ends
        return not chosen


def surroundings() -> dict[str, str]:
    """Return why there is no clock, bucket, cluster or server here; "" for what can be had."""
    missing = "" if clock.library() else "needs libfaketime (package faketime)"
    found = {"clock": missing, "s3": without_s3(), "cluster": without_namespaces()}
    return {**found, "ends": without_servers()}


def deal(wishes: Wishes, lacks: Mapping[str, str]) -> list[Plan]:
    """Return the runs; a tenth of many faults goes to each special run that can be had here.

    Clocks jump in a run of their own only, unless they are asked for: a look at such a clock takes
    longer, and times would be those of libfaketime.
    """
    if not wishes.plain:
        return _numbered(_asked(wishes), wishes)
    share = wishes.faults // SPECIAL_SHARE
    on_hosts = _beside(*NEED_CLUSTER, Kind.WORKER, Kind.RESCALE)
    kinds = tuple(k for k in Kind if k is not Kind.CLOCK and not Plan(0, 0).refuses(k))
    own = {
        "clock": Plan(0, share, "rocksdb", "", _beside(Kind.CLOCK)),
        "s3": Plan(0, share, "hashmap-incremental", "", _beside(*NEED_BUCKET), storage="s3"),
        "cluster": Plan(0, share, "hashmap", "", on_hosts, cluster=True),
    }
    special = [plan for name, plan in own.items() if share and not lacks[name]]
    if share and wishes.mode is None:
        backend = _turned(list(BACKENDS), wishes.seed)[0]
        special.append(Plan(0, share, backend, "at-least-once", kinds))
    rest = wishes.faults - sum(plan.faults for plan in special)
    plain = _dealt(_over_backends(Plan(0, rest, kinds=kinds), wishes), wishes.seed)
    return _numbered([*plain, *special], wishes)


def _dealt(plans: list[Plan], seed: int) -> list[Plan]:
    """Deal kinds out to runs that have fewer faults than there are kinds: each has its turn."""
    rng, deck = random.Random(f"deal {seed}"), list[Kind]()
    dealt = []
    for plan in plans:
        while len(deck) < plan.faults:
            deck += rng.sample(plan.kinds, len(plan.kinds))
        mine, deck = set(deck[: plan.faults]), deck[plan.faults :]
        dealt.append(replace(plan, kinds=tuple(kind for kind in plan.kinds if kind in mine)))
    return dealt


def _beside(*kinds: Kind) -> tuple[Kind, ...]:
    """Return kinds in their order, with a killed slot to compare."""
    return tuple(kind for kind in Kind if kind in (Kind.SLOT, *kinds))


def _asked(wishes: Wishes) -> list[Plan]:
    kinds = set(wishes.kinds)
    if wishes.ends or kinds & NEED_ENDS:
        own = Plan(0, wishes.faults, wishes.backend or "hashmap-incremental", mode="", ends=True)
        return [replace(own, kinds=wishes.kinds or AT_THE_ENDS)]
    # Kinds that need something bring it along.
    cluster = wishes.cluster or bool(kinds & NEED_CLUSTER)
    storage = wishes.storage or ("s3" if kinds & NEED_BUCKET else "disk")
    plan = Plan(0, wishes.faults, "hashmap-incremental", "", storage=storage, cluster=cluster)
    chosen = wishes.kinds or tuple(k for k in Kind if k is not Kind.CLOCK and not plan.refuses(k))
    plan = replace(plan, kinds=chosen)
    if wishes.backend is not None:
        return [replace(plan, backend=wishes.backend)]
    return [plan] if cluster or storage != "disk" else _over_backends(plan, wishes)


def _over_backends(plan: Plan, wishes: Wishes) -> list[Plan]:
    """Return a run for each backend, or for each pair of a backend and a mode if they suffice."""
    modes = [wishes.mode or ""]
    if wishes.mode is None and wishes.faults >= ALL_PAIRS_FAULTS:
        modes = list(EXACT_MODES)
    pairs = [(backend, mode) for mode in modes for backend in BACKENDS]
    each, more = divmod(plan.faults, len(pairs))
    shares = {pair: each + (n < more) for n, pair in enumerate(pairs)}
    return [replace(plan, backend=b, mode=m, faults=n) for (b, m), n in shares.items() if n]


def _numbered(plans: list[Plan], wishes: Wishes) -> list[Plan]:
    """Give every run a seed of its own.

    Modes take turns from the seed on unless one is asked for, so that other seeds make other pairs.
    Of the runs that damage the files of a living job every second one has local copies.
    """
    found, living = [], wishes.seed
    for n, plan in enumerate(plans):
        mode = wishes.mode or plan.mode or EXACT_MODES[(wishes.seed + n) % len(EXACT_MODES)]
        local = bool(wishes.local_recovery)
        if wishes.local_recovery is None and Kind.LIVE_DAMAGE in plan.kinds:
            local, living = living % 2 == 0, living + 1
        found.append(
            replace(
                plan,
                seed=wishes.seed + n,
                mode=mode,
                local_recovery=local,
                patience=wishes.patience,
            )
        )
    return found


def _turned(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]
