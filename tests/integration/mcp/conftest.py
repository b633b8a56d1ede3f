"""One server, and one MCP server in front of it, for all tests of a module."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.integration.mcp.mcp_kit import Caller, calling, over_http
from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A TuskPoint server that flushes when a test asks for a flush."""
    settings = {"TUSKPOINT_FLUSH_INTERVAL": "3600"}
    with ServerProcess(tmp_path_factory.mktemp("server"), settings) as process:
        process.start()
        yield process


@pytest.fixture(scope="module")
def target(server: ServerProcess) -> str:
    return server.target


@pytest.fixture(scope="module")
def client(target: str) -> Iterator[Client]:
    """A client of the TuskPoint server, for calls that the tools do not have."""
    with Client(target) as made:
        yield made


@pytest.fixture(scope="module")
def url(target: str) -> Iterator[str]:
    with over_http(target) as (url, _):
        yield url


@pytest.fixture
async def call(url: str) -> AsyncIterator[Caller]:
    """The tools over HTTP."""
    connected: asyncio.Queue[Caller | None] = asyncio.Queue()
    ended = asyncio.Event()

    async def connect() -> None:
        async with calling(url) as caller:
            connected.put_nowait(caller)
            await ended.wait()

    # The client must be entered and left in one task; a fixture starts and ends in two tasks.
    task = asyncio.create_task(connect())
    task.add_done_callback(lambda _: connected.put_nowait(None))
    caller = await connected.get()
    if caller is None:
        await task
    else:
        yield caller
        ended.set()
        await task
