"""Write down the configuration keys of Flink, from its sources in a git repository.

    python scripts/flink_keys.py FLINK_GIT_DIR > tests/flink_keys.txt

Only facts are taken: the keys that are spelt out in the sources of three versions, of Flink itself
and not of its connectors. A line begins with the versions that have the key, a letter each.
`tests/unit/config/test_flink_keys.py` looks what Weir says about each.
"""

from __future__ import annotations

import re
import subprocess
import sys

VERSIONS = {"a": "release-1.13.6", "b": "release-1.16.3", "c": "release-2.3.0"}
FOLDERS = (
    "flink-core",
    "flink-runtime",
    "flink-state-backends",
    "flink-dstl",
    "flink-streaming-java",
    "flink-python",
    "flink-kubernetes",
    "flink-yarn",
    "flink-clients",
    "flink-table/flink-table-api-java",
)
# Parts of keys that are put together in the code, and keys that only Flink itself sets.
LEFT_OUT = re.compile(
    r"[^.]*\Z|(scope|filter|factory|\$?internal|discovery-script|operator)\.|.*\.\Z"
)
KEY = re.compile(r'\bkey\(\s*"([A-Za-z0-9.$_-]+)"')


def keys(repository: str, tag: str) -> set[str]:
    """Return the keys of one version."""
    paths = [f"{folder}/**/*Option*.java" for folder in FOLDERS]
    found = subprocess.run(
        ["git", "--git-dir", repository, "grep", "-h", "-o", "-E", r'\bkey\(\s*"[^"]+"', tag, "--"]
        + [f":(glob){path}" for path in paths]
        + [
            ":(exclude)**/test/**",
            ":(exclude)**/ConfigOptions.java",
            ":(exclude)**/table/factories/**",
            ":(exclude)**/connector/**",
        ],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return {match[1] for match in KEY.finditer(found) if not LEFT_OUT.match(match[1])}


def main(repository: str) -> None:
    """Print the keys of all versions."""
    by_version = {letter: keys(repository, tag) for letter, tag in VERSIONS.items()}
    lines = [f"# {letter} {tag.removeprefix('release-')}" for letter, tag in VERSIONS.items()]
    for key in sorted(set().union(*by_version.values())):
        letters = "".join(letter for letter, found in by_version.items() if key in found)
        lines.append(f"{letters} {key}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
