"""The leader indexes and embeds for both servers of a journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.contract.search.kit import look, save
from tests.contract.search.test_tasks import SETTINGS, Letters, until_embedded
from tests.kit.drafts import TENANT, key
from tests.kit.journal import Clock, Journal, Ticks, expire, opened
from tuskpoint_server.core.search import Metric, SearchScope
from tuskpoint_server.journal.lease import Lease
from tuskpoint_server.search.search import SearchEngine

pytestmark = pytest.mark.postgresql


class Closable(Letters):
    """An embedder that its server closes."""

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class Server:
    """A server's journal, lease and search."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.ticks = Ticks()
        self.lease = Lease(journal.database, 10, self.ticks)
        self.embedder = Closable()
        self.engine = SearchEngine(
            journal.database, self.lease, SETTINGS, embedder=self.embedder, memwal=None
        )

    async def lead(self) -> None:
        """Become the leader, which does its duty from then on."""
        assert await self.lease.acquire()
        async with self.engine.leading():
            pass

    async def stop(self) -> None:
        self.lease.lose()
        await self.engine.stop()


@pytest.fixture
async def servers(tmp_path: Path, clock: Clock) -> AsyncIterator[tuple[Server, Server]]:
    """Yield two servers; the first one is the leader."""
    async with AsyncExitStack() as stack:
        made = [Server(await stack.enter_async_context(opened(tmp_path, clock))) for _ in "ab"]
        for server in made:
            stack.push_async_callback(server.stop)
        await made[0].lead()
        yield made[0], made[1]


async def nearest(server: Server, text: str) -> list[str]:
    """Return the checkpoints with the nearest texts."""
    results = await server.engine.nearest(
        TENANT, await server.engine.embed(text), Metric.COSINE, SearchScope(), 5
    )
    return [result.key.checkpoint_id for result in results]


async def test_a_search_on_another_server_waits_for_the_keeper(
    servers: tuple[Server, Server],
) -> None:
    leader, other = servers
    for number, saver in enumerate((other, leader, other)):
        await save(
            saver.journal, str(number), f"the writer pauses {number}", thread_id=f"t{number}"
        )
        assert await other.engine.catch_up(TENANT) == 0
        assert await look(other.journal, str(number)) == [key(str(number), f"t{number}")]


async def test_another_server_embeds_queries_alone(servers: tuple[Server, Server]) -> None:
    leader, other = servers
    await save(other.journal, "a", "aaaa", thread_id="a")
    await save(other.journal, "o", "oooo", thread_id="o")
    await until_embedded(other.journal, 2, await other.embedder.dimension())
    assert not other.embedder.called.is_set()
    assert (await nearest(other, "a"))[0] == "a"
    assert leader.embedder.called.is_set()


async def test_the_next_keeper_goes_on_where_the_last_one_ended(
    servers: tuple[Server, Server],
) -> None:
    leader, other = servers
    await save(leader.journal, "1", "the writer starts")
    assert await other.engine.catch_up(TENANT) == 0
    leader.ticks.now += 3600  # the leader's process was stopped
    await expire(other.journal.database)
    await other.lead()
    await save(leader.journal, "2", "the writer ends", thread_id="u")
    assert await leader.engine.catch_up(TENANT) == 0
    assert await look(leader.journal, "ends") == [key("2", "u")]
    assert await other.engine.catch_up(TENANT) == 0
