"""A journal that can be held at its commits, and an archive that certifies nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.integration.api.exchange.exchange_kit import Hold
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.archive.archive import Archive


@pytest.fixture
async def hold(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hold]:
    """Commits that can be held. Released before the server ends."""
    held = Hold(monkeypatch)
    yield held
    held.release()


@pytest.fixture
def never_certified(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """No wait for certification ends by itself; the event: one has begun."""
    begun = asyncio.Event()

    async def never(*arguments: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Archive, "certify", never)
    return begun
