"""`weir state get`: the state of a running job, by key."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import click

from weir.cli.client import RestClient
from weir.cli.errors import HELP_OPTIONS
from weir.cli.lookup import Where, jobmanager_options
from weir.cli.options import job_argument
from weir.cli.state import as_json_option, say
from weir.cli.state_edit import state
from weir.cli.state_text import columns
from weir.errors import UsageError

__all__ = ["state"]


@state.command("get", context_settings=HELP_OPTIONS)
@job_argument
@click.argument("name", metavar="[STATE]", required=False)
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option(
    "--live/--committed",
    "live",
    default=True,
    help="What slots hold now (default), or the last completed checkpoint.",
)
@click.option("--max-age", type=click.IntRange(min=0), metavar="MS", help="Refuse what is older.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="At most so many rows; all of a KEY, else 1000 by default.",
)
@click.option("--prefix", help="Keys that begin with this text, instead of KEY.")
@click.option("--low", help="Keys from this one on, instead of KEY.")
@click.option("--high", help="Keys before this one, instead of KEY.")
@as_json_option
@jobmanager_options
def get(job: str, name: str | None, where: Where, as_json: bool, **asked: Any) -> None:
    """Print STATE of the running JOB under one KEY or several; without any, of all keys.

    The job needs queryable-state.enable, and the state a name by set_queryable, or
    weir.queryable-state.states: all. Without STATE it lists what can be asked for.
    """
    found = where.find(job)
    path = f"/jobs/{found.job_id}/state"
    if name is None:
        _say_states(found.client.get(path), as_json)
        return
    answer = _asked(found.client, f"{path}/{urllib.parse.quote(name, safe='')}", asked)
    if as_json:
        click.echo(json.dumps(answer))
        return
    head, rows = answer["columns"], answer["rows"]
    say(columns(head, [[_cell(row[column]) for column in head] for row in rows]))
    say([_truth(answer, len(rows))])
    if answer["truncated"]:
        say(["There are more rows: raise --limit, or ask for a range with --low and --high."])


def _asked(client: RestClient, path: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Ask for some keys, all of the same moment, or for a range of them."""
    terms = {"level": "live" if asked["live"] else "committed"}
    terms |= {n: asked[n] for n in ("limit", "prefix", "low", "high") if asked[n] is not None}
    found: dict[str, Any]
    if asked["keys"]:
        _refuse_both(asked)
        if asked["max_age"] is not None:
            terms["max-age-ms"] = asked["max_age"]
        found = client.post(path, {**terms, "key-texts": list(asked["keys"])})
        return found
    if asked["max_age"] is not None:
        terms["max-age"] = asked["max_age"]
    found = client.get(f"{path}?{urllib.parse.urlencode(terms)}")
    return found


def _refuse_both(asked: dict[str, Any]) -> None:
    given = [f"--{name}" for name in ("prefix", "low", "high") if asked[name] is not None]
    if given:
        msg = f"KEY and {', '.join(given)} do not go together: name keys, or a range of them"
        raise UsageError(msg)


def _say_states(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(answer))
        return
    rows = [
        [s["name"], s["kind"], s["types"].get("key", ""), s["types"].get("value", "")]
        for s in answer["states"]
    ]
    say(columns(["name", "kind", "key", "value"], rows) if rows else ["No state can be queried."])


def _truth(answer: dict[str, Any], count: int) -> str:
    what = "1 row" if count == 1 else f"{count:,} rows"
    number, age = answer["checkpoint-id"], f"{answer['age-ms']:,} ms old"
    if answer["level"] == "live":
        return f"{what}, live, epoch {answer['epoch']}, last checkpoint {number}, {age}"
    return f"{what} of checkpoint {number}, epoch {answer['epoch']}, {age}"


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
