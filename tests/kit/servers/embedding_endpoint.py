"""An endpoint that speaks OpenAI's embeddings API on a socket, and answers on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Respond = Callable[[web.Request, dict[str, Any]], web.StreamResponse]


@dataclass
class Endpoint:
    """A running endpoint.

    Attributes:
        url: Base URL of the API.
        vectors: Function from a text to its vector.
        respond: Function that answers instead, if set.
        requests: Bodies of the requests so far.
        headers: Headers of the last request.
    """

    url: str
    vectors: Callable[[str], list[float]]
    respond: Respond | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers = request.headers.copy()
        if self.respond is not None:
            return self.respond(request, body)
        return web.json_response(answer([self.vectors(text) for text in body["input"]]))


def answer(embeddings: list[Any]) -> dict[str, Any]:
    """Return the body of a good answer in reverse order: `index` has the place of an embedding."""
    rows = [
        {"object": "embedding", "index": index, "embedding": embedding}
        for index, embedding in enumerate(embeddings)
    ]
    return {"object": "list", "model": "m", "data": rows[::-1], "usage": {"total_tokens": 1}}


@asynccontextmanager
async def serving(vectors: Callable[[str], list[float]]) -> AsyncIterator[Endpoint]:
    """Run an endpoint."""
    application = web.Application()
    runner = web.AppRunner(application)
    endpoint = Endpoint("", vectors)
    application.router.add_post("/v1/embeddings", endpoint.handle)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        endpoint.url = f"http://127.0.0.1:{port}/v1"
        yield endpoint
    finally:
        await runner.cleanup()
