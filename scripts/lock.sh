#!/bin/sh
# Writes requirements.lock from pyproject.toml, for every supported Python and platform at once.
# Needs uv; setup itself does not.
set -eu
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "lock: uv is needed to resolve the dependencies" >&2; exit 1; }
{
    echo "# Made by scripts/lock.sh from pyproject.toml; do not edit."
    uv pip compile -q pyproject.toml --group dev --universal --python-version 3.10 \
        --no-python-downloads --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links "$@"
} >requirements.lock.new
mv requirements.lock.new requirements.lock
