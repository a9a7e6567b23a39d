"""Renders the reference of the command line from the commands themselves.

`python tests/docs/command_page.py` prints the page; `test_reference.py` compares.
"""

import click

from weir.cli.main import cli

HEAD = """\
# Command line

`weir` is installed with the package; in a checkout it is `.venv/bin/weir` after `make setup`.

This page is made from the commands by `tests/docs/command_page.py`, and a test compares the two.

## Exit codes

Weir's own errors end a command with one message and no traceback of the engine:

| code | meaning | what to do |
|---|---|---|
| 0 | done | |
| 1 | the job or one of its functions failed, or a check found a problem | read the message |
| 2 | `UsageError` | fix the program or the command |
| 3 | `IncompatibleStateError` | fix the types, the parallelism or the uids |
| 4 | `CorruptStateError` | restore another checkpoint |
| 5 | `StorageError` | repair the environment and try again |
"""

NOTES = {
    "run": """\
`weir run -p 4 -s checkpoints/<job id>/chk-17 job.py` starts a program from a retained checkpoint
with a parallelism of 4. The long name of `-s` is Flink's; this release has no savepoints, so PATH
is a checkpoint. Options behind JOB belong to the program.
""",
    "demo": """\
The demonstration streams seeded card payments past broadcast rules into exactly-once Parquet files,
kills a slot while the job runs, and recounts the output from the input without using Weir.
""",
    "doctor": """\
Run it first when something does not start. Every problem comes with what to do about it.
""",
}


def help_of(name: str, command: click.Command) -> str:
    """Return what `--help` shows, at a fixed width."""
    settings = {**command.context_settings, "terminal_width": 96}
    return command.get_help(click.Context(command, info_name=name, **settings))


def render() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for name, command in sorted(cli.commands.items()):
        text = help_of(f"weir {name}", command).rstrip()
        parts.append(f"## weir {name}\n\n```\n{text}\n```\n")
        if name in NOTES:
            parts.append(NOTES[name])
    return "\n".join(parts)


if __name__ == "__main__":
    print(render(), end="")
