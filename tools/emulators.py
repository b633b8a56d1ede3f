"""Run the emulators' own tests, or skip them if they passed without a change since.

`python -m tools.emulators --if-changed` compares a hash of everything that could change the outcome
(the emulators with their tests, the resolved requirements, the interpreter, pytest's settings) with
the hash that the environment kept when all tests last passed. A new environment has no hash.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "emulators/tests"
PASSED = Path(sys.prefix) / ".emulators-passed"


def main() -> int:
    """Run the tests; return pytest's exit code, or 0 if they are skipped."""
    parser = argparse.ArgumentParser(description="Run the emulators' own tests.")
    parser.add_argument(
        "--if-changed", action="store_true", help="leave them out if they passed as they are"
    )
    arguments, for_pytest = parser.parse_known_args()
    digest = digest_of(sources())
    if arguments.if_changed and passed() == digest:
        print(f"emulators: unchanged since their tests last passed (hash {digest[:12]})")
        return 0
    command = [sys.executable, "-m", "pytest", "-q", str(TESTS.relative_to(ROOT)), *for_pytest]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 0 and not selects(for_pytest):
        PASSED.write_text(f"{digest}\n")
    return code


def sources() -> Iterable[Path]:
    """Return the files that could change the outcome of the tests."""
    yield from (ROOT / "pyproject.toml", ROOT / "requirements/dev.txt", Path(__file__))
    for path in (ROOT / "emulators").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def digest_of(files: Iterable[Path]) -> str:
    """Return a hash of the interpreter and of files, by their names and contents."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(files):
        name, content = str(path.relative_to(ROOT)).encode(), path.read_bytes()
        digest.update(b"%d %d " % (len(name), len(content)) + name + content)
    return digest.hexdigest()


def passed() -> str:
    """Return the hash of the last run that passed; "" without such a run."""
    return PASSED.read_text().strip() if PASSED.is_file() else ""


def selects(arguments: list[str]) -> bool:
    """Return whether arguments of pytest may skip tests: all except the number of workers."""
    return any(not argument.startswith(("-n", "--dist")) for argument in arguments)


if __name__ == "__main__":
    sys.exit(main())
