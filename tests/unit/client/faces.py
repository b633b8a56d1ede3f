"""Both faces of the client, called in the same way."""

from __future__ import annotations

import asyncio
from typing import Any

from tuskpoint import AsyncClient, Client
from tuskpoint._async.calls import AsyncCalls
from tuskpoint._sync.calls import SyncCalls
from tuskpoint._transport.settings.options import Options


class Face:
    """`Client` or `AsyncClient`, called in the same way.

    Calls of the blocking client run in a separate thread.
    """

    def __init__(self, kind: str, target: str, timeout_s: float = 30.0, **credentials: Any) -> None:
        self.kind = kind
        self.sync: Any = Client(target, timeout_s=timeout_s, **credentials)
        self.aio: Any = AsyncClient(target, timeout_s=timeout_s, **credentials)

    async def call(self, name: str, /, *arguments: Any, **named: Any) -> Any:
        """Call a method that returns a value."""
        if self.kind == "async":
            return await getattr(self.aio, name)(*arguments, **named)
        return await asyncio.to_thread(getattr(self.sync, name), *arguments, **named)

    async def take(self, name: str, count: int, /, *arguments: Any, **named: Any) -> list[Any]:
        """Return the first items of a method that yields; fewer if the method ends earlier."""
        if self.kind == "async":
            return await _take_async(getattr(self.aio, name)(*arguments, **named), count)
        items = getattr(self.sync, name)(*arguments, **named)
        return await asyncio.to_thread(_take, items, count)

    async def aclose(self) -> None:
        """Close both clients."""
        self.sync.close()
        await self.aio.aclose()


class CallsFace(Face):
    """`SyncCalls` or `AsyncCalls`, the base of the clients, called in the same way."""

    def __init__(self, kind: str, target: str, timeout_s: float = 30.0) -> None:
        self.kind = kind
        options = Options(target, timeout_s=timeout_s)
        self.sync, self.aio = SyncCalls(options), AsyncCalls(options)


def _take(items: Any, count: int) -> list[Any]:
    first_items = []
    try:
        for item in items:
            first_items.append(item)
            if len(first_items) == count:
                break
    finally:
        items.close()
    return first_items


async def _take_async(items: Any, count: int) -> list[Any]:
    first_items = []
    try:
        async for item in items:
            first_items.append(item)
            if len(first_items) == count:
                break
    finally:
        await items.aclose()
    return first_items
