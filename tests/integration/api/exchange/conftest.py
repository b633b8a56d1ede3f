"""A journal whose commits a test can hold, and an archive that certifies nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.integration.api.exchange.exchange_kit import Hold
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.archive.archive import Archive


@pytest.fixture
async def hold(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hold]:
    """Commits that a test can hold. Released before the server ends."""
    held = Hold(monkeypatch)
    yield held
    held.release()


@pytest.fixture
def never_certified(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Keep waits for certification from ending; the event is set when the first wait starts."""
    begun = asyncio.Event()

    async def never(*arguments: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Archive, "certify", never)
    return begun
