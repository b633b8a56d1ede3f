#!/usr/bin/env bash
# Look every locked dependency of the distributions up in the public lists of vulnerabilities:
# PyPI's, npm's and Go's. Ends with 1 if a list has one of them, or could not be read.
# Usage: tools/audit_dependencies.sh PIP_AUDIT
set -euo pipefail
cd "$(dirname "$0")/.."

pip_audit=$PWD/$1
status=0

# Runs an audit; says which one failed, because the lists that the others read may still answer.
audit() {
    local name=$1
    shift
    echo "== $name"
    if ! "$@"; then
        echo "$name: not clean: a dependency is vulnerable, or its list cannot be read (see above)" >&2
        status=1
    fi
}

audit "Python: server and client" "$pip_audit" --strict --disable-pip --no-deps --require-hashes \
    --progress-spinner off -r requirements/server.txt
audit "Python: development" "$pip_audit" --strict --disable-pip --no-deps --require-hashes \
    --progress-spinner off -r requirements/dev.txt
audit "TypeScript" npm --prefix clients/typescript audit --package-lock-only
audit "Console" npm --prefix console audit --package-lock-only
audit "Go" go -C clients/go tool -modfile=audit.mod govulncheck ./...
exit "$status"
