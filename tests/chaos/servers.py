"""A broker and a database for a run, or the reason why they cannot be had here."""

from __future__ import annotations

import glob
import importlib.util
import shutil
from collections.abc import Callable

_NEEDED: tuple[tuple[Callable[[], object], str], ...] = (
    (lambda: importlib.util.find_spec("confluent_kafka"), "the package confluent-kafka"),
    (lambda: importlib.util.find_spec("psycopg"), "the package psycopg"),
    (lambda: shutil.which("java"), "java"),
    (lambda: shutil.which("mvn"), "mvn, by which Kafka's jars come"),
    (
        lambda: glob.glob("/usr/lib/postgresql/*/bin/initdb") or shutil.which("initdb"),
        "initdb (package postgresql)",
    ),
)


def without_servers() -> str:
    """Say why there can be no broker or no database here; "" if there can."""
    missing = [what for found, what in _NEEDED if not found()]
    return f"a broker and a database need {', '.join(missing)}" if missing else ""
