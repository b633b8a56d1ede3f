"""Print the groups of tests that `make test` skips on this machine, and how to run them.

    python -m tools.skipped_groups [--required GROUP...]

With `--required`, the exit status is 1 if one of these groups is skipped.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.running.postgres import LeftOutError, newest_binaries

ROOT = Path(__file__).resolve().parent.parent
CONSOLE = ROOT / "server/src/tuskpoint_server/api/web/assets/index.html"
AXE = ROOT / "console/node_modules/axe-core/axe.min.js"
OLDEST_NODE = 20
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Group:
    """Tests that need a program that a machine may lack.

    Attributes:
        name: Name of the group for `--required`.
        tests: What the tests prove.
        lacking: Returns the missing program and how to install it, or nothing.
    """

    name: str
    tests: str
    lacking: Callable[[], str]


def chromium() -> str | None:
    """Return the path of Chromium on this machine, if installed."""
    return next(filter(None, map(shutil.which, CHROMIUMS)), None)


def browser_lacks() -> str:
    """Return the missing requirements of the tests in a browser, or nothing."""
    if not CONSOLE.is_file():
        return "the console is not built: make console (it needs Node)"
    if not AXE.is_file():
        return "axe-core is not installed: make console (it needs Node)"
    if chromium() is None:
        return f"none of {', '.join(CHROMIUMS)} is on PATH: apt-get install chromium"
    return ""


def postgresql_lacks() -> str:
    """Return the missing requirements of the tests on PostgreSQL, or nothing."""
    try:
        newest_binaries()
    except LeftOutError:
        return "no PostgreSQL under /usr/lib/postgresql: apt-get install postgresql"
    return ""


def age_lacks() -> str:
    """Return the missing requirements of the test of sealed keys, or nothing."""
    return "" if shutil.which("age") else "age is not on PATH: apt-get install age"


def node_lacks() -> str:
    """Return the missing requirements of the TypeScript client and the console, or nothing."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return f"node or npm is not on PATH: install Node {OLDEST_NODE} or newer"
    printed = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"\d+", printed)
    if version is None or int(version.group()) < OLDEST_NODE:
        return f"node {printed.strip()} is too old: install Node {OLDEST_NODE} or newer"
    return ""


def go_lacks() -> str:
    """Return the missing requirements of the Go client, or nothing."""
    return "" if shutil.which("go") else "go is not on PATH: install Go 1.24 or newer"


GROUPS: Sequence[Group] = (
    Group("browser", "the console in a browser (tests/console)", browser_lacks),
    Group("postgresql", "journals in PostgreSQL, servers that share one", postgresql_lacks),
    Group("age", "the program age opens a sealed key", age_lacks),
    Group("node", "the client in TypeScript, LangGraph.js, the console", node_lacks),
    Group("go", "the client in Go", go_lacks),
)


def main() -> int:
    """Print the block; return 1 if a required group is skipped."""
    parser = argparse.ArgumentParser(description="The groups of tests that this machine skips.")
    parser.add_argument(
        "--required", nargs="*", default=[], choices=[group.name for group in GROUPS]
    )
    required = parser.parse_args().required
    reasons = [(group, reason) for group in GROUPS if (reason := group.lacking())]
    if not reasons:
        print("no group of tests is skipped on this machine")
        return 0
    print("skipped on this machine:")
    for group, reason in reasons:
        print(f"  {group.name}: {group.tests}\n    {reason}")
    refused = [group.name for group, _ in reasons if group.name in required]
    if refused:
        print(f"error: skipped, but required: {', '.join(refused)}", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
