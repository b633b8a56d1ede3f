"""Helpers for tests of search through a running server."""

from __future__ import annotations

import asyncio

from tuskpoint import AsyncClient

SECONDS = 60


async def has_vectors(client: AsyncClient, count: int) -> None:
    """Wait until a number of checkpoints has vectors, which only the status shows."""
    async with asyncio.timeout(SECONDS):
        while True:
            search = (await client.status()).search
            assert search is not None
            if search.vectors == count:
                return
            await asyncio.sleep(0.02)
