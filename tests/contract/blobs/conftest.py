"""Walrus peers that fail on demand, and stores on them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.kit.walrus_stores import PeerKit


@pytest.fixture
async def kit() -> AsyncIterator[PeerKit]:
    kit = PeerKit()
    yield kit
    await kit.end()
