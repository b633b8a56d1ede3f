"""During and after an outage of the embedder, a search says if it may miss checkpoints.

Each test saves and deletes on a real server, and compares the results of a search by meaning with
all existing checkpoints, as soon as the search counts no checkpoint as not indexed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.integration.search.search_kit import SECONDS
from tests.kit.servers.embedding_endpoint import Endpoint, answer, serving
from tuskpoint import AsyncClient
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config


def vector_of(text: str) -> list[float]:
    return [1.0, float(len(text))]


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with serving(vector_of) as running:
        yield running


@pytest.fixture
def settings(config: Config, endpoint: Endpoint) -> Config:
    return config.model_copy(update={"embedder": "openai", "embedder_url": endpoint.url})


@asynccontextmanager
async def started(settings: Config) -> AsyncIterator[AsyncClient]:
    async with (
        serve.running_server(settings) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        yield client


async def existing(client: AsyncClient) -> set[str]:
    """Return the IDs of all checkpoints."""
    threads = [thread.thread_id async for thread in client.threads()]
    return {entry.checkpoint_id for name in threads async for entry in client.history(name)}


async def look(client: AsyncClient) -> tuple[str, int]:
    """Search for a word of all summaries, and check the results.

    An answer that counts no checkpoint as missing contains all existing checkpoints. Returns its
    mode and count.
    """
    alive = await existing(client)
    results = await client.search_history("note", limit=100)
    ids = {result.checkpoint_id for result in results}
    assert ids <= alive
    if not results.unindexed:
        assert ids == alive
    return results.mode, results.unindexed


async def until(client: AsyncClient, mode: str, missing: int) -> None:
    """Search until an answer has a mode and a number of missing checkpoints."""
    async with asyncio.timeout(SECONDS):
        while True:
            if await look(client) == (mode, missing):
                return
            await asyncio.sleep(0.02)


async def until_all_are_found(client: AsyncClient) -> None:
    """Search until the embedder answers and no checkpoint is missing."""
    await until(client, "vector", 0)


async def until_it_rests(client: AsyncClient) -> None:
    """Wait until the server's embedding has failed, which only the status shows."""
    async with asyncio.timeout(SECONDS):
        while True:
            search = (await client.status()).search
            assert search is not None
            if search.last_error:
                return
            await asyncio.sleep(0.02)


def failing(_: web.Request, __: object) -> web.StreamResponse:
    return web.Response(status=503)


async def test_after_an_outage_a_search_misses_nothing_that_it_counts_as_indexed(
    settings: Config, endpoint: Endpoint
) -> None:
    async with started(settings) as client:
        for number in range(3):
            await client.save(f"t{number}", {}, summary=f"note before the outage {number}")
        await until_all_are_found(client)
        endpoint.respond = failing
        for number in range(4):
            await client.save(f"t{number}", {"n": number}, summary=f"note in the outage {number}")
        await client.delete("t0")
        await until_it_rests(client)
        assert await look(client) == ("lexical", 0)
        endpoint.respond = None
        await until_all_are_found(client)


async def test_an_outage_may_begin_before_a_restart_and_end_after_it(
    settings: Config, endpoint: Endpoint
) -> None:
    async with started(settings) as client:
        await client.save("before", {}, summary="note before the outage")
        await until_all_are_found(client)
        endpoint.respond = failing
        for name in ("kept", "deleted"):
            await client.save(name, {}, summary=f"note {name} in the outage")
    async with started(settings) as client:
        await client.delete("deleted")
        await client.save("after", {}, summary="note after the restart")
        assert await look(client) == ("lexical", 0)
        endpoint.respond = None
        await until_all_are_found(client)


async def test_a_text_that_the_embedder_refuses_counts_until_it_is_accepted(
    settings: Config, endpoint: Endpoint
) -> None:
    refusing = True

    def respond(_: web.Request, body: dict[str, list[str]]) -> web.StreamResponse:
        if refusing and any("refused" in text for text in body["input"]):
            return web.Response(status=400)
        return web.json_response(answer([vector_of(text) for text in body["input"]]))

    endpoint.respond = respond
    async with started(settings) as client:
        await client.save("t", {}, summary="note that is refused for a while")
        await client.save("u", {}, summary="note that is accepted")
        await until(client, "vector", 1)
        search = (await client.status()).search
        assert search is not None
        assert search.unindexed_checkpoints == 1
        refusing = False
        await until_all_are_found(client)


async def test_vectors_of_callers_are_counted_with_those_that_the_embedder_owes(
    settings: Config, endpoint: Endpoint
) -> None:
    async with started(settings) as client:
        await client.save("t", {}, summary="note first")
        await until_all_are_found(client)
        endpoint.respond = failing
        sent = await client.save("u", {}, summary="note with a vector", vector=[1.0, 2.0])
        results = await client.search_similar([1.0, 2.0], limit=100)
        assert (results[0].checkpoint_id, results.unindexed) == (sent, 0)
        await client.save("u", {}, summary="note without")
        results = await client.search_similar([1.0, 2.0], limit=100)
        assert (len(results), results.unindexed) == (2, 1)
