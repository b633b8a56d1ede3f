#!/usr/bin/env bash
# Make a virtual environment from a hashed requirement file, unless it is there and current.
#
#   tools/setup.sh VENV LOCK [EDITABLE...]
#
# PYTHON names the interpreter; by default it is the first of /usr/bin/python3, python3.13,
# python3.12, python3.11 and python3 that runs, is 3.11 or newer and can make virtual environments.
# The system's Python is the first because distributions compile it with profile-guided optimization.
# Tests need a fifth less processor time with it than with one that pyenv compiled. Nothing is done
# when the stamp in the environment says that it was made from the same files in the same place.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1 lock=$2
shift 2

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Prints "3.X" when the interpreter really runs and is new enough (a shim on PATH may do neither).
version_of() {
    "$1" -c 'import sys
if sys.version_info < (3, 11): sys.exit(1)
print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

can_make_venvs() {
    "$1" -c 'import venv, ensurepip' 2>/dev/null
}

find_python() {
    local candidate version bare=''
    if [ -n "${PYTHON:-}" ]; then
        version=$(version_of "$PYTHON") || fail "PYTHON=$PYTHON does not run or is older than Python 3.11"
        can_make_venvs "$PYTHON" || bare=$version
        [ -n "$bare" ] || { printf '%s\n' "$PYTHON"; return; }
    else
        for candidate in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
            version=$(version_of "$candidate") || continue
            if can_make_venvs "$candidate"; then
                printf '%s\n' "$candidate"
                return
            fi
            bare=${bare:-$version}
        done
    fi
    [ -n "$bare" ] || fail "no Python 3.11 or newer found: install one, or run \`make setup PYTHON=/path/to/python3\`"
    fail "Python $bare cannot make virtual environments: on Debian or Ubuntu run \`apt-get install python$bare-venv\`, then try again"
}

projects=()
editables=()
for project in "$@"; do
    projects+=("$project/pyproject.toml")
    editables+=(--editable "$project")
done

# True when the environment runs and was made by the interpreter that PYTHON names, if it names one.
usable() {
    version_of "$venv/bin/python" >/dev/null || return 1
    [ -z "${PYTHON:-}" ] ||
        [ "$("$PYTHON" -c 'import sys; print(sys.version)' 2>/dev/null)" = \
            "$("$venv/bin/python" -c 'import sys; print(sys.version)')" ]
}

stamp=$venv/.made-from
made_from=$(
    printf '%s\n' "$PWD"
    cksum "$lock" tools/setup.sh ${projects[@]+"${projects[@]}"}
)
if usable && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$made_from" ]; then
    exit 0
fi

rm -f "$stamp"
if ! usable || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    printf 'making %s with %s (Python %s)\n' "$venv" "$python" "$(version_of "$python")"
    "$python" -m venv --clear "$venv"
fi

# Print the lines of a lock that pin one distribution and its hashes.
pinned() {
    awk -v line="$1==" 'index($0, line) == 1 { found = 1 } found { print } found && !/\\$/ { exit }' "$2"
}

# uv needs a tenth of pip's time. It reads none of pip's settings (an index, a proxy), so pip does
# what uv cannot.
install() {
    "$venv/bin/uv" pip install --quiet --system-certs --python "$venv/bin/python" --no-deps "$@" ||
        "${pip[@]}" install --no-compile --no-deps "$@"
}

printf 'installing %s\n' "$lock"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet --no-input)
hashed=(--require-hashes --only-binary :all:)
"${pip[@]}" install --no-compile --no-deps "${hashed[@]}" --requirement <(pinned uv requirements/dev.txt)
if grep -q '^--no-binary ' "$lock"; then
    # The lock names what has no wheels; its own setuptools builds that.
    install "${hashed[@]}" --requirement <(pinned setuptools "$lock")
    hashed=(--require-hashes --no-build-isolation)
fi
install "${hashed[@]}" --requirement "$lock"
if [ "${#editables[@]}" -gt 0 ]; then
    install --no-build-isolation "${editables[@]}"
fi
printf '%s\n' "$made_from" >"$stamp"
