"""Servers with threads on them, one server for each file of tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import timedelta
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


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("command-line")
    with served(directory, TUSKPOINT_TRAIL="changes") as target, Client(target) as client:
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
            client.put_items([ItemChange(("users", "bob"), name, {"n": 1})])
        client.put_items([ItemChange(("users", "ada"), "food", {"likes": "rye"})])
        descriptor = directory / "descriptor.json"
        descriptor.write_text(client.handoff("atlas", to_agent="writer").to_json())
        snapshot = client.create_snapshot("atlas", session_id="monday").snapshot_id
        assert run(target, "export", str(directory / "exported"), "--thread", "atlas").code == 0
        client.flush()
        wait_until_indexed(client)
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
