"""State ten times the configured memory, with resident memory that stays flat.

Writes values under random keys until the database is ten times the budget, reads and changes
random ones among them, takes an incremental checkpoint, and prints resident memory all along.
Usage: python benchmarks/rocksdb_memory.py [--budget-mb 32] [--times 10] [--value-bytes 4000]
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from weir.backend.base import SnapshotKind
from weir.backend.factory import BackendContext, BackendSettings, create_backend
from weir.common.typeinfo import Types
from weir.keygroup import KeyGroupRange, key_group
from weir.state.descriptor import ValueStateDescriptor

MB = 1 << 20
GROUPS = 128


def resident_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


def main() -> None:
    """Run and print a line per tenth of the state."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget-mb", type=int, default=32)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--value-bytes", type=int, default=4000)
    args = parser.parse_args()
    options = {
        "state.backend.rocksdb.memory.fixed-per-slot": args.budget_mb * MB,
        "state.backend.rocksdb.compression.per.level": "NO_COMPRESSION",
    }
    with tempfile.TemporaryDirectory() as directory:
        settings = BackendSettings("rocksdb", incremental=True, options=options)
        context = BackendContext(settings, local_dir=Path(directory))
        backend: Any = create_backend(context, Types.LONG(), KeyGroupRange(0, GROUPS - 1))
        state = backend.state(ValueStateDescriptor("v", Types.STRING()))
        run(backend, state, args)
        backend.close()


def run(backend: Any, state: Any, args: argparse.Namespace) -> None:
    """Write, read and change."""
    rng = random.Random(7)
    total = args.budget_mb * args.times * MB // args.value_bytes
    text = "".join(rng.choice("0123456789abcdef") for _ in range(args.value_bytes))
    print(f"budget {args.budget_mb} MB, {total} keys, resident before {resident_mb():.0f} MB")

    def update(number: int) -> None:
        backend.current.key, backend.current.group = number, key_group(number, GROUPS)
        state.update(f"{number}{text}")

    start = time.perf_counter()
    for number in range(total):
        update(number)
        if number % 5000 == 0:
            backend.end_epoch()
        if (number + 1) % (total // args.times) == 0:
            size = backend.approximate_bytes() / MB
            print(f"state {size:6.0f} MB  resident {resident_mb():6.0f} MB")
    written = time.perf_counter()
    for number in range(total // 5):
        key = rng.randrange(total)
        backend.current.key, backend.current.group = key, key_group(key, GROUPS)
        if not state.value().startswith(str(key)):
            msg = f"key {key} has a wrong value"
            raise SystemExit(msg)
        if number % 2:
            update(key)
    backend.end_epoch()
    read = time.perf_counter()
    backend.snapshot(1, SnapshotKind.INCREMENTAL).release()
    print(f"after {total // 5} random reads, half of them changed: {resident_mb():.0f} MB resident")
    print(f"writes {total / (written - start):.0f}/s, reads {total // 5 / (read - written):.0f}/s")
    print(f"sync phase of an incremental checkpoint {time.perf_counter() - read:.3f} s")


if __name__ == "__main__":
    main()
