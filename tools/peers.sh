#!/usr/bin/env bash
# Install the checkpointers that only measurements need, beside the environment and not into it.
#
#   tools/peers.sh VENV
#
# They go to VENV/peers, for PYTHONPATH. Where they cannot be fetched, one line says so and the
# measurements leave them out.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1 lock=requirements/bench.txt
stamp=$venv/peers/.made-from
made_from=$(cksum "$lock" "$venv/.made-from")
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$made_from" ]; then
    exit 0
fi
rm -rf "$venv/peers"
printf 'installing %s\n' "$lock"
if "$venv/bin/python" -m pip --disable-pip-version-check --quiet --no-input install \
    --require-hashes --only-binary :all: --no-deps --target "$venv/peers" --requirement "$lock"; then
    printf '%s\n' "$made_from" >"$stamp"
else
    printf 'left out: what %s names cannot be installed\n' "$lock"
fi
