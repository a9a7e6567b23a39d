"""Whether Spark's Python workers have Weir: asked once a session, before the first epoch."""

from __future__ import annotations

import os
import shutil
import sys

from pyspark.sql import SparkSession

from weir.jobmanager.failures import of_workers
from weir.spark.session import is_local

_asked: set[str] = set()


def check_workers(spark: SparkSession) -> None:
    """Refuse a session whose workers run a Python without Weir.

    Local workers that run this program's Python are not asked. A session that somebody else made
    may have chosen another one.

    Raises:
        UsageError: they have no Weir; says what to set.
        WeirError: a worker cannot be started.
    """
    context = spark.sparkContext
    application = str(context.applicationId)
    if application in _asked or (is_local(spark) and _is_this(str(context.pythonExec))):
        return
    try:
        context.parallelize([0], 1).map(_answer).collect()
    except Exception as error:
        raise of_workers(error) from error
    _asked.add(application)


def _is_this(executable: str) -> bool:
    """Tell whether an executable is in the directory of this program's: links would mislead."""
    found = shutil.which(executable)
    return found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)


def _answer(number: int) -> int:
    """Run in a worker, which has to import this module for it."""
    return number
