"""A receiver of webhooks on a loopback socket, which answers as a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Post:
    """A request that arrived."""

    headers: dict[str, str]
    body: bytes

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.body)
        return content


@dataclass
class Receiver:
    """A running receiver.

    Attributes:
        url: Address of the webhook.
        posts: Requests so far.
        answer: Makes the answer to the n-th request, counted from 0.
    """

    url: str
    posts: list[Post] = field(default_factory=list)
    answer: Callable[[int], web.StreamResponse] = field(default=lambda _: web.Response())
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        number = len(self.posts)
        self.posts.append(Post(headers, await request.read()))
        async with self.arrived:
            self.arrived.notify_all()
        return self.answer(number)

    async def wait_for(self, count: int) -> list[Post]:
        """Wait until `count` requests have arrived; the time limit of the test ends the wait."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.posts) >= count)
        return self.posts


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Run a receiver."""
    application, receiver = web.Application(), Receiver("")
    application.router.add_post("/hook", receiver.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        [(_, port)] = [address[:2] for address in runner.addresses]
        receiver.url = f"http://127.0.0.1:{port}/hook"
        yield receiver
    finally:
        await runner.cleanup()
