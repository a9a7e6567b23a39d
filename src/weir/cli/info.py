"""`weir info`: what a program would run, without running it.

The program's own code runs up to `execute()`. Spark starts only if the program asks for a session.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from weir.cli.configuration import overrides
from weir.cli.errors import HELP_OPTIONS
from weir.cli.options import (
    json_option,
    parallelism_option,
    program_words,
    python_option,
    settings_option,
)
from weir.cli.program import program_argument, run_program
from weir.errors import UsageError

_COLUMNS = ("id", "operator", "uid", "parallelism", "input")


@click.command(context_settings={**HELP_OPTIONS, "allow_interspersed_args": False})
@parallelism_option
@settings_option
@python_option
@json_option
@program_words
def info(
    words: tuple[str, ...],
    file: str | None,
    parallelism: int | None,
    definitions: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the operators of the program JOB, called with its own ARGS, without running it.

    The program runs up to its first execute(). An empty parallelism is what Spark decides.
    """
    job, args = program_argument(file, words)
    values = overrides(definitions, parallelism=parallelism)
    plan = plan_of(job, args, values)
    if as_json:
        click.echo(json.dumps(plan, indent=2))
    else:
        click.echo(as_text(plan))


class _PlanSeen(BaseException):
    """Ends the program where it would have run; no handler for `Exception` catches it."""


class _Spectator:
    """An engine that looks at the first program and runs none."""

    def __init__(self) -> None:
        self.plan: dict[str, Any] | None = None

    def submit(self, graph: Any, configuration: Any) -> NoReturn:
        """Remember the plan."""
        if self.plan is None:
            self.plan = _describe(graph, configuration)
        raise _PlanSeen


def plan_of(job: Path, args: tuple[str, ...], settings: dict[str, str]) -> dict[str, Any]:
    """Return the plan of the first program that a file executes, in Flink's shape and more.

    What the program prints goes to standard error.

    Raises:
        UsageError: the file executes no program.
    """
    from weir.datastream._spark_session import engine_instead_of_spark

    spectator = _Spectator()
    with (
        contextlib.suppress(_PlanSeen),
        contextlib.redirect_stdout(sys.stderr),
        engine_instead_of_spark(spectator),
    ):
        run_program(job, args, settings)
    if spectator.plan is None:
        msg = f"the program {str(job)!r} ended without execute(): there is no plan to show"
        raise UsageError(msg)
    return spectator.plan


def _describe(graph: Any, configuration: Any) -> dict[str, Any]:
    from weir.config import ambient, execution
    from weir.config.effective import Settings
    from weir.graph.plan import compile_plan
    from weir.graph.uids import is_stateful, without_uid

    settings = Settings([*ambient.layers(), ambient.program_layer(configuration.to_dict())])
    settings.validate()
    given = settings.is_set(execution.PARALLELISM)
    default = settings.get(execution.PARALLELISM) if given else None
    plan = compile_plan(graph, default or 1)
    loose = {t.id for t in without_uid(graph, sources=False)}
    facts = {
        t.id: {
            "parallelism": t.parallelism or graph.parallelism or default,
            "uid": t.uid,
            "stateful": is_stateful(t),
            "needs_uid": t.id in loose,
        }
        for t in graph.transformations
    }
    nodes = [_node(plan, op, facts[op.transformation_id]) for op in plan.operators]
    return {"name": graph.job_name, "nodes": nodes}


def _node(plan: Any, op: Any, facts: dict[str, Any]) -> dict[str, Any]:
    inputs = plan.inputs_of(op.index)
    node: dict[str, Any] = {
        "id": op.transformation_id,
        "type": op.name,
        "pact": _pact(plan, op),
        "contents": op.options.get("description", op.name),
        "operator_id": op.id,
        **facts,
    }
    if inputs:
        node["predecessors"] = [
            {
                "id": plan.operators[edge.source].transformation_id,
                "ship_strategy": edge.partitioning.name,
                "side": "second" if edge.input_index else "first",
                **({"key_fields": _key_fields(edge.key)} if edge.key else {}),
            }
            for edge in inputs
        ]
    return node


def _pact(plan: Any, op: Any) -> str:
    from weir.graph.kinds import SOURCE

    if op.kind == SOURCE.name:
        return "Data Source"
    return "Operator" if plan.outputs_of(op.index) else "Data Sink"


def _key_fields(key: Any) -> list[str | int] | None:
    """Return the fields that make the key; None when a function of the program computes it."""
    return None if key.fields is None else list(key.fields)


def as_text(plan: dict[str, Any]) -> str:
    """Return a plan as a table, with a word about operators whose state could not be found."""
    rows = [_COLUMNS, *(_row(node) for node in plan["nodes"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [f"Job {plan['name']!r}"]
    lines += [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    loose = [node for node in plan["nodes"] if node["needs_uid"]]
    if loose:
        names = ", ".join(f"{node['type']!r} ({node['id']})" for node in loose)
        lines.append(f"! has state that a changed program may not find again: {names}.")
        lines.append("  Give them a uid: .uid('a name that stays')")
    return "\n".join(lines)


def _row(node: dict[str, Any]) -> tuple[str, ...]:
    uid = node["uid"] or ("!" if node["needs_uid"] else "")
    inputs = ", ".join(_input(edge) for edge in node.get("predecessors", []))
    return (str(node["id"]), node["type"], uid, str(node["parallelism"] or ""), inputs)


def _input(edge: dict[str, Any]) -> str:
    if "key_fields" not in edge:
        return f"{edge['id']} {edge['ship_strategy']}"
    fields = edge["key_fields"]
    by = "a function" if fields is None else ", ".join(map(str, fields))
    return f"{edge['id']} {edge['ship_strategy']} by {by}"
