"""Who runs what, and how much of it: the table of contenders and workloads, complete.

For every pair there is either a size or a reason why there is none. Slow contenders get fewer rows,
from the beginning of the same input; sizes are such that a run takes a minute at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.contenders.protocol import WORKLOAD_EPOCH
from benchmarks.workloads.catalogue import ALL, BY_NAME, ROWS_PER_KEY, Workload
from benchmarks.workloads.dataset import Size

MODES = ("full", "quick", "smoke")
SMOKE_KEYS = 1_000
# Epochs of one row: those that warm up, and those that count.
ONE_ROW = {"full": (20, 60), "quick": (10, 15), "smoke": (2, 5)}
# Epochs, rows in each, whether the state of millions of keys can be filled within minutes.
TIERS = {
    "fast": (6, 1_000_000, True),
    "medium": (3, 200_000, True),
    "batch": (2, 100_000, False),
    "slow batch": (2, 20_000, False),
    "slow": (3, 30_000, False),
    "slowest": (3, 10_000, False),
    "sql": (9, 1_000_000, False),
}
# Of the fast ones in windows: 100,000 keys have fifteen windows each.
WINDOWED_EPOCHS = 9
EVERY_ROUND = {"fast"}
# Rounds of floors and Weir that do not count, for the JVM to compile in; besides the verified run.
WARM_ROUNDS = 2
# Rounds that count: fewer than three have no spread.
ROUNDS = 3
ROUNDS_FOR_AIMS = 5
# What the aims compare, peers apart.
AIMED_PAIRS = {
    "a-100k": (
        *("identity", "weir-hashmap", "weir-rocksdb", "weir-hashmap-unchecked"),
        "weir-hashmap-files",
    ),
    "a-10k": ("weir-hashmap",),
    "a-5m": ("weir-hashmap",),
    "c-sum": ("identity", "weir-hashmap", "weir-hashmap-files"),
    "w-sum": ("identity", "jvm", "weir-hashmap", "weir-hashmap-files"),
    WORKLOAD_EPOCH: ("weir-hashmap", "empty-same", "empty-default"),
}
# Workloads that an aim compares with each other: their rounds must stand beside each other, too.
COMPARED_WITH = {"a-5m": "a-10k"}
# Whose results are checked on the whole input; those of others on its beginning.
CHECKED_WHOLE = {"identity", "weir-hashmap", "bytewax-2"}
# In windows: fifteen windows at least.
ROWS_OF_A_KEY = 15 * ROWS_PER_KEY
QUICK = (3, 500_000)
SMOKE = (3, 5_000)
# What two minutes are enough for: every letter in Weir, and a floor for each shape of rows.
QUICK_PAIRS = {
    "identity": ("a-100k", "c-sum", "g"),
    "jvm": ("c-sum",),
    "weir-hashmap": (
        *("a-100k", "b", "c-sum", "d", "e", "f", "g", "h", "i", "w-sum", "n5", WORKLOAD_EPOCH),
    ),
    "weir-rocksdb": ("a-100k",),
    "weir-hashmap-unchecked": ("a-100k",),
    "empty-same": (WORKLOAD_EPOCH,),
}
# One of each kind of program: functions with state, a declarative aggregate, timers.
QUICK_CHECKED = (("weir-hashmap", "a-100k"), ("weir-hashmap", "c-sum"), ("weir-hashmap", "h"))
# Whose start is timed: one contender of each environment.
STARTERS = ("weir-hashmap", "bytewax-2", "tws-row", "pyflink-thread-hashmap")
STARTER_WORKLOAD = "a-1k"

GROWTH = "measures how Weir's cost grows with the keys"
FILLING = "millions of keys take longer than minutes to fill"
SUM = "has no sum; its way is that of c-reduce"
BROADCAST = "has no broadcast state"
VARIANT = "a variant of Weir, for the workloads where it matters"
FLOOR = "a floor for declarative aggregates only"
EPOCHS = "not driven by epochs of a Spark query"
KINDS = "the kinds of state that differ in RocksDB"
FILES = "files on both ends are measured in Weir and on the floor"
CORES = "one core, for comparison"
MODE = "measured where the kind of state or the mode matters"
WINDOWS = "windows are compared with those of Flink, and with those of Spark on the JVM"
FUNCTION = "a Python function over windows, which no SQL has"
OPEN = "gives no results for windows of processing time that are open at the end: not to be checked"
NO_WINDOWS = "the other workloads are Python functions"
BOUNDED = "a floor for comparison, for one workload of each shape of rows"


# Environments whose contenders are not measured in windows.
NO_WINDOWS_OF = {"bytewax", "spark"}
QUERIED = ("w-sum", "n5", "n7", "n8", "n11")


@dataclass(frozen=True)
class Contender:
    """One way to do the work.

    Attributes:
        environment: name of the virtual environment.
        module: what its process runs.
        tier: how many rows it gets.
        refuses: reasons by workload; it does what is not in here.
        only: if given, the workloads it is for, and the reason why not for others.
    """

    name: str
    title: str
    environment: str
    module: str
    tier: str
    refuses: dict[str, str] = field(default_factory=dict)
    only: tuple[tuple[str, ...], str] | None = None

    @property
    def family(self) -> str:
        """Tell floors from others: they do another kind of work."""
        floor = self.title.startswith("floor") and self.environment == "weir"
        return "floor" if floor else self.environment

    def refusal(self, workload: str) -> str | None:
        """Return why it does not do the workload, None if it does."""
        if self.only is not None and workload not in self.only[0]:
            return self.only[1]
        if workload in self.refuses:
            return self.refuses[workload]
        known = BY_NAME.get(workload)
        if known is not None and known.files and self.environment != "weir":
            return FILES
        if known is not None and known.is_windowed and self.environment in NO_WINDOWS_OF:
            return WINDOWS
        if known is not None and known.prefill and not TIERS[self.tier][2]:
            return FILLING
        return None


def _weir(name: str, title: str, only: tuple[tuple[str, ...], str] | None = None) -> Contender:
    refuses = {} if name == "weir-hashmap" else {WORKLOAD_EPOCH: VARIANT}
    return Contender(name, title, "weir", "benchmarks.contenders.on_spark", "fast", refuses, only)


def _spark(
    name: str, title: str, tier: str, only: tuple[str, ...] = (), **refuses: str
) -> Contender:
    reasons = {"a-10k": GROWTH, "c-sum": SUM, "e": BROADCAST, WORKLOAD_EPOCH: GROWTH}
    reasons[WORKLOAD_EPOCH] = "measured against an empty Python stage instead"
    module = "benchmarks.contenders.on_spark"
    where = (only, MODE) if only else None
    return Contender(name, title, "spark", module, tier, reasons | refuses, where)


def _pyflink(mode: str, backend: str, tier: str, *, everywhere: bool = False) -> Contender:
    return Contender(
        f"pyflink-{mode}-{backend}",
        f"PyFlink, {mode} mode, {backend}",
        "pyflink",
        "benchmarks.contenders.pyflink_job",
        tier,
        {"a-10k": GROWTH, WORKLOAD_EPOCH: EPOCHS},
        None if everywhere else (("a-100k", "d"), MODE),
    )


def _bytewax(workers: int) -> Contender:
    return Contender(
        f"bytewax-{workers}",
        f"Bytewax, {workers} worker{'s' if workers > 1 else ''}",
        "bytewax",
        "benchmarks.contenders.bytewax_job",
        "medium",
        {"a-10k": GROWTH, "a-5m": GROWTH, "c-sum": SUM, "e": BROADCAST, WORKLOAD_EPOCH: EPOCHS},
        (("a-100k",), CORES) if workers == 1 else None,
    )


def _floor(
    name: str, title: str, only: tuple[tuple[str, ...], str], environment: str = "weir"
) -> Contender:
    return Contender(name, title, environment, "benchmarks.contenders.on_spark", "fast", {}, only)


ONE_ROW_FLOOR = ((WORKLOAD_EPOCH,), "a floor for epochs of one row only")


CONTENDERS = (
    Contender(
        "identity",
        "floor: shuffle and identity mapInArrow",
        "weir",
        "benchmarks.contenders.on_spark",
        "fast",
        {WORKLOAD_EPOCH: "measured against an empty Python stage instead"},
    ),
    _floor(
        "identity-bounded",
        "floor: the same, batches also bounded by bytes",
        (("a-100k", "c-sum", "g"), BOUNDED),
    ),
    _floor(
        "jvm",
        "floor: Spark's JVM aggregation",
        (("c-reduce", "c-sum", *QUERIED, "n12"), FLOOR),
    ),
    _weir("weir-hashmap", "Weir, hashmap"),
    _weir("weir-rocksdb", "Weir, RocksDB", (("a-100k", "a-5m", "b", "d"), KINDS)),
    _weir(
        "weir-hashmap-incremental",
        "Weir, hashmap, incremental checkpoints",
        (("a-100k", "a-10k", "a-5m"), VARIANT),
    ),
    _weir(
        "weir-hashmap-unchecked",
        "Weir, hashmap, no checkpoints",
        (("a-100k", "a-10k", "a-5m", "c-sum"), VARIANT),
    ),
    _weir("weir-rocksdb-unchecked", "Weir, RocksDB, no checkpoints", (("a-100k",), VARIANT)),
    _weir(
        "weir-hashmap-function",
        "Weir, hashmap, key by a function",
        (("a-100k", "g"), VARIANT),
    ),
    _weir(
        "weir-hashmap-files",
        "Weir, hashmap, files read by workers",
        (("a-100k", "c-sum", "w-sum"), VARIANT),
    ),
    _bytewax(1),
    _bytewax(2),
    _spark("tws-row", "Spark transformWithState (Row)", "batch"),
    _spark(
        "tws-pandas",
        "Spark transformWithStateInPandas",
        "slow batch",
        ("a-100k", "c-reduce", "d", "g"),
    ),
    _spark("apply", "Spark applyInPandasWithState", "slow batch", ("a-100k", "c-reduce", "d", "g")),
    _pyflink("thread", "hashmap", "slow", everywhere=True),
    _pyflink("thread", "rocksdb", "slow"),
    _pyflink("process", "hashmap", "slowest"),
    _pyflink("process", "rocksdb", "slowest"),
    Contender(
        "flink-sql",
        "Flink SQL, on the JVM",
        "pyflink",
        "benchmarks.contenders.pyflink_job",
        "sql",
        {"w-process": FUNCTION, "n12": OPEN},
        ((*QUERIED, "w-process", "n12"), NO_WINDOWS),
    ),
    _floor("empty-same", "floor: foreachBatch, empty Python stage, Weir's settings", ONE_ROW_FLOOR),
    _floor(
        "empty-default",
        "floor: foreachBatch, empty Python stage, Spark's defaults",
        ONE_ROW_FLOOR,
        "spark",
    ),
)
CONTENDER = {contender.name: contender for contender in CONTENDERS}
WORKLOADS = (*(workload.name for workload in ALL), WORKLOAD_EPOCH)


def title_of(workload: str) -> str:
    """Return what a workload is, in words."""
    if workload == WORKLOAD_EPOCH:
        return "an epoch of one row"
    return BY_NAME[workload].title


def size_for(workload: Workload, tier: str, mode: str) -> Size:
    """Return how much of a workload a tier gets."""
    if mode == "smoke":
        epochs, rows = SMOKE
        return Size(epochs, rows, min(_keys(workload, epochs * rows), SMOKE_KEYS))
    if mode == "quick":
        epochs, rows = QUICK
        rows = min(rows, workload.epoch_rows or rows)
        return Size(epochs, rows, _keys(workload, epochs * rows))
    epochs, rows, fills = TIERS[tier]
    rows = min(rows, workload.epoch_rows or rows)
    if workload.is_windowed and tier == "fast":
        epochs = WINDOWED_EPOCHS
    prefill = workload.prefill if fills else 0
    keys = _keys(workload, epochs * rows)
    if workload.kind == "flush":
        # Lists are flushed when a key has had ten rows: with few rows there are fewer keys.
        keys = min(keys, epochs * rows // 30)
    return Size(epochs + prefill, rows, keys, 1 + prefill)


def _keys(workload: Workload, rows: int) -> int:
    """Return how many keys so many rows have."""
    if workload.is_windowed:
        # Some windows have to end: fewer keys have more of them, see `timestamps` in rows.py.
        return min(workload.keys, rows // ROWS_OF_A_KEY)
    return workload.keys


def verification_size(workload: Workload, contender: Contender, mode: str) -> Size:
    """Return the size of the verifying run: the measured one for some, else that of a smoke run."""
    whole = mode == "full" and contender.name in CHECKED_WHOLE
    return size_for(workload, contender.tier, "full" if whole else "smoke")


def is_checked(mode: str, contender: str, workload: str) -> bool:
    """Tell whether a pair has a verifying run."""
    if workload == WORKLOAD_EPOCH:
        return False
    return mode != "quick" or (contender, workload) in QUICK_CHECKED


def rounds_for(mode: str, contender: Contender, workload: str, wanted: int | None = None) -> int:
    """Return how many times a pair is measured; a wanted number holds for fast contenders."""
    if mode == "smoke":
        return int(workload == WORKLOAD_EPOCH)
    if contender.tier not in EVERY_ROUND:
        return ROUNDS
    if wanted is not None:
        return wanted
    if mode == "quick":
        return 1
    return ROUNDS_FOR_AIMS if contender.name in AIMED_PAIRS.get(workload, ()) else ROUNDS


def warm_rounds(mode: str, contender: Contender, workload: str) -> int:
    """Return how many rounds of a pair come before those that count."""
    if mode != "full" or contender.tier not in EVERY_ROUND or workload == WORKLOAD_EPOCH:
        return 0  # Epochs of one row have a warm-up of their own in every run.
    return WARM_ROUNDS


def pairs(
    mode: str, letters: set[str], names: set[str], *, aims: bool = False
) -> list[tuple[Contender, str]]:
    """Return what is to run, workload by workload; empty sets select everything.

    With `aims` it is what the aims compare, without the peers.
    """
    chosen = []
    # What aims depend on comes first: a run that is interrupted has it.
    for workload in sorted(WORKLOADS, key=lambda name: name not in AIMED_PAIRS):
        letter = workload[0] if workload != WORKLOAD_EPOCH else WORKLOAD_EPOCH
        if letters and letter not in letters and workload not in letters:
            continue
        for contender in CONTENDERS:
            if names and contender.name not in names:
                continue
            if aims and contender.name not in AIMED_PAIRS.get(workload, ()):
                continue
            if mode == "quick" and workload not in QUICK_PAIRS.get(contender.name, ()):
                continue
            if contender.refusal(workload) is None:
                chosen.append((contender, workload))
    return chosen
