"""Shared by the harness tests: start a program, run it, look at it by key."""

from __future__ import annotations

from weir.datastream import StreamExecutionEnvironment
from weir.testing.harness import HarnessOptions, JobHarness


def environment():
    return StreamExecutionEnvironment()


def started(env, parallelism=2, **options):
    return JobHarness(env.build_graph(), parallelism, HarnessOptions(**options)).start()


def run(env, parallelism=2, take=None, **options):
    return started(env, parallelism, **options).run(take)


def by_key(records, key=0):
    found = {}
    for record in records:
        found.setdefault(record[key], []).append(record)
    return found
