"""compose.yaml: one command starts a server with its console, and the server keeps its data."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import yaml  # type: ignore[import-untyped]

from tests.deployment.conftest import Tool
from tests.deployment.files import ROOT, SINGLE, STOP_SECONDS, image
from tests.deployment.test_compose import Server
from tuskpoint import Client
from tuskpoint_server.api.web.console import ASSETS

CONTENT: dict[str, Any] = yaml.safe_load(SINGLE.read_text("utf-8"))
SERVICE: dict[str, Any] = CONTENT["services"]["tuskpoint"]


def test_the_server_starts_with_its_console_and_keeps_its_data(tmp_path: Path) -> None:
    for run in range(2):
        with ExitStack() as stack:
            server = Server("tuskpoint", SERVICE, {}, tmp_path)
            stack.callback(server.end)
            server.await_start()
            assert server.healthy()
            with Client(f"127.0.0.1:{server.port}") as client:
                if run == 0:
                    client.save("thread", {"x": 1})
                assert client.load("thread").state == {"x": 1}
            page = httpx.get(f"http://127.0.0.1:{server.http_port}/", trust_env=False)
            is_built = (ASSETS / "index.html").is_file()
            assert page.status_code == (200 if is_built else 404)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(STOP_SECONDS) == 0


def test_the_ports_are_those_of_the_server_and_of_this_machine_only() -> None:
    http = SERVICE["environment"]["TUSKPOINT_HTTP_LISTEN"].rpartition(":")[2]
    assert SERVICE["ports"] == [f"127.0.0.1:{port}:{port}" for port in (str(image().port), http)]


def test_the_data_are_on_a_volume_of_its_own() -> None:
    [volume] = SERVICE["volumes"]
    name, _, path = volume.partition(":")
    assert path == image().volume
    assert CONTENT["volumes"] == {name: None}
    other = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    assert CONTENT["name"] != other["name"], "volumes are named by the project"


def test_it_builds_the_image_and_waits_for_the_drain() -> None:
    assert (SINGLE.parent / SERVICE["build"] / "Dockerfile").is_file()
    assert SERVICE["stop_grace_period"] == f"{STOP_SECONDS}s"


def test_the_reader_of_compose_files_finds_nothing(tool: Tool) -> None:
    done = tool("compose-spec", "--no-interpolation", str(SINGLE))
    assert (done.returncode, done.stderr) == (0, "")
