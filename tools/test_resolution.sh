#!/usr/bin/env bash
# Run the tests with another choice of releases than the committed one.
#
#   tools/test_resolution.sh highest|lowest-direct VENV [PYTEST ARGUMENT...]
#
# highest: the newest release of everything. lowest-direct: the oldest release that the distributions
# name as their floor; the development tools stay new.
set -euo pipefail
cd "$(dirname "$0")/.."

resolution=$1 venv=$2
shift 2

uv=.venv/bin/uv
chosen=$(mktemp)
trap 'rm -f "$chosen"' EXIT

"$uv" pip compile --quiet --resolution "$resolution" --python .venv/bin/python --upgrade \
    --extra cli --extra langgraph --extra mcp --extra otel --extra objects \
    --extra age --extra http --extra memwal --extra otlp --extra postgres --extra prometheus --extra kms --extra vault --no-header --no-annotate \
    --no-emit-package tuskpoint --no-emit-package tuskpoint-server \
    --no-emit-package tuskpoint-emulators \
    --output-file "$chosen" \
    clients/python/pyproject.toml server/pyproject.toml emulators/pyproject.toml
"$uv" venv --quiet --clear --python .venv/bin/python "$venv"
"$uv" pip install --quiet --python "$venv/bin/python" --upgrade \
    --requirement requirements/dev.in --constraint "$chosen" \
    --editable 'clients/python[cli,langgraph,mcp,otel]' --editable 'server[age,http,kms,memwal,objects,otlp,postgres,prometheus,vault]' \
    --editable emulators
"$uv" pip list --python "$venv/bin/python" |
    grep -iE '^(grpcio|langgraph|langgraph-checkpoint|opentelemetry-sdk|protobuf|prometheus-client|pydantic|sqlalchemy|uvloop) '
"$venv/bin/python" -m pytest -q "$@"
"$venv/bin/python" -m tools.emulators
