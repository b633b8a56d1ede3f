"""A server of streams for each test, and both clients on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.unit.client.exchange.kit import PROMPT, Client
from tests.unit.client.exchange.server import ExchangeServer
from tuskpoint._transport.settings.options import Options


@pytest.fixture
def server() -> ExchangeServer:
    return ExchangeServer()


@pytest.fixture
def target(server: ExchangeServer) -> Iterator[str]:
    with server.serving() as made:
        yield made


@pytest.fixture(params=["sync", "async"])
async def client(request: pytest.FixtureRequest, target: str) -> AsyncIterator[Client]:
    made = Client(request.param, Options(target, retry=PROMPT))
    yield made
    await made.aclose()
