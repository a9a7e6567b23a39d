"""Options of Flink's command line that mean nothing on Spark: taken, and said to change nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])
_YARN = "Spark's master decides where a program runs: use --master"
_ADDRESS = "jobs are found on this host, or at -m HOST:PORT"
_JAVA = "there is no Java in a program"

# Spellings, whether a value follows, and why it changes nothing.
_OF_JOBS = (
    (("-yid", "--yarnapplicationId"), True, _ADDRESS),
    (("-z", "--zookeeperNamespace"), True, _ADDRESS),
    (("-e", "--executor"), True, _ADDRESS),
    (("-target", "--target"), True, _ADDRESS),
)
_OF_PROGRAMS = (
    (("-yid", "--yarnapplicationId"), True, _YARN),
    (("-ynm", "--yarnname"), True, _YARN),
    (("-yjm", "--yarnjobManagerMemory"), True, "set spark.driver.memory"),
    (("-ytm", "--yarntaskManagerMemory"), True, "set spark.executor.memory"),
    (("-ys", "--yarnslots"), True, "set spark.executor.cores"),
    (("-yqu", "--yarnqueue"), True, "set spark.yarn.queue"),
    (("-ynl", "--yarnnodeLabel"), True, "set spark.yarn.executor.nodeLabelExpression"),
    (("-yat", "--yarnapplicationType"), True, _YARN),
    (("-yt", "--yarnship"), True, "set spark.files"),
    (("-yj", "--yarnjar"), True, "set spark.jars"),
    (("-yq", "--yarnquery"), False, _YARN),
    (("-yd", "--yarndetached"), False, "use -d"),
    (("-yz", "--yarnzookeeperNamespace"), True, _YARN),
    (("-z", "--zookeeperNamespace"), True, _YARN),
    (("-t", "-target", "--target"), True, _YARN),
    (("-e", "--executor"), True, _YARN),
    (("-c", "-class", "--class"), True, _JAVA),
    (("-C", "-classpath", "--classpath"), True, "set spark.jars"),
    (("-j", "--jarfile"), True, "set spark.jars"),
    (("-q", "--sysoutLogging"), False, "logging belongs to the program"),
    (("-sae", "-shutdownOnAttachedExit", "--shutdownOnAttachedExit"), False, _YARN),
)


def _taken(options: tuple[tuple[tuple[str, ...], bool, str], ...]) -> Callable[[_F], _F]:
    def decorate(command: _F) -> _F:
        names = {f"ignored_{i}": option for i, option in enumerate(options)}

        @functools.wraps(command)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            for name, (spellings, _, reason) in names.items():
                if kwargs.pop(name, None):
                    click.echo(f"weir: {spellings[-1]} has no effect: {reason}", err=True)
            return command(*args, **kwargs)

        made: Any = wrapper
        for name, (spellings, has_value, _) in names.items():
            made = click.option(*spellings, name, is_flag=not has_value, hidden=True)(made)
        return made  # type: ignore[no-any-return]

    return decorate


job_options = _taken(_OF_JOBS)
"""Give a command that speaks to jobs the options by which Flink finds its cluster."""

program_options = _taken(_OF_PROGRAMS)
"""Give a command that runs programs the options by which Flink chooses and sizes its cluster."""
