#!/bin/sh
# Runs the crash campaign over seeds FIRST-LAST in two processes side by side. Prints the command that
# repeats each run that went wrong, then a sum; exits with 1 if there was any.
#
#   scripts/campaign.sh 1-10000 [--unaligned | --at-least-once | --aligned]
#
#   PYTHON=...   the interpreter to use (default: .venv/bin/python)
set -eu
seeds=$1
shift
first=${seeds%-*}
last=${seeds#*-}
middle=$(((first + last) / 2))
python=${PYTHON:-.venv/bin/python}

# Every crash is logged, and crashes are all that happens here.
logs=$(mktemp -d)

"$python" -m weir.testing.campaign --seeds "$first-$middle" "$@" 2>"$logs/first" &
other=$!
trap 'kill "$other" 2>/dev/null; rm -rf "$logs"; exit 130' INT TERM
wrong=0
if [ "$middle" -lt "$last" ]; then
    "$python" -m weir.testing.campaign --seeds "$((middle + 1))-$last" "$@" 2>"$logs/second" || wrong=1
fi
wait "$other" || wrong=1
if [ "$wrong" = 0 ]; then
    rm -rf "$logs"
    echo "seeds $seeds: all is well"
else
    echo "seeds $seeds: something was wrong, see above; the logs are in $logs"
fi
exit "$wrong"
