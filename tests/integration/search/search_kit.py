"""What tests of search through a running server share."""

from __future__ import annotations

import asyncio

from tuskpoint import AsyncClient

SECONDS = 60


async def has_vectors(client: AsyncClient, count: int) -> None:
    """Wait until so many checkpoints have vectors; only the status shows it."""
    async with asyncio.timeout(SECONDS):
        while True:
            search = (await client.status()).search
            assert search is not None
            if search.vectors == count:
                return
            await asyncio.sleep(0.02)
