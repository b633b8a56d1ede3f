"""A client whose watch has no news keeps its connection.

`make soak-idle` waits for five minutes, in which each client pings as in production. By default the
test waits for a second; tests/integration/api/test_keepalive.py sends the pings of five minutes
within a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.integration.access.tls_kit import SecureServer, running_secure_server
from tests.interop.scenarios.clients import CLIENTS, CannotBuildError, world_of
from tests.interop.scenarios.runner import FORMAT
from tools.stubs import ROOT
from tuskpoint import Client

IDLE_SECONDS = float(os.environ.get("TUSKPOINT_IDLE_SECONDS", "1"))
OPEN_SECONDS = 60

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900 + IDLE_SECONDS)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    with running_secure_server(
        tmp_path_factory.mktemp("idle"), "--flush-interval", "3600"
    ) as running:
        yield running


def connections(server: SecureServer) -> set[str]:
    """Return the addresses connected to a server, in the format of Linux."""
    port, established = f"{int(server.target.rpartition(':')[2]):04X}", "01"
    addresses = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text("ascii").splitlines()[1:]:
            _, own, other, state, *_ = line.split()
            if other.endswith(f":{port}") and state == established:
                addresses.add(own)
    return addresses


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sequence[str]]:
    directory, built = tmp_path_factory.mktemp("runners"), {}
    for client in CLIENTS:
        try:
            built[client.name] = client.build(directory)
        except CannotBuildError as lacking:
            pytest.skip(str(lacking))
    return built


def assert_waiting(runners: dict[str, subprocess.Popen[str]]) -> None:
    ended = {name: runner for name, runner in runners.items() if runner.poll() is not None}
    assert {name: runner.communicate()[0] for name, runner in ended.items()} == {}


def test_a_client_of_each_language_keeps_its_connection(
    server: SecureServer, commands: dict[str, Sequence[str]], tmp_path: Path
) -> None:
    scenarios = tmp_path / "idle.json"
    step = {"do": "watch", "with": {"thread_id": "idle", "take": 2}}
    scenario = {"name": "a long wait", "steps": [step]}
    scenarios.write_text(json.dumps({"format": FORMAT, "scenarios": [scenario]}))
    token, ca_file = server.tokens["writer"], server.ca_file
    with Client(server.target, token=token, ca_file=ca_file) as client:
        client.save("idle", {"n": 1})
    until = time.monotonic() + OPEN_SECONDS
    while connections(server):
        assert time.monotonic() < until, "the connection of the client that was closed is there"
        time.sleep(0.1)
    runners = {}
    try:
        for name, command in commands.items():
            world = tmp_path / f"{name}.json"
            world.write_text(json.dumps(asdict(world_of(name, server))))
            runners[name] = subprocess.Popen(
                [*command, str(scenarios), str(world)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        until = time.monotonic() + OPEN_SECONDS
        while len(opened := connections(server)) < len(runners):
            assert time.monotonic() < until, f"{len(opened)} clients have connected"
            assert_waiting(runners)
            time.sleep(0.1)
        time.sleep(IDLE_SECONDS)
        assert_waiting(runners)
        assert connections(server) == opened
        with Client(server.target, token=token, ca_file=ca_file) as client:
            client.save("idle", {"n": 2})
        for name, runner in runners.items():
            printed, _ = runner.communicate(timeout=OPEN_SECONDS)
            assert runner.returncode == 0, f"{name}: {printed}"
    finally:
        for runner in runners.values():
            runner.kill()
            runner.wait()
            assert runner.stdout is not None
            runner.stdout.close()
