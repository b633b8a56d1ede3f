"""Fixtures of the adapters' tests: a real server, and a thread that no other test uses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tuskpoint import Client

LISTENING = "tuskpoint-server listening on "


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of one server for all tests."""
    program = os.environ["TUSKPOINT_SERVER_PROGRAM"]  # tools/frameworks.py sets it
    folder = tmp_path_factory.mktemp("server")
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--listen", "127.0.0.1:0", "--data-dir", str(folder / "data")],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(LISTENING), (folder / "server.log").read_text()
    yield line.removeprefix(LISTENING).strip()
    process.terminate()
    process.communicate()
    assert process.returncode == 0, (folder / "server.log").read_text()


@pytest.fixture
def thread_id() -> str:
    """A thread that no other test uses."""
    return f"thread-{uuid4()}"


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    """A client, to look at threads as other programs do."""
    with Client(target) as client:
        yield client
