"""What the command line loads: completion, help and the version must come at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUN = """
import sys
from tuskpoint.cli import main

code = main(sys.argv[1:])
sys.stdout.flush()
print(code, *sys.modules, file=sys.stderr)
"""
CALLING = {"grpc", "google.protobuf", "httpx", "opentelemetry"}
NEVER = {"langchain_core", "langgraph", "numpy", "tuskpoint_server"}


def run(*arguments: str) -> tuple[str, set[str]]:
    """Run a command; return what it printed and the modules that it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, timeout=60
    )
    *_, last = done.stderr.splitlines()
    code, *modules = last.split(" ")
    assert done.returncode == 0, done.stderr
    return code, set(modules)


def test_the_version_loads_nothing_that_calls_or_draws() -> None:
    code, modules = run("--version")
    assert code == "0"
    assert modules & (CALLING | NEVER | {"pydantic", "rich", "typer.rich_utils"}) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["threads", "--help"], ["audit", "--help"]])
def test_help_loads_nothing_that_calls(arguments: list[str]) -> None:
    code, modules = run(*arguments)
    assert code == "0"
    assert modules & (CALLING | NEVER) == set()


def test_a_command_that_calls_loads_only_what_it_needs() -> None:
    code, modules = run("threads", "--target", "127.0.0.1:1", "--timeout", "0.1")
    assert code != "0"
    assert "grpc" in modules
    assert modules & (NEVER | {"httpx", "tuskpoint.audit", "tuskpoint.aio"}) == set()
