"""The Spark session of an environment, found through the engine and only when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from weir.common.configuration import Configuration


def active_session(configuration: Configuration) -> Any:
    """Return the active Spark session, or a new local one; imports Spark."""
    session = importlib.import_module("weir.spark.session")
    return session.get_spark(configuration)
