"""The journal stores the progress of each memory for MemWal, whatever else ends."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.contract.search.kit import drain
from tests.kit.drafts import TENANT, draft, key
from tests.kit.journal import Clock, Journal, opened, rows_of
from tuskpoint_server.core.model import SaveOutcome
from tuskpoint_server.core.search import Memory, MemoryState, memory_text, pointer_of
from tuskpoint_server.journal.sql.schema import memories
from tuskpoint_server.search.memories import LOOKED_AT, MemoriesStatus, MemoryRows, MemoryTally

OTHER = "other"
SENT, DELIVERED = MemoryState.SENT, MemoryState.DELIVERED


def memory_of(checkpoint_id: str, summary: str, tenant: str = TENANT) -> str:
    return memory_text(summary, pointer_of(tenant, "", checkpoint_id))


async def save(
    journal: Journal,
    checkpoint_id: str,
    summary: str,
    *,
    thread_id: str = "t",
    tenant: str = TENANT,
) -> SaveOutcome:
    return await journal.save_checkpoint(
        tenant, draft(checkpoint_id, thread_id=thread_id, summary=summary)
    )


async def index(journal: Journal) -> None:
    """Index the due changes, which records the memories for MemWal."""
    await drain(journal, remember=True, limit=500)


async def remember(journal: Journal, summaries: Sequence[str], tenant: str = TENANT) -> None:
    """Save checkpoints 1, 2, ... with summaries, and index them."""
    for number, summary in enumerate(summaries, start=1):
        await save(journal, str(number), summary, tenant=tenant, thread_id=f"of {tenant}")
    await index(journal)


async def stored(journal: Journal) -> list[tuple[str, MemoryState]]:
    rows = await journal.database.query(
        lambda connection: connection.execute(
            select(memories.c.text, memories.c.state).order_by(memories.c.number)
        ).all()
    )
    return [(row[0].partition(" ckpt:")[0], MemoryState(row[1])) for row in rows]


async def unsure(journal: Journal) -> list[str]:
    rows = await rows_of(journal, memories, "number", "text", "unsure")
    return [str(text).partition(" ckpt:")[0] for _, text, is_unsure in sorted(rows) if is_unsure]


def summaries(memories: Sequence[Memory]) -> list[str]:
    return [memory.text.partition(" ckpt:")[0] for memory in memories]


def numbers(memories: Sequence[Memory]) -> list[int]:
    return [memory.number for memory in memories]


@pytest.fixture
def rows(journal: Journal) -> MemoryRows:
    return journal.memories


# --- recorded memories ---------------------------------------------------------------------


async def test_memwal_gets_each_summary_once(journal: Journal, clock: Clock) -> None:
    await save(journal, "01", "The writer\n  started.")
    await save(journal, "02", " \t ")
    await drain(journal, remember=True)
    await journal.lineage.fork(TENANT, key("01"), "fork", "")
    await drain(journal, remember=True)
    pointer = pointer_of(TENANT, "", "01")
    said = memory_text("The writer started.", pointer)
    names = ("tenant", "pointer", "text", "digest", "state", "attempts", "due_us")
    assert await rows_of(journal, memories, *names) == [
        (
            TENANT,
            pointer,
            said,
            hashlib.sha256(said.encode()).digest(),
            MemoryState.WAITING,
            0,
            clock.now_us,
        )
    ]
    clock.advance(1)
    await save(journal, "01", "The writer stopped.")
    await drain(journal, remember=True)
    texts = [text for (text,) in await rows_of(journal, memories, "text")]
    assert texts == [said, memory_text("The writer stopped.", pointer)]


async def test_nothing_is_sent_to_memwal_unless_asked_to(journal: Journal) -> None:
    await save(journal, "01", "A summary.")
    await drain(journal)
    assert await rows_of(journal, memories, "text") == []


async def sent(rows: MemoryRows, limit: int, *, unsure_first: bool = False) -> list[str]:
    """Take memories, and record that they were sent."""
    memories = await rows.take(limit, unsure_first=unsure_first)
    await rows.note([replace(memory, state=SENT) for memory in memories])
    return summaries(memories)


# --- progress ------------------------------------------------------------------------------


async def test_a_memory_is_unsure_from_taking_it_to_noting_its_outcome(
    journal: Journal, rows: MemoryRows
) -> None:
    await remember(journal, ["one", "two", "three"])
    [first, second] = await rows.take(2)
    assert first == Memory(
        number=first.number,
        tenant=TENANT,
        pointer=pointer_of(TENANT, "", "1"),
        text=memory_of("1", "one"),
        state=MemoryState.WAITING,
        unsure=False,
        attempts=0,
        due_us=first.due_us,
    )
    assert second.text == memory_of("2", "two")
    assert await unsure(journal) == ["one", "two"]
    await rows.note([replace(second, state=SENT)])
    assert await unsure(journal) == ["one"]
    [again] = await rows.take(2)
    assert (again.number, again.unsure) == (first.number, True)
    await rows.note([first])
    assert summaries(await rows.take(2)) == ["one", "three"]
    assert await unsure(journal) == ["one", "three"]


async def test_from_waiting_to_delivered(journal: Journal, rows: MemoryRows, clock: Clock) -> None:
    await remember(journal, ["one", "two"])
    memories = await rows.take(20)
    asked_us = clock.now_us + 15_000_000
    sent = [replace(memory, state=SENT, job_id=f"job {memory.number}") for memory in memories]
    await rows.note([replace(memory, due_us=asked_us) for memory in sent])
    assert await rows.underway(20) == []
    assert await rows.next_due_us(MemoryState.WAITING) is None
    assert await rows.next_due_us(MemoryState.SENT) == asked_us
    clock.advance(15)
    underway = await rows.underway(20)
    assert [memory.job_id for memory in underway] == [
        f"job {number}" for number in numbers(memories)
    ]
    await rows.note([replace(underway[0], due_us=clock.now_us + 30_000_000)])
    assert numbers(await rows.underway(20)) == [memories[1].number]
    await rows.note([replace(underway[1], state=DELIVERED, blob_id="blob")])
    assert await rows.underway(20) == []
    clock.advance(30)
    assert numbers(await rows.underway(20)) == [memories[0].number]
    assert await stored(journal) == [("one", MemoryState.SENT), ("two", MemoryState.DELIVERED)]


async def test_a_memory_is_sent_again_only_after_its_pause(
    journal: Journal, rows: MemoryRows, clock: Clock
) -> None:
    await remember(journal, ["one"])
    [memory] = await rows.take(20)
    await rows.note([replace(memory, due_us=clock.now_us + 1_000_000, attempts=1)])
    assert await rows.take(20) == []
    clock.advance(1)
    [again] = await rows.take(20)
    assert (again.attempts, again.unsure, again.job_id) == (1, False, "")


async def test_one_that_is_unsure_comes_alone(
    journal: Journal, rows: MemoryRows, clock: Clock
) -> None:
    await remember(journal, ["one", "two", "three", "four"])
    memories = await rows.take(2)
    await rows.note([replace(memory, unsure=True) for memory in memories])
    assert await sent(rows, 20) == ["one"]
    assert await sent(rows, 20) == ["two"]
    assert await sent(rows, 20) == ["three", "four"]


async def test_unsure_ones_may_be_asked_for_first(
    journal: Journal, rows: MemoryRows, clock: Clock
) -> None:
    await remember(journal, ["one", "two", "three"])
    [memory] = await rows.take(1)
    clock.advance(1)
    await rows.note([replace(memory, due_us=clock.now_us, unsure=True)])
    clock.advance(1)
    assert await sent(rows, 1, unsure_first=True) == ["one"]
    assert await sent(rows, 1, unsure_first=True) == ["two"]
    assert await sent(rows, 1) == ["three"]


async def test_the_longest_due_comes_first(
    journal: Journal, rows: MemoryRows, clock: Clock
) -> None:
    await remember(journal, ["one", "two"])
    [memory] = await rows.take(1)
    clock.advance(5)
    await rows.note([replace(memory, due_us=clock.now_us, attempts=1)])
    assert summaries(await rows.take(20)) == ["two", "one"]


async def test_tenants_are_not_mixed(journal: Journal, rows: MemoryRows) -> None:
    await remember(journal, ["one", "two"])
    await remember(journal, ["uno", "dos"], OTHER)
    first = await rows.take(20)
    await rows.note([replace(memory, state=SENT) for memory in first])
    second = await rows.take(20)
    assert [(memory.tenant, memory.text) for memory in first] == [
        (TENANT, memory_of("1", "one")),
        (TENANT, memory_of("2", "two")),
    ]
    assert [(memory.tenant, memory.text) for memory in second] == [
        (OTHER, memory_of("1", "uno", OTHER)),
        (OTHER, memory_of("2", "dos", OTHER)),
    ]


async def test_a_memory_is_unsure_after_a_restart_while_it_was_sent(
    tmp_path: Path, clock: Clock
) -> None:
    async with opened(tmp_path, clock) as journal:
        await remember(journal, ["one", "two", "three"])
        await journal.memories.take(2)
    async with opened(tmp_path, clock) as journal:
        rows = journal.memories
        assert await unsure(journal) == ["one", "two"]
        assert [await sent(rows, 20) for _ in range(3)] == [["one"], ["two"], ["three"]]


async def test_an_accepted_job_is_still_asked_for_after_a_restart(
    tmp_path: Path, clock: Clock
) -> None:
    async with opened(tmp_path, clock) as journal:
        await remember(journal, ["one"])
        [memory] = await journal.memories.take(20)
        await journal.memories.note([replace(memory, state=SENT, job_id="job")])
    async with opened(tmp_path, clock) as journal:
        [again] = await journal.memories.underway(20)
        assert (again.number, again.job_id) == (memory.number, "job")


# --- checkpoints hidden from search --------------------------------------------------------


async def test_a_deleted_thread_is_not_sent(journal: Journal, rows: MemoryRows) -> None:
    await save(journal, "1", "one", thread_id="goes")
    await save(journal, "2", "two", thread_id="stays")
    await index(journal)
    await journal.removal.delete_thread(TENANT, "goes")
    assert summaries(await rows.take(20)) == ["two"]
    assert await stored(journal) == [("two", MemoryState.WAITING)]


async def test_a_thread_that_is_not_searchable_is_not_sent_until_it_is(
    journal: Journal, rows: MemoryRows, clock: Clock
) -> None:
    await save(journal, "1", "one")
    await index(journal)
    await journal.removal.set_searchable(TENANT, "t", False)
    assert await rows.take(20) == []
    assert await stored(journal) == []
    clock.advance(1)
    await journal.removal.set_searchable(TENANT, "t", True)
    await index(journal)
    assert summaries(await rows.take(20)) == ["one"]


async def test_only_the_current_summary_is_sent(
    journal: Journal, rows: MemoryRows, clock: Clock
) -> None:
    await save(journal, "1", "first thought")
    await index(journal)
    clock.advance(1)
    await save(journal, "1", "second thought")
    assert await rows.take(20) == []
    await index(journal)
    assert summaries(await rows.take(20)) == ["second thought"]


async def test_a_copy_keeps_the_memory_that_both_share(journal: Journal, rows: MemoryRows) -> None:
    await save(journal, "1", "one")
    await journal.lineage.copy_thread(TENANT, "t", "copy", "")
    await index(journal)
    await journal.removal.delete_thread(TENANT, "t")
    assert await sent(rows, 20) == ["one"]
    assert await rows.take(20) == []


async def test_however_many_are_gone_those_that_live_are_found(
    journal: Journal, rows: MemoryRows
) -> None:
    many = range(LOOKED_AT + 10)
    await asyncio.gather(
        *(save(journal, str(number), f"no. {number}", thread_id="goes") for number in many)
    )
    await save(journal, "1", "one", thread_id="stays")
    await index(journal)
    await journal.removal.delete_thread(TENANT, "goes")
    assert summaries(await rows.take(20)) == ["one"]
    assert await stored(journal) == [("one", MemoryState.WAITING)]


async def test_a_sent_memory_is_asked_for_after_its_thread_was_deleted(
    journal: Journal, rows: MemoryRows, clock: Clock
) -> None:
    await remember(journal, ["one"])
    [memory] = await rows.take(20)
    await journal.removal.delete_thread(TENANT, f"of {TENANT}")
    await rows.note([replace(memory, state=SENT, job_id="job")])
    assert numbers(await rows.underway(20)) == [memory.number]


# --- status ------------------------------------------------------------------------------


async def test_standing_counts_by_state_and_tenant(
    journal: Journal, rows: MemoryRows, clock: Clock
) -> None:
    assert await rows.status(TENANT) == MemoriesStatus()
    began_us = clock.now_us
    await remember(journal, ["uno"], OTHER)
    clock.advance(1)
    await remember(journal, ["1", "2", "3", "4", "5"])
    assert await sent(rows, 1) == ["uno"]
    [refused, delivered, accepted] = await rows.take(3)
    states = {refused: MemoryState.REFUSED, delivered: DELIVERED, accepted: SENT}
    await rows.note([replace(memory, state=state) for memory, state in states.items()])
    assert await rows.status(OTHER) == MemoriesStatus(underway=1)
    status = MemoriesStatus(
        waiting=2, underway=1, delivered=1, oldest_waiting_us=began_us + 1_000_000
    )
    assert await rows.status(TENANT) == status
    await rows.take(1)
    # memories that are being sent still count as waiting
    assert await rows.status(TENANT) == status
    assert await rows.pending(TENANT) == 3
    assert set(await rows.tallies()) == {
        MemoryTally(OTHER, MemoryState.SENT, 1),
        MemoryTally(TENANT, MemoryState.WAITING, 2),
        MemoryTally(TENANT, MemoryState.SENT, 1),
        MemoryTally(TENANT, MemoryState.DELIVERED, 1),
        MemoryTally(TENANT, MemoryState.REFUSED, 1),
    }
