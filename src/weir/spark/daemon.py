"""The process that Spark forks its Python workers from, with the expensive imports done.

Spark starts it instead of `pyspark.daemon` in sessions that Weir made on this machine. A fresh
worker would otherwise import Arrow, pandas and Weir before its first epoch, twice one after the
other after every failure.
"""

from __future__ import annotations

import gc

import pandas

import weir.connector.spool
import weir.spark.worker
from weir.spark.internals import fork_workers

__all__ = ["pandas", "weir"]

if __name__ == "__main__":
    # Spark collects garbage after every task; what was imported here need not be looked at again.
    gc.collect()
    gc.freeze()
    fork_workers()
