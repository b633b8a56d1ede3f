"""A server that also serves HTTP, for all tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from tests.integration.web.web_kit import http_client
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Settings of a server that requires no token."""
    return Config(
        listen="127.0.0.1:0",
        http_listen="127.0.0.1:0",
        data_dir=tmp_path_factory.mktemp("web"),
        flush_interval=3600,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(settings: Config) -> AsyncIterator[Server]:
    """A server on two ports, for gRPC and for HTTP."""
    async with serve.running_server(settings) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(both: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(both.http_url) as client:
        yield client
