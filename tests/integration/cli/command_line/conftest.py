"""Servers with threads on them, one server for each file of tests."""

from __future__ import annotations

import base64
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.cli.command_line.kit import run
from tests.integration.cli.command_line.world import World
from tools.command_line_page import interrupt, served, wait_until_indexed
from tuskpoint import Client, ItemChange

THREADS = (
    *("saved", "labelled", "back", "restored", "gone", "captured", "erased", "pruned"),
    *("kept", "set"),
)


class Receiver(BaseHTTPRequestHandler):
    """Accepts events at `/accepts`, and wants no more of them elsewhere."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204 if self.path == "/accepts" else 410)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def webhooks(directory: Path) -> Iterator[Path]:
    """Run a receiver; return a file with the webhooks "accepts" and "gone" there."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    (directory / "secret").write_text("whsec_" + base64.b64encode(bytes(32)).decode())
    file = directory / "webhooks.toml"
    file.write_text(
        "".join(
            f'[[webhook]]\nname = "{name}"\nevents = ["thread.{event}"]\nsecret_file = "secret"\n'
            f'url = "http://127.0.0.1:{server.server_port}/{name}"\nallow_private = true\n'
            for name, event in (("accepts", "failed"), ("gone", "waiting"))
        )
    )
    try:
        yield file
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("command-line")
    with (
        webhooks(directory) as file,
        served(directory, TUSKPOINT_TRAIL="changes", TUSKPOINT_WEBHOOKS=str(file)) as target,
        Client(target) as client,
    ):
        ids = tuple(
            client.save(
                "atlas",
                {"step": number, "plan": ["read", "write"][number - 1 :]},
                agent_id="planner",
                summary=f"finished step {number}",
                label="half" if number == 2 else "",
                metadata={"step": number},
            )
            for number in (1, 2, 3)
        )
        for name in ("people", "json"):
            for thread in THREADS:
                first = client.save(f"{thread}-{name}", {"n": 1}, label="first")
                client.save(f"{thread}-{name}", {"n": 2})
                assert first
            saved = client.save(f"asks-{name}", {"draft": 1})
            interrupt(client, f"asks-{name}", saved, {"question": "publish?"})
            client.create_snapshot(f"captured-{name}", session_id=f"drop-{name}")
            client.save(f"run-of-{name}", {}, metadata={"run_id": f"run-{name}"})
            client.set_retention(f"kept-{name}", timedelta(days=90))
            client.acquire_lease(f"held-{name}", owner="ada", ttl_s=3600)
            client.put_items([ItemChange(("users", "bob"), name, {"n": 1})])
            begun = client.begin_effect(f"set-{name}", "charge:1", owner="shop")
            client.fail_effect(
                *(f"set-{name}", "charge:1"),
                idempotency_key=begun.idempotency_key,
                attempt=1,
                outcome="unknown",
                error="no answer",
            )
        client.put_items([ItemChange(("users", "ada"), "food", {"likes": "rye"})])
        descriptor = directory / "descriptor.json"
        descriptor.write_text(client.handoff("atlas", to_agent="writer").to_json())
        snapshot = client.create_snapshot("atlas", session_id="monday").snapshot_id
        assert run(target, "export", str(directory / "exported"), "--thread", "atlas").code == 0
        client.flush()
        wait_until_indexed(client)
        while sum(hook.parked for hook in client.webhooks()) < 2:
            pass  # the time limit of the test ends this loop
        yield World(target, ids, snapshot, descriptor)


@pytest.fixture(scope="module")
def ctrl_c_counts() -> Iterator[None]:
    """Accept Ctrl-C, which background processes of a shell and their children ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("command-line-ends")


@pytest.fixture(scope="module")
def target(directory: Path) -> Iterator[str]:
    with served(directory) as address, Client(address) as client:
        for number in range(1, 41):
            client.save("many", {"n": number}, summary=f"step {number} of forty")
        client.save(
            "ünï ☃", {"größe": "30 m²"}, summary="Das Maß ist voll 👩‍🚀", agent_id="wächter"
        )
        client.save("evil", {"x": "\x1b[31m"}, summary="red \x1b[31m and\nnew line \u202e bidi")
        yield address
