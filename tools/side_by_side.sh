#!/usr/bin/env bash
# Run two tasks of the Makefile side by side; print what the second one said once the first is done.
#
#   tools/side_by_side.sh FIRST -- SECOND...
#
# The status is that of the first task that failed.
set -euo pipefail
cd "$(dirname "$0")/.."

first=$1
shift 2
said=$(mktemp)
make "$@" >"$said" 2>&1 &
second=$!
trap 'kill "$second" 2>/dev/null || true; rm -f "$said"' EXIT

status=0
make "$first" || status=$?
wait "$second" || status=$?
cat "$said"
exit "$status"
