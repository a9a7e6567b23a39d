"""What can be known of Spark before it runs: importing this module imports no Spark."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

from weir.config import ambient
from weir.errors import UsageError

_SETTING = re.compile(r"\s*(spark\.weir\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(.*?)\s*\Z")


def refuse_shared_threads() -> None:
    """Refuse programs whose threads share those of Spark.

    Raises:
        UsageError: they do.
    """
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        msg = (
            "PYSPARK_PIN_THREAD is off: unset it, since Weir tells the jobs of a Spark thread "
            "their epoch, and every thread of the program needs one of its own for that"
        )
        raise UsageError(msg)


def expected_settings() -> dict[str, str] | None:
    """Return what the configuration of a Spark that Weir starts will say about Weir.

    None if Spark runs already, or if somebody else starts it: then it is asked.
    """
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    others = "--properties-file" in arguments or ambient.SPARK_PREFIX in arguments
    if others or "PYSPARK_GATEWAY_PORT" in os.environ or _is_running():
        return None
    found = {}
    for line in _defaults_file_lines():
        match = _SETTING.match(line)
        if match is not None:
            found[match[1]] = match[2]
    return found


def _is_running() -> bool:
    """Tell whether this process has a SparkContext; asks nobody who is not there yet."""
    if "pyspark" not in sys.modules:
        return False
    from weir.spark.internals import has_context

    return has_context()


def _defaults_file_lines() -> list[str]:
    """Return the lines of the file that Spark would read its defaults from."""
    chosen = os.environ.get("SPARK_CONF_DIR")
    home = os.environ.get("SPARK_HOME")
    if not chosen and not home:
        spec = importlib.util.find_spec("pyspark")
        home = None if spec is None or spec.origin is None else str(Path(spec.origin).parent)
    folder = chosen or (f"{home}/conf" if home else None)
    if folder is None:
        return []
    try:
        return Path(folder, "spark-defaults.conf").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
