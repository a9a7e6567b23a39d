"""Renders the configuration reference from the options themselves.

`python tests/docs/configuration_page.py` prints the page, with `--write` it goes to
`docs/reference/configuration.md`; `test_reference.py` compares.
"""

import sys
from pathlib import Path

from weir.config import ALL_OPTIONS, ConfigOption
from weir.config.effects import WITHOUT_EFFECT

IN_USE = {option.key for option in ALL_OPTIONS} - set(WITHOUT_EFFECT)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "configuration.md"

HEAD = """\
# Configuration

Keys, defaults and old spellings are Flink's; keys that begin with `weir.` are Weir's own. There are
five places for them, each stronger than the one before:

1. [`weir-conf.yaml`](weir-conf.yaml), as lines of `key: value` or nested;
2. Spark's configuration: `spark.weir.<key>`, where the `weir.` of Weir's own keys may be left out;
3. the environment: `WEIR_EXECUTION_CHECKPOINTING_INTERVAL` for
   `execution.checkpointing.interval`, or lines of `key: value` in `WEIR_PROPERTIES`;
4. `-D key=value` of [`weir run`](command-line.md);
5. the program:

```python
from weir.common import Configuration
from weir.datastream import StreamExecutionEnvironment

config = Configuration()
config.set_string("execution.checkpointing.interval", "30 s")
env = StreamExecutionEnvironment.get_execution_environment(config)
```

Methods of the environment and of `env.get_checkpoint_config()` set the same keys; the later call
wins. [Configuring jobs](../operating/configuration.md) tells where the file is looked for and what
happens to mistakes.

This page is made from the options in `src/weir/config` by `tests/docs/configuration_page.py`, and a
test compares the two.
"""

READ = """\
## Options in use

What this release reads.
"""

ACCEPTED = """\
## Options without effect

These are known, so that a configuration written for Flink is accepted and its values are
checked, but nothing depends on them. A job that sets some of them to something else than the
default says so once, in one warning.
"""

TYPES = """\
## Types

| type | form |
|---|---|
"""


def shown(option: ConfigOption) -> str:
    """Show a default as a user would write it."""
    value = option.default
    if value is None or value in ((), {}):
        return "none"
    if option.type.name == "duration":
        return _scaled(value, ((3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")))
    if option.type.name == "memory":
        return _scaled(value, ((1 << 20, "mb"), (1 << 10, "kb"), (1, "bytes")))
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _least(option: ConfigOption) -> str:
    if option.minimum is None:
        return ""
    unit = " ms" if option.type.name == "duration" else ""
    switch = "" if option.off is None else f", or {option.off} for none"
    return f" At least {option.minimum}{unit}{switch}."


def _scaled(value: int, units: tuple[tuple[int, str], ...]) -> str:
    if value == 0:
        return "`0`"
    size, name = next((s, n) for s, n in units if value % s == 0)
    return f"`{value // size} {name}`"


def table(options: list[ConfigOption]) -> str:
    """One row per option, with old spellings below the key."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for option in options:
        kind = option.type.name
        choices = f" {option.type.form[0].upper()}{option.type.form[1:]}." if kind == "enum" else ""
        old = ", ".join(f"`{key}`" for key in option.deprecated_keys)
        also = f" Also {old}." if old else ""
        reason = WITHOUT_EFFECT.get(option.key)
        why = f" Without effect: {reason}." if reason else ""
        text = f"{option.description}{choices}{_least(option)}{also}{why}"
        rows.append(f"| `{option.key}` | {kind} | {shown(option)} | {text} |")
    return "\n".join(rows) + "\n"


def render() -> str:
    """Return the whole page."""
    used = [o for o in ALL_OPTIONS if o.key in IN_USE]
    rest = [o for o in ALL_OPTIONS if o.key not in IN_USE]
    forms = {o.type.name: o.type.form for o in ALL_OPTIONS if o.type.name != "enum"}
    types = "".join(f"| {name} | {form} |\n" for name, form in sorted(forms.items()))
    enums = "| enum | one of the names given; case, dashes and underscores do not matter |\n"
    parts = [HEAD, TYPES + types + enums, READ, table(used), ACCEPTED, table(rest)]
    return "\n".join(parts)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(render(), "utf-8")
    else:
        print(render(), end="")
