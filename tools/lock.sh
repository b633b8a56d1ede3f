#!/usr/bin/env bash
# Resolve requirements/*.in and the distributions' own requirements into hashed, universal files
# (Python 3.11 and newer, Linux and macOS). Arguments go to the resolver: --upgrade,
# --upgrade-package NAME.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=${UV:-.venv/bin/uv}
compile=(
    "$uv" pip compile --quiet --universal --python-version 3.11
    --generate-hashes --only-binary :all:
    --no-emit-index-url --no-emit-find-links --no-header
)
# Named one by one: the frameworks that the other extras integrate have environments of their own.
extras=(
    --extra cli --extra langgraph --extra mcp --extra objects --extra otel  # clients/python
    --extra age --extra embedder --extra http --extra kms --extra memwal --extra otlp --extra postgres --extra prometheus --extra vault  # server, which has objects too
)
"${compile[@]}" "$@" \
    "${extras[@]}" --no-emit-package tuskpoint --no-emit-package tuskpoint-server \
    --no-emit-package tuskpoint-emulators \
    --output-file requirements/dev.txt \
    requirements/dev.in clients/python/pyproject.toml server/pyproject.toml emulators/pyproject.toml
"${compile[@]}" "$@" \
    --output-file requirements/generate.txt \
    requirements/generate.in
"${compile[@]}" "$@" \
    --output-file requirements/s3.txt \
    requirements/s3.in
"${compile[@]}" "$@" \
    --constraint requirements/dev.txt \
    --output-file requirements/build.txt \
    requirements/build.in
"${compile[@]}" "$@" \
    --extra age --extra http --extra kms --extra memwal --extra objects --extra otlp --extra postgres \
    --extra prometheus \
    --extra vault \
    --no-emit-package tuskpoint \
    --constraint requirements/dev.txt \
    --output-file requirements/server.txt \
    server/pyproject.toml
"${compile[@]}" "$@" \
    --output-file requirements/deploy.txt \
    requirements/deploy.in
"${compile[@]}" "$@" \
    --output-file requirements/dist.txt \
    requirements/dist.in
"${compile[@]}" "$@" \
    --output-file requirements/audit.txt \
    requirements/audit.in
"${compile[@]}" "$@" \
    --constraint requirements/dev.txt --no-emit-package tuskpoint --no-emit-package tuskpoint-server \
    --no-emit-package tuskpoint-emulators \
    --output-file requirements/fuzz.txt \
    requirements/fuzz.in clients/python/pyproject.toml server/pyproject.toml emulators/pyproject.toml
"${compile[@]}" "$@" \
    --extra cli --extra langgraph --extra mcp --extra objects --extra otel \
    --constraint requirements/dev.txt --no-emit-package tuskpoint \
    --output-file requirements/docs.txt \
    requirements/docs.in clients/python/pyproject.toml

# Frameworks that adapters are for, apart where their requirements contradict one another.
"${compile[@]}" "$@" \
    --extra agent-framework --extra claude-agent-sdk --extra google-adk \
    --extra openai-agents --extra pydantic-ai --no-emit-package tuskpoint \
    --output-file requirements/agents.txt \
    requirements/agents.in clients/python/pyproject.toml
"${compile[@]}" "$@" \
    --extra crewai --no-emit-package tuskpoint \
    --output-file requirements/crewai.txt \
    requirements/crewai.in clients/python/pyproject.toml
# One of its requirements has no wheels: the lock says so, and setup.sh builds it.
sources=("${compile[@]/--only-binary/--no-binary}")
"${sources[@]/:all:/forbiddenfruit}" "$@" \
    --emit-build-options --extra langgraph --no-emit-package tuskpoint \
    --output-file requirements/agent-server.txt \
    requirements/agent-server.in clients/python/pyproject.toml
