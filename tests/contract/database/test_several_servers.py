"""Several servers change one journal, and each change sees what the other servers committed."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.kit.archives import house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import (
    TENANT,
    Reference,
    channel,
    data_of,
    draft,
    key,
    refused,
    write,
    written,
)
from tests.kit.journal import Clock, Journal, opened
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import SaveOutcome, View
from tuskpoint_server.journal.database import writer
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import journal_info

pytestmark = pytest.mark.postgresql

AGENTS, STEPS = 6, 12


@pytest.fixture
async def servers(tmp_path: Path, clock: Clock) -> AsyncIterator[list[Journal]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(tmp_path, clock)) for _ in range(3)]


async def seqs(journal: Journal, thread_id: str = "t") -> list[int]:
    """Return the numbers of a thread's changes."""
    news = await journal.events.after(TENANT, thread_id, 0, 10_000)
    return [event.seq for event in news.events]


async def test_a_save_sees_what_another_server_saved(servers: list[Journal]) -> None:
    server, other, _ = servers
    text = b"x" * 500
    await server.save_checkpoint(TENANT, draft("1", "", {"a": text, "b": b"1"}))
    await other.save_checkpoint(TENANT, draft("2", "1", {"a": text + b"2", "b": b"2"}))
    await server.save_writes(TENANT, key("2"), [write("c", b"w")])
    channels = [channel("a", text + b"3", 2), channel("b", Reference.INHERIT)]
    saved = await server.save_checkpoint(TENANT, draft("3", "2", channels))
    assert saved.seq == 4
    for journal in servers:
        checkpoint = await journal.load(TENANT, key("3"), View.FULL)
        assert data_of(checkpoint) == {"a": text + b"3", "b": b"2"}
    assert await seqs(server) == [1, 2, 3, 4]


async def test_what_two_servers_insert_at_once_is_decided_again(servers: list[Journal]) -> None:
    """Both servers may start on an empty database, and claim it for their blob store."""
    both = threading.Barrier(2, timeout=20)

    def claim(batch: UnitOfWork) -> int:
        mine = journal_info.c.name == "mine"
        known = batch.connection.execute(sa.select(journal_info.c.value).where(mine)).all()
        if not known:
            both.wait()
            batch.connection.execute(sa.insert(journal_info).values(name="mine", value="1"))
        return len(known)

    answers = await asyncio.gather(*(server.database.transact(claim) for server in servers[:2]))
    assert sorted(answers) == [0, 1]


async def test_a_head_moves_once_from_each_place(servers: list[Journal]) -> None:
    """Of several saves that expect the same head, one succeeds, whatever their servers knew."""
    head = ""
    for number in range(STEPS):
        answers = await asyncio.gather(
            *(
                journal.save_checkpoint(
                    TENANT, draft(f"{number:03d}{at}", head, {"x": b"%d" % at}, expected_head=head)
                )
                for at, journal in enumerate(servers)
            ),
            return_exceptions=True,
        )
        saved = [answer for answer in answers if isinstance(answer, SaveOutcome)]
        refusals = [answer for answer in answers if isinstance(answer, Refusal)]
        assert len(saved) == 1
        assert [refusal.reason for refusal in refusals] == [Reason.HEAD_MOVED] * 2
        head = saved[0].key.checkpoint_id
    assert await seqs(servers[0]) == list(range(1, STEPS + 1))


async def test_writes_that_overtake_on_another_server_belong_to_the_checkpoint(
    servers: list[Journal],
) -> None:
    server, other, third = servers
    await server.save_checkpoint(TENANT, draft("1"))
    await other.save_writes(TENANT, key("2"), [write("c", b"early")], early=True)
    await server.save_checkpoint(TENANT, draft("2", "1"))
    checkpoint = await third.load(TENANT, key("2"), View.FULL)
    assert [row[4] for row in written(checkpoint)] == [b"early"]


async def test_a_value_that_another_server_removed_is_missing(servers: list[Journal]) -> None:
    server, other, _ = servers
    await server.save_checkpoint(TENANT, draft("1", "", {"a": b"1" * 400}))
    await other.removal.delete_thread(TENANT, "t")
    await refused(
        server.save_checkpoint(TENANT, draft("2", "1", {"a": b"2" * 400})), Reason.THREAD_DELETED
    )
    await server.save_checkpoint(TENANT, draft("3", "", {"a": b"3" * 400}))
    assert data_of(await other.load(TENANT, key("3"), View.FULL)) == {"a": b"3" * 400}


