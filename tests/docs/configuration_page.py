"""Renders the configuration reference from the options themselves.

`python tests/docs/configuration_page.py` prints the page; `test_reference.py` compares.
"""

from weir.config import ALL_OPTIONS, ConfigOption
from weir.config import backend as b
from weir.config import checkpointing as c
from weir.config import execution as e
from weir.config import storage as s

IN_USE = {
    option.key
    for option in (
        *(e.PARALLELISM, e.MAX_PARALLELISM, e.PIPELINE_NAME, e.GLOBAL_JOB_PARAMETERS),
        *(e.RUNTIME_MODE, e.RESTART_STRATEGY, e.FIXED_DELAY_ATTEMPTS, e.FIXED_DELAY_DELAY),
        *(e.FAILURE_RATE_MAX, e.FAILURE_RATE_INTERVAL, e.FAILURE_RATE_DELAY),
        *(e.EXPONENTIAL_INITIAL, e.EXPONENTIAL_MAX, e.EXPONENTIAL_MULTIPLIER),
        *(e.EXPONENTIAL_RESET, e.EXPONENTIAL_JITTER, e.EXPONENTIAL_ATTEMPTS),
        *(e.TRIGGER, e.SLOT_LEASE, e.SLOT_HEARTBEAT, e.LOG_DIR, e.SOURCE_BATCH_ROWS),
        *(c.INTERVAL, c.TIMEOUT, c.MIN_PAUSE, c.MAX_CONCURRENT, c.TOLERABLE_FAILURES),
        *(c.RETENTION, c.NUM_RETAINED, c.CHECKPOINT_DIR, c.RECOVERY_PATH),
        *(c.IGNORE_UNCLAIMED_STATE, b.STATE_BACKEND, e.PYTHON_FILES, e.WORK_DIR),
        *(s.S3_ENDPOINT, s.S3_REGION, s.S3_ACCESS_KEY, s.S3_SECRET_KEY, s.S3_PATH_STYLE),
        *(s.WEBHDFS_ADDRESS, c.INCREMENTAL, c.STORAGE, c.CLAIM_MODE, c.DATA_INLINE_THRESHOLD),
        *(c.SNAPSHOT_COMPRESSION, c.MEMORY_STATE_SIZE, c.FILE_MERGING),
        *(c.FILE_MERGING_MAX_FILE_SIZE, c.FILE_MERGING_MAX_AMPLIFICATION),
        *(b.CHANGELOG, b.TMP_DIRS),
        *(b.CHANGELOG_MATERIALIZE, b.CHANGELOG_MATERIALIZE_INTERVAL, b.CHANGELOG_MAX_FAILURES),
        *(b.CHANGELOG_PERSIST_THRESHOLD, b.CHANGELOG_UPLOAD_ATTEMPTS),
        b.CHANGELOG_UPLOAD_IN_FLIGHT,
    )
}
# What RocksDB's binding or Weir's way of restoring has no place for.
WITHOUT_EFFECT = {
    b.ROCKSDB_ASYNC_COMPACT,
    b.ROCKSDB_DELETE_IN_RANGE,
    b.ROCKSDB_HIGH_PRIO_RATIO,
    b.ROCKSDB_INGEST_RESTORE,
    b.ROCKSDB_LOG_LEVEL,
    b.ROCKSDB_OVERLAP_THRESHOLD,
}
IN_USE |= {
    option.key
    for name, option in vars(b).items()
    if name.startswith("ROCKSDB_") and option not in WITHOUT_EFFECT
}
# Read, and answered with a warning: the job runs as if they were not set.
WARNED = {option.key for option in (*(c.MODE, c.UNALIGNED, c.LOCAL_BACKUP),)}

HEAD = """\
# Configuration

Keys, defaults and old spellings are Flink's; keys that begin with `weir.` are Weir's own. There are
four places for them, each stronger than the one before:

1. `weir-conf.yaml` in the directory that `WEIR_CONF_DIR` names, else in the working directory, as
   lines of `key: value` or nested;
2. `-D key=value` of [`weir run`](command-line.md);
3. Spark's configuration: `spark.weir.<key>`, where the `weir.` of Weir's own keys may be left out;
4. the program:

```python
from weir.common import Configuration
from weir.datastream import StreamExecutionEnvironment

config = Configuration()
config.set_string("execution.checkpointing.interval", "30 s")
env = StreamExecutionEnvironment.get_execution_environment(config)
```

Methods of the environment and of `env.get_checkpoint_config()` set the same keys; the later call
wins. A value that does not parse is refused when the job starts. So is an unknown key below
`weir.`, or one that is nearly a known key; other unknown keys of Flink's namespaces are worth a
warning. An option's own key is stronger than its old spellings.

This page is made from the options in `src/weir/config` by `tests/docs/configuration_page.py`, and a
test compares the two.
"""

READ = """\
## Options in use

What this release reads.
"""

ACCEPTED = """\
## Accepted options

These are known, so that a configuration written for Flink is accepted and its values are
checked, but nothing in this release depends on them. `execution.checkpointing.mode` and
`execution.checkpointing.unaligned.enabled` give a warning when they ask for something else than
exactly-once, aligned checkpoints.
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
        text = f"{option.description}{choices}{also}"
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
    print(render(), end="")
