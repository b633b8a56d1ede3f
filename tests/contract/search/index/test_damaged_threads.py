"""A damaged thread is not indexed, and other threads still are."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import update

from tests.contract.search.kit import drain, look, make_searchable, results_of, save
from tests.kit.drafts import TENANT, key
from tests.kit.journal import Clock, Journal
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import checkpoints, threads
from tuskpoint_server.search.index import SKIPPED_S


async def name_agent(journal: Journal, agent_id: str, *thread_ids: str) -> None:
    """Set the agent of threads behind the server's back; the empty agent restores them."""

    def edit(batch: UnitOfWork) -> None:
        where = threads.c.thread_id.in_(thread_ids)
        batch.connection.execute(update(threads).where(where).values(agent_id=agent_id))
        batch.logs.clear()

    journal.is_edited = True
    await journal.database.transact(edit)


async def damaged(journal: Journal) -> list[str]:
    """Return the threads that are not indexed because they are damaged."""
    return [damage.metadata["thread_id"] for damage in await journal.index.damaged(TENANT)]


async def test_others_are_indexed_and_it_is_told_once_and_tried_again(
    journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    victims = ("a", "b", "c")
    for thread_id in (*victims, "sound"):
        await save(journal, "1", f"the writer starts {thread_id}", thread_id=thread_id)
        clock.advance(1)
    await name_agent(journal, "another", *victims)
    with caplog.at_level(logging.ERROR):
        assert await drain(journal, limit=2) == 1
        assert await damaged(journal) == list(victims)
        await save(journal, "2", "the writer ends", thread_id="sound")
        assert await drain(journal, limit=2) == 1
        clock.advance(SKIPPED_S)
        assert await drain(journal, limit=2) == 0
    assert await look(journal, "writer") == [key("2", "sound"), key("1", "sound")]
    for thread_id in victims:
        assert caplog.text.count(f"not indexed: thread '{thread_id}' is damaged") == 1
    assert await journal.index.damaged("another") == []
    await name_agent(journal, "", *victims)
    clock.advance(SKIPPED_S)
    assert await drain(journal, limit=2) == len(victims)
    assert await damaged(journal) == []


async def test_it_is_indexed_at_once_when_it_begins_again(journal: Journal) -> None:
    await save(journal, "1", "the writer starts")
    await name_agent(journal, "another", "t")
    assert await drain(journal) == 0
    await journal.removal.delete_thread(TENANT, "t")
    assert await damaged(journal) == []
    await save(journal, "2", "the writer starts again")
    assert await drain(journal) == 1
    assert await look(journal, "writer") == [key("2")]


async def test_a_walk_through_it_ends(journal: Journal) -> None:
    for number in range(9):
        await save(journal, f"{number}", f"the writer takes step {number}")
    await drain(journal)
    await make_searchable(journal, "t", False)
    await journal.index.sweep()
    await drain(journal)
    await make_searchable(journal, "t", True)
    stretch = await journal.index.take(4)
    assert stretch.walk is not None
    await journal.index.store(stretch, stretch.due, remember=False)
    await save(journal, "1", "the reader starts", thread_id="sound")
    await name_agent(journal, "another", "t")
    await drain(journal, limit=4)
    assert await damaged(journal) == ["t"]
    assert await look(journal, "reader") == [key("1", "sound")]


async def test_damaged_rows_take_no_place_of_others_in_an_answer(journal: Journal) -> None:
    for number in range(5):
        await save(journal, f"{number}", "the writer " * (5 - number))
    await drain(journal)
    journal.is_edited = True
    # one of these checkpoints is the best match
    where = checkpoints.c.checkpoint_id.in_(["0", "4"])
    await journal.database.transact(
        lambda batch: batch.connection.execute(
            update(checkpoints).where(where).values(metadata=b'{"by": "another"}')
        ).close()
    )
    results = await results_of(journal, "writer", limit=3)
    assert {result.key for result in results[:3]} == {key("1"), key("2"), key("3")}
    assert {result.key for result in results[3:] if result.damage} & {key("0"), key("4")}
