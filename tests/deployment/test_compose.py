"""deploy/compose.yaml starts working servers, and puts no secret on a command line."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from bench.running.postgres import LeftOutError, newest_binaries
from tests.deployment.conftest import Tool
from tests.deployment.files import COMPOSE, SERVERS, STOP_SECONDS, asked_secrets, compose, image
from tests.deployment.stand_ins import Collector, password_postgres
from tests.kit.blobs.s3_server import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tests.kit.servers.processes import LISTENING, await_line, unused_port
from tuskpoint import Client

VALUES = {
    "POSTGRES_PASSWORD": secrets.token_hex(),
    "S3_ACCESS_KEY": ACCESS_KEY,
    "S3_SECRET_KEY": SECRET_KEY,
}
SERVICES: dict[str, dict[str, Any]] = compose(VALUES)["services"]
HERE = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
_URL_HOST = re.compile(r"(?P<before>//|@)(?P<host>[a-z0-9-]+)(?::\d+)?(?=/|\?|$)")


class Server:
    """A server of a Compose file, run as a plain process."""

    def __init__(
        self, name: str, service: Mapping[str, Any], places: Mapping[str, str], directory: Path
    ) -> None:
        box = image()
        [volume] = service["volumes"]
        assert volume.partition(":")[2] == box.volume == box.environment["TUSKPOINT_DATA_DIR"]
        assert "command" not in service
        self.port = unused_port()
        self.environment = HERE | dict(box.environment) | {"PATH": HERE["PATH"]}
        for key, value in service["environment"].items():
            self.environment[key] = _URL_HOST.sub(
                lambda match: match["before"] + places.get(match["host"], match["host"]), value
            )
        self.environment |= {
            "TUSKPOINT_DATA_DIR": str(directory / name),
            "TUSKPOINT_LISTEN": box.environment["TUSKPOINT_LISTEN"].replace(
                f":{box.port}", f":{self.port}"
            ),
            "AWS_REGION": REGION,
        }
        if "TUSKPOINT_HTTP_LISTEN" in self.environment:
            self.http_port = unused_port()
            self.environment["TUSKPOINT_HTTP_LISTEN"] = f"127.0.0.1:{self.http_port}"
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                program(box.entrypoint), env=self.environment, stdout=subprocess.PIPE, stderr=log
            )

    def await_start(self) -> None:
        assert self.process.stdout is not None
        assert await_line(self.process.stdout, LISTENING), self.log.read_text("utf-8")

    def healthy(self) -> bool:
        command = program(image().health)
        return subprocess.run(command, env=self.environment, check=False).returncode == 0

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def program(command: list[str]) -> list[str]:
    """Return a command that runs this checkout's program in place of the image's program."""
    assert command[0] == "tuskpoint-server"
    return [sys.executable, "-m", "tuskpoint_server", *command[1:]]


def test_the_servers_start_share_the_journal_and_stop(tmp_path: Path) -> None:
    with ExitStack() as stack:
        try:
            port = stack.enter_context(password_postgres(SERVICES["postgres"]["environment"]))
        except LeftOutError as reason:
            pytest.skip(str(reason))
        check = [str(newest_binaries() / "pg_isready"), f"--port={port}"]
        probe = SERVICES["postgres"]["healthcheck"]["test"]
        assert probe[:2] == ["CMD", "pg_isready"]
        subprocess.run([*check, *probe[2:]], check=True, stdout=subprocess.DEVNULL)
        bucket = stack.enter_context(S3Server())
        bucket.objects["tuskpoint"] = {}
        collector = stack.enter_context(Collector())
        places = {
            "postgres": f"127.0.0.1:{port}",
            "s3": bucket.endpoint.removeprefix("http://"),
            "telemetry": f"127.0.0.1:{collector.port}",
        }
        servers = [Server(name, SERVICES[name], places, tmp_path) for name in SERVERS]
        for server in servers:
            stack.callback(server.end)
        for server in servers:
            server.await_start()
            assert server.healthy()
        clients = [stack.enter_context(Client(f"127.0.0.1:{server.port}")) for server in servers]
        for number, client in enumerate(clients):
            client.save(f"thread-{number}", {"by": number}, durability="certified")
        for client in clients:
            for number in range(len(clients)):
                assert client.load(f"thread-{number}").state == {"by": number}
        assert bucket.keys("tuskpoint")
        for server in servers:
            server.process.send_signal(signal.SIGTERM)  # as `docker compose stop` does
        assert [server.process.wait(STOP_SECONDS) for server in servers] == [0] * len(servers)
        assert not servers[0].healthy()
        assert collector.traces == collector.metrics == set(SERVERS)


def test_no_secret_is_on_a_command_line() -> None:
    for name, service in SERVICES.items():
        checks = service.get("healthcheck", {}).get("test", [])
        words = " ".join([*service.get("entrypoint", []), *service.get("command", []), *checks])
        assert not [value for value in VALUES.values() if value in words], name


def test_every_variable_that_it_asks_for_is_in_the_example() -> None:
    lines = (COMPOSE.parent / "env.example").read_text("utf-8").splitlines()
    named = {line.partition("=")[0] for line in lines if line and not line.startswith("#")}
    assert asked_secrets() == named == VALUES.keys()


def test_ports_are_published_on_loopback_only() -> None:
    for name, service in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
    assert [SERVICES[name]["ports"][0].rpartition(":")[2] for name in SERVERS] == [
        str(image().port)
    ] * len(SERVERS)


def test_other_images_have_an_exact_release() -> None:
    for name, service in SERVICES.items():
        if name not in SERVERS:
            assert re.search(r":v?\d+(\.\d+)+$", service["image"]), name


def test_it_waits_for_the_drain() -> None:
    for name in SERVERS:
        assert SERVICES[name]["stop_grace_period"] == f"{STOP_SECONDS}s"


def test_the_reader_of_compose_files_finds_nothing(tool: Tool) -> None:
    done = tool("compose-spec", "--no-interpolation", str(COMPOSE))
    assert (done.returncode, done.stderr) == (0, "")


def test_grafana_loads_the_dashboard() -> None:
    content = compose(VALUES)
    targets = {entry["source"]: entry["target"] for entry in SERVICES["telemetry"]["configs"]}
    [provider] = yaml.safe_load(content["configs"]["dashboards"]["content"])["providers"]
    assert provider["options"]["path"] == targets["dashboard"]
    assert targets["dashboards"].startswith("/otel-lgtm/grafana/conf/provisioning/dashboards/")
    dashboard = json.loads((COMPOSE.parent / content["configs"]["dashboard"]["file"]).read_text())
    assert dashboard["title"] == "TuskPoint"
