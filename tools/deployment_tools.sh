#!/usr/bin/env bash
# Build the tools in Go of `make test-deploy` into VENV/bin, unless they are there: helm, and
# compose-spec, the reader of Compose files that `docker compose` uses.
#
#   tools/deployment_tools.sh VENV
set -euo pipefail
bin=$(cd "$1" && pwd)/bin

if ! command -v go >/dev/null; then
    echo "not installed: helm and compose-spec, because go is not on PATH"
    exit 0
fi

# install NAME PACKAGE VERSION
install() {
    local there=$bin/$1-$3
    if [ ! -x "$there" ]; then
        printf 'building %s %s\n' "$1" "$3"
        GOBIN=$bin/go go install "$2@$3"
        mv "$bin/go/${2##*/}" "$there"
    fi
    ln -sf "$1-$3" "$bin/$1"
}

install helm helm.sh/helm/v4/cmd/helm v4.3.1
install compose-spec github.com/compose-spec/compose-go/v2/cmd v2.16.2
