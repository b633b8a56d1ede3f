"""Completion, help and the version load few modules, and so answer at once."""

from __future__ import annotations

import subprocess
import sys

RUN = """
import sys
from tuskpoint.cli import main

codes = {main(line.split()) for line in sys.argv[1:]}
sys.stdout.flush()
print(max(codes), *sys.modules, file=sys.stderr)
"""
CALLING = {"grpc", "google.protobuf", "httpx", "mcp", "opentelemetry", "uvicorn"}
DRAWING = {"rich", "typer.rich_utils"}
NEVER = {"langchain_core", "langgraph", "numpy", "tuskpoint_server"}


def run(*lines: str) -> tuple[str, set[str]]:
    """Run commands in one process; return the greatest exit code and the loaded modules."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *lines], capture_output=True, text=True, timeout=60
    )
    *_, last = done.stderr.splitlines()
    code, *modules = last.split(" ")
    assert done.returncode == 0, done.stderr
    return code, set(modules)


def test_the_version_loads_nothing_that_calls_or_draws() -> None:
    code, modules = run("--version")
    assert code == "0"
    assert modules & (CALLING | NEVER | DRAWING | {"asyncio", "pydantic"}) == set()


def test_help_loads_nothing_that_calls() -> None:
    code, modules = run("--help", "threads --help", "audit --help")
    assert code == "0"
    assert modules & (CALLING | NEVER) == set()


def test_a_command_that_calls_loads_only_what_it_needs() -> None:
    code, modules = run("threads --target 127.0.0.1:1 --timeout 0.1")
    assert code != "0"
    assert "grpc" in modules
    unneeded = {"httpx", "mcp", "tuskpoint.aio", "tuskpoint.audit", "tuskpoint.mcp"}
    assert modules & (NEVER | unneeded) == set()
