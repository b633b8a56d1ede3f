"""A real Agent Server that keeps its threads in the tests' TuskPoint server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from uuid import uuid4

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

PROJECT = Path(__file__).parent / "project"
NOBODY = "http://127.0.0.1:9"
SETTINGS = {
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "1",
    "LANGSMITH_TRACING": "false",
    # Calls to other machines fail.
    "HTTPS_PROXY": NOBODY,
    "HTTP_PROXY": NOBODY,
    "NO_PROXY": "127.0.0.1,localhost",
    # With isolated loops, each worker has its own event loop, as the vendor recommends for blocking
    # code; the example's Agent Server has one loop.
    "BG_JOB_ISOLATED_LOOPS": "true",
}
START_S = 60


@pytest.fixture(scope="session")
def url(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of one Agent Server for all tests."""
    with agent_server(target, tmp_path_factory.mktemp("agent-server")) as url:
        yield url


@pytest.fixture(scope="session")
def other_url(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a second Agent Server, which shares only the TuskPoint server with the first."""
    with agent_server(target, tmp_path_factory.mktemp("other-agent-server")) as url:
        yield url


@contextmanager
def agent_server(target: str, folder: Path) -> Iterator[str]:
    """Run an Agent Server in a folder; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The Agent Server writes files into its working directory.
    project = copytree(PROJECT, folder / "project")
    log = folder / "log"
    options = ("--host", "127.0.0.1", "--port", str(port), "--n-jobs-per-worker", "4")
    program = Path(sys.executable).with_name("langgraph")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "dev", "--no-browser", "--no-reload", *options],
            cwd=project,
            env={**os.environ, **SETTINGS, "TUSKPOINT_TARGET": target, "TUSKPOINT_AGENT_ID": "a"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while not answers(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield url
    finally:
        process.kill()  # The Agent Server stores nothing itself.
        process.wait()


def answers(url: str) -> bool:
    """Return whether the Agent Server is ready."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/ok", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
async def server(url: str) -> AsyncIterator[LangGraphClient]:
    """A client of the Agent Server, as its users have it."""
    async with get_client(url=url, api_key=None) as client:
        yield client


@pytest.fixture
async def other(other_url: str) -> AsyncIterator[LangGraphClient]:
    """A client of the second Agent Server."""
    async with get_client(url=other_url, api_key=None) as client:
        yield client


@pytest.fixture
def thread_id() -> str:
    """A thread that no other test uses; an Agent Server requires UUIDs."""
    return str(uuid4())