async def test_many_agents_over_three_servers_lose_and_repeat_nothing(
    servers: list[Journal],
) -> None:
    """Agents share threads and change servers at random; some start on all servers at once."""
    choice = random.Random(7)
    acknowledged: dict[tuple[str, str], bytes] = {}

    async def agent(number: int) -> None:
        for step in range(STEPS):
            thread_id, name = f"t{(number + step) % 3}", f"{step:03d}-{number}"
            data = b"%d of %d" % (step, number) * 50
            journal = choice.choice(servers)
            await journal.save_checkpoint(
                TENANT, draft(name, "", {"text": data}, thread_id=thread_id)
            )
            await choice.choice(servers).save_writes(
                TENANT, key(name, thread_id), [write("c", data)]
            )
            acknowledged[thread_id, name] = data

    await asyncio.gather(*map(agent, range(AGENTS)))
    for (thread_id, name), data in acknowledged.items():
        checkpoint = await choice.choice(servers).load(TENANT, key(name, thread_id), View.FULL)
        assert data_of(checkpoint) == {"text": data}
        assert [row[4] for row in written(checkpoint)] == [data]
    for thread_id in ("t0", "t1", "t2"):
        mine = sum(1 for thread, _ in acknowledged if thread == thread_id)
        assert await seqs(servers[0], thread_id) == list(range(1, 2 * mine + 1))


async def test_a_batch_goes_on_without_a_thread_that_another_server_changes(
    servers: list[Journal],
) -> None:
    server, other, _ = servers
    for thread_id in ("held", "free"):
        await server.save_checkpoint(TENANT, draft("1", thread_id=thread_id))
    entered, leave = threading.Event(), threading.Event()

    def hold(batch: UnitOfWork) -> None:
        batch.find(TENANT, "held")
        entered.set()
        assert leave.wait(30)

    blocked = other.database.transact(hold)
    await asyncio.to_thread(entered.wait, 30)
    try:
        waiting = [
            server.save_checkpoint(TENANT, draft(name, "1", thread_id="held"))
            for name in ("2", "3")
        ]
        # also after the other saves were deferred, and the writer is idle
        for number in range(2, 6):
            await server.save_checkpoint(TENANT, draft(f"{number}", "1", thread_id="free"))
        assert not any(saved.done() for saved in waiting)
    finally:
        leave.set()
    await blocked
    assert [(await saved).seq for saved in waiting] == [2, 3]


async def test_a_save_of_a_thread_that_stays_locked_is_refused_in_time(
    servers: list[Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of another server may hang in a transaction forever."""
    monkeypatch.setattr(writer, "_LONGEST_DEFERRAL_S", 0.5)
    server, other, _ = servers
    await server.save_checkpoint(TENANT, draft("1", thread_id="held"))
    entered, leave = threading.Event(), threading.Event()

    def hold(batch: UnitOfWork) -> None:
        batch.find(TENANT, "held")
        entered.set()
        assert leave.wait(30)

    blocked = other.database.transact(hold)
    await asyncio.to_thread(entered.wait, 30)
    try:
        late = server.save_checkpoint(TENANT, draft("2", "1", thread_id="held"))
        await refused(late, Reason.JOURNAL_UNAVAILABLE)
        await server.save_checkpoint(TENANT, draft("1", thread_id="free"))
    finally:
        leave.set()
    await blocked
    again = await server.save_checkpoint(TENANT, draft("2", "1", thread_id="held"))
    assert again.seq == 2


async def test_a_value_that_another_server_evicted_is_no_keyframe_any_more(
    tmp_path: Path, clock: Clock
) -> None:
    """An eviction does not change the thread's log, but the server still forgets the keyframe."""
    text = random.Random(1).randbytes(6000)
    async with (
        house(tmp_path, MemoryStore(), clock) as home,
        opened(tmp_path, clock) as other,
    ):
        await other.save_checkpoint(TENANT, draft("1", "", {"a": text}))
        await other.save_checkpoint(TENANT, draft("2", "1", {"a": text + b"2"}))
        await other.save_checkpoint(TENANT, draft("3", "2", {"a": b"3"}))
        await home.flush()
        clock.advance(10)
        assert await home.evict() > 0
        await other.save_checkpoint(TENANT, draft("4", "3", {"a": text + b"4"}))
        checkpoint = await other.load(TENANT, key("4"), View.FULL)
        assert data_of(checkpoint) == {"a": text + b"4"}
