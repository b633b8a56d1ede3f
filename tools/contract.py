"""Maintain the contract in proto/: generate, check, lint, compare with the last image.

Commands:
    generate  write the stubs of every language with installed tools
    check     fail if committed stubs differ from the generated ones
    lint      run ``buf lint``
    breaking  run ``buf breaking`` against the committed image
    image     rewrite the committed image from the present contract

``generate`` and ``check`` name skipped languages with the reason; Python is never skipped.
Everything works offline and without git after ``make setup``.
"""

import argparse
import sys
from pathlib import Path

from tools import stubs
from tools.stubs import ROOT, ContractError, run_buf

IMAGE = Path("proto/tuskpoint_v1.binpb")


def generate() -> int:
    """Write the stubs."""
    for language in _here():
        stubs.generate(language)
        print(f"{language.folder} is current")
    return 0


def check() -> int:
    """Report stubs that are not current; return the exit status."""
    stale = 0
    for language in _here():
        differences = stubs.differences(language)
        if differences:
            stale = 1
            print(*differences, sep="\n", file=sys.stderr)
            print(f"\n{language.folder} is not current: run `make generate`", file=sys.stderr)
        else:
            print(f"{language.folder} is current")
    return stale


def breaking() -> int:
    """Compare the contract with the committed image; 100 means a breaking change."""
    if not (ROOT / IMAGE).exists():
        raise ContractError(f"{IMAGE} is missing: run `make proto-image` and commit it")
    return run_buf("breaking", "--against", str(IMAGE))


def lint() -> int:
    """Lint the contract; 100 means findings."""
    return run_buf("lint")


def image() -> int:
    """Rewrite the committed image."""
    return run_buf("build", "proto", "--exclude-source-info", "--output", str(IMAGE))


def _here() -> list[stubs.Language]:
    """Return the languages with installed tools; print the others. Python's tools are required."""
    here = []
    for language in stubs.LANGUAGES:
        lacking = language.lacking()
        if not lacking or language.packages:
            here.append(language)
        else:
            print(f"{language.folder} is left out: {lacking}")
    return here


COMMANDS = {
    "generate": generate,
    "check": check,
    "lint": lint,
    "breaking": breaking,
    "image": image,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(description="Look after the contract in proto/.")
    parser.add_argument("command", choices=list(COMMANDS))
    try:
        return COMMANDS[parser.parse_args(arguments).command]()
    except ContractError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
