"""Documents are stored only for current checkpoints, and swept once search may not find them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import pytest
from sqlalchemy import Connection, func, select, update

from tests.contract.search.kit import (
    ONE,
    check_text,
    drain,
    due_keys,
    indexed,
    look,
    make_searchable,
    save,
    vectors_of,
    watermarks,
)
from tests.kit.drafts import TENANT, key
from tests.kit.journal import Clock, Journal, rows_of
from tuskpoint_server.core.search import MemoryState, pointer_of
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import documents, memories, vectors
from tuskpoint_server.search.change_feed import Stretch
from tuskpoint_server.search.searched_values import Document


async def count(journal: Journal) -> dict[str, int]:
    def work(connection: Connection) -> dict[str, int]:
        return {
            table.name.removeprefix("search_"): connection.execute(
                select(func.count()).select_from(table)
            ).scalar_one()
            for table in (documents, vectors, memories)
        }

    return await journal.database.query(work)


async def take(journal: Journal, body: str = "") -> tuple[Stretch, list[Document]]:
    """Return the due changes with a document for each."""
    stretch = await journal.index.take(100)
    return stretch, [checkpoint._replace(body=body) for checkpoint in stretch.due]


async def _save_again(journal: Journal) -> None:
    await save(journal, "01", "saved after", data=b"after", restarts=True)


async def _prune_and_save_again(journal: Journal) -> None:
    await save(journal, "02", "the latest")
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await _save_again(journal)


async def _delete_and_save_again(journal: Journal) -> None:
    await journal.removal.delete_thread(TENANT, "t")
    await _save_again(journal)


@pytest.mark.parametrize(
    "change",
    [_save_again, _prune_and_save_again, _delete_and_save_again],
    ids=lambda it: it.__name__,
)
@pytest.mark.parametrize("seconds", [0, -60])
async def test_a_clock_that_stops_or_goes_back_leaves_no_earlier_document(
    journal: Journal,
    clock: Clock,
    seconds: float,
    change: Callable[[Journal], Coroutine[None, None, None]],
) -> None:
    await save(journal, "01", "saved before", data=b"before")
    stretch, made = await take(journal, "before")
    clock.advance(seconds)
    await change(journal)
    assert await journal.index.store(stretch, made, remember=True) == 0
    await drain(journal)
    assert await look(journal, "before") == []
    assert await look(journal, '"saved after"') == [key("01")]


async def test_a_thread_that_is_not_searchable_is_passed_over(
    journal: Journal, clock: Clock
) -> None:
    await save(journal, "01", "saved one")
    await drain(journal)
    await make_searchable(journal, "t", False)
    clock.advance(1)
    await save(journal, "02", "saved two")
    await save(journal, "01", "saved again")
    assert await drain(journal) == 0
    assert await due_keys(journal) == []
    assert await journal.index.now(TENANT) == {}
    assert (await watermarks(journal))["t"][0] == (await watermarks(journal))["t"][1]
    clock.advance(1)
    await make_searchable(journal, "t", True)
    assert [tenant.checkpoints for tenant in await journal.index.backlog()] == [2]
    assert await drain(journal) == 2
    assert sorted(await look(journal, "saved"), key=str) == [key("01"), key("02")]


async def test_a_sweep_removes_only_documents_that_may_not_be_found(
    journal: Journal, clock: Clock
) -> None:
    index = journal.index
    for name in ("kept", "deleted", "silent"):
        await save(journal, "01", f"saved {name}", thread_id=name, vector=ONE)
        await save(journal, f"02-{name}", f"saved {name}", thread_id=name, vector=ONE)
    await save(journal, "03", "due, not indexed yet", thread_id="kept", vector=ONE)
    stretch = await index.take(10)
    made = [checkpoint for checkpoint in stretch.due if checkpoint.key.checkpoint_id != "03"]
    assert await index.store(stretch, made, remember=True) == 6
    assert await index.sweep() == 0
    await journal.removal.delete_thread(TENANT, "deleted")
    await make_searchable(journal, "silent", False)
    assert await count(journal) == {"documents": 6, "vectors": 5, "memories": 6}
    # Documents and memories of both threads; vectors were deleted with the checkpoints.
    assert await index.sweep() == 2 * (2 + 1) + 2
    assert await count(journal) == {"documents": 2, "vectors": 3, "memories": 4}
    assert await indexed(journal) == {
        (TENANT, "kept", "", checkpoint_id) for checkpoint_id in ("01", "02-kept")
    }
    assert set(await vectors_of(journal)) == {"kept:01", "kept:02-kept", "kept:03"}
    assert await index.sweep() == 0
    await check_text(journal)


async def test_a_sweep_leaves_memories_that_are_under_way(journal: Journal) -> None:
    await save(journal, "00", "being sent", thread_id="gone")
    for state in MemoryState:
        await save(journal, f"0{int(state)}", f"saved {state}", thread_id="gone")
    await drain(journal, remember=True)

    def set_states(batch: UnitOfWork) -> None:
        for state in MemoryState:
            pointer = pointer_of(TENANT, "", f"0{int(state)}")
            batch.connection.execute(
                update(memories).where(memories.c.pointer == pointer).values(state=int(state))
            )
        begun = memories.c.pointer == pointer_of(TENANT, "", "00")
        batch.connection.execute(update(memories).where(begun).values(unsure=True))

    await journal.database.transact(set_states)
    await journal.removal.delete_thread(TENANT, "gone")
    await journal.index.sweep()
    left = set(await rows_of(journal, memories, "state", "unsure"))
    assert left == {(MemoryState.WAITING, True), (MemoryState.SENT, False)}


async def test_a_sweep_takes_any_number_of_turns(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuskpoint_server.search.index.DROPPED_AT_ONCE", 2)
    for number in range(5):
        await save(journal, f"0{number}", "saved", thread_id="gone")
    await save(journal, "01", "saved")
    await drain(journal)
    await journal.removal.delete_thread(TENANT, "gone")
    assert await journal.index.sweep() == 5
    assert await indexed(journal) == {(TENANT, "t", "", "01")}
