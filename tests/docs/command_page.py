"""Renders the reference of the command line from the commands themselves.

`python tests/docs/command_page.py` prints the page, with `--write` it goes to
`docs/reference/command-line.md`; `test_reference.py` compares.
"""

import sys
from pathlib import Path

import click

from weir.cli.main import cli

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "command-line.md"

HEAD = """\
# Command line

`weir` is installed with the package; in a checkout it is `.venv/bin/weir` after `make setup`.

This page is made from the commands by `tests/docs/command_page.py`, and a test compares the two.

## Jobs

Commands find the jobs of this user on this host by themselves. For a job elsewhere name its
JobManager with `-m HOST:PORT` (or `WEIR_JOBMANAGER`), and its token with `WEIR_TOKEN`. JOB is an
id, the beginning of an id (at least four digits), or the name of one running job.

Every command that tells a result has `--json`: then one JSON document is all of standard output.
Messages and progress go to standard error. Whatever takes longer than two seconds shows that it is
under way; Ctrl-C ends the waiting, not the operation, and says where to look.

Options with one dash and several letters, such as `-type` and `-full`, are Flink's; two dashes work
as well.

## Exit codes

Weir's own errors end a command with one message and no traceback of the engine:

| code | meaning | what to do |
|---|---|---|
| 0 | done | |
| 1 | job failed or was canceled; function, request or check failed; no JobManager | read on |
| 2 | `UsageError` | fix the program or the command |
| 3 | `IncompatibleStateError` | fix the types, the parallelism or the uids |
| 4 | `CorruptStateError` | restore another checkpoint |
| 5 | `StorageError` | repair the environment and try again |
| 130 | waiting was interrupted; the operation goes on | `weir list` |
"""

NOTES = {
    "run": """\
`weir run -p 4 -s checkpoints/<job id>/chk-17 job.py` starts a program from a retained checkpoint
with a parallelism of 4; a savepoint's directory or its `_metadata` file do as well. Options behind
JOB belong to the program. `weir run -py job.py ARGS` is PyFlink's spelling, `-Dkey=value` without a
space is Flink's. Who owns PATH is explained under `execution.state-recovery.claim-mode`.

With `-d` the program runs in a session of its own, so it survives the terminal. The command waits
until the job has started, prints its id, and says where the log is. If the program ends before
that, the command shows the end of the log and has the program's exit code.
""",
    "list": """\
With a JobManager named by `-m` these are its jobs; otherwise the jobs of this user on this host,
where the last twenty that have ended are remembered too.
""",
    "savepoint": """\
`weir savepoint JOB /savepoints` writes `/savepoints/savepoint-<6 digits of the job>-<12 digits>`. A
relative directory is meant from where the command runs. A detached savepoint prints the request id
and the address where REST tells the result. `weir savepoint -d PATH` deletes a savepoint unless a
job still needs it; without `-m` no JobManager is asked for that.
""",
    "stop": """\
The savepoint's path is the last thing the job tells. With `--drain` all timers fire and windows
close first; a job that is to go on from the savepoint should be stopped without it.
""",
    "cancel": """\
`weir cancel -s JOB` uses the configured directory, `weir cancel -s DIRECTORY JOB` another one. If
the savepoint fails, the job is not canceled.
""",
    "info": """\
`!` marks operators that can have state and have no uid: after a change of the program their state
may not be found again. What the program prints goes to standard error. The JSON has the nodes that
Flink's plan has, with `uid`, `operator_id`, `stateful`, `needs_uid` and `key_fields` in addition.
""",
    "completion": """\
| shell | what to do |
|---|---|
| bash | `eval "$(weir completion bash)"` in `~/.bashrc` |
| zsh | `eval "$(weir completion zsh)"` in `~/.zshrc` |
| fish | `weir completion fish > ~/.config/fish/completions/weir.fish` |

Job ids are completed too, with the names of the jobs beside them where the shell shows such.
""",
    "demo": """\
The demonstration streams seeded card payments past broadcast rules into exactly-once Parquet files,
kills a slot while the job runs, stops the job with a savepoint, goes on from it in a new job with
one subtask more, and recounts the output from the input without using Weir.

With `--kafka` it starts a Kafka broker, keeps a running total for every card between two topics
exactly once, kills a slot, then the broker, starts that again, and compares what a reader of
committed records sees with what was sent. The broker's jars come by Maven, once, into `weir` of the
user's cache; Java, Maven and the extra `kafka` are looked for before anything starts. The broker
ends with the command, however that ends.
""",
    "doctor": """\
Run it first when something does not start. Every problem comes with what to do about it.
""",
}


def help_of(name: str, command: click.Command) -> str:
    """Return what `--help` shows, at a fixed width."""
    settings = {**command.context_settings, "terminal_width": 96}
    return command.get_help(click.Context(command, info_name=name, **settings))


def sections(name: str, command: click.Command) -> list[str]:
    """Return the section of a command, and those of the commands below it."""
    text = help_of(f"weir {name}", command).rstrip()
    parts = [f"## weir {name}\n\n```\n{text}\n```\n"]
    if name in NOTES:
        parts.append(NOTES[name])
    if isinstance(command, click.Group):
        for inner, one in sorted(command.commands.items()):
            parts += sections(f"{name} {inner}", one)
    return parts


def render() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for name, command in sorted(cli.commands.items()):
        parts += sections(name, command)
    return "\n".join(parts)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(render(), "utf-8")
    else:
        print(render(), end="")
