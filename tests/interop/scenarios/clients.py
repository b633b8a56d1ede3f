"""The clients that play interop scenarios, with the build and the command of each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.integration.access.tls_kit import SecureServer
from tests.interop.scenarios.calls import World
from tests.interop.scenarios.values import Json
from tools.stubs import ROOT

PLAY_SECONDS = 240
BUILD_SECONDS = 500
DEAD_TARGET = "localhost:1"
LACKING = 3
"""Exit status of tools/node_modules.sh on a machine without Node."""

_TYPESCRIPT = ROOT / "clients" / "typescript"
_GO = ROOT / "clients" / "go"


class CannotBuildError(Exception):
    """A requirement of a client is missing on this machine; the text names it."""


@dataclass(frozen=True, slots=True)
class ScenarioClient:
    """A client and its runner.

    Attributes:
        name: Name of the client in a world.
        build: Builds the runner in a directory if necessary, and returns its command.
    """

    name: str
    build: Callable[[Path], Sequence[str]]


def _python(_: Path) -> Sequence[str]:
    return [sys.executable, "-m", "tests.interop.scenarios.runner"]


def _typescript(_: Path) -> Sequence[str]:
    made = subprocess.run(
        [str(ROOT / "tools" / "node_modules.sh"), "clients/typescript"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode == LACKING:
        raise CannotBuildError(made.stdout.strip())
    assert made.returncode == 0, made.stdout + made.stderr
    _run(["npm", "run", "--silent", "build:scenarios"], _TYPESCRIPT)
    return ["node", str(_TYPESCRIPT / "build" / "scenarios" / "run.js")]


def _go(directory: Path) -> Sequence[str]:
    go = shutil.which("go")
    if go is None:
        raise CannotBuildError("skipped: the client in Go, because go is not on PATH")
    runner = directory / "scenarios"
    _run([go, "build", "-o", str(runner), "./internal/scenarios"], _GO)
    return [str(runner)]


CLIENTS = (
    ScenarioClient("python", _python),
    ScenarioClient("typescript", _typescript),
    ScenarioClient("go", _go),
)


def world_of(client: str, server: SecureServer) -> World:
    """Return the addresses and credentials for a client."""
    return World(
        client=client,
        target=server.target,
        ca_file=str(server.ca_file),
        tokens=dict(server.tokens),
        dead_target=DEAD_TARGET,
    )


def play(command: Sequence[str], world: World, scenarios: Path, directory: Path) -> list[Json]:
    """Let a runner play scenarios; return the outcomes in their order."""
    world_file = directory / f"{world.client}.json"
    world_file.write_text(json.dumps(asdict(world)), encoding="utf-8")
    played = subprocess.run(
        [*command, str(scenarios), str(world_file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PLAY_SECONDS,
        check=False,
    )
    outcomes = [json.loads(line) for line in played.stdout.splitlines()]
    failed = any(not outcome["ok"] for outcome in outcomes)
    assert played.returncode == int(failed), f"exit {played.returncode}\n{played.stderr}"
    return outcomes


def _run(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
