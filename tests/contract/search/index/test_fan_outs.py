"""The cost of indexing a fan-out grows with the number of its writes, not with the square."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from tests.contract.search.kit import due_keys, save
from tests.kit.drafts import TENANT, key, write
from tests.kit.journal import Journal
from tuskpoint_server.journal.sql.statements import driver_of
from tuskpoint_server.search import change_feed

FEW, MANY = 250, 1000
LIMIT = 100


async def fan_out(journal: Journal, thread_id: str, count: int) -> None:
    """Save a checkpoint, and the writes of a number of tasks."""
    await save(journal, "01", "fans out", thread_id=thread_id)
    for number in range(count):
        said = write("said", b"", task=f"{number}")
        await journal.save_writes(TENANT, key("01", thread_id), [said])


def instructions(connection: Connection) -> int:
    """Return about how many instructions SQLite executes to read the due changes."""
    executed = 0

    def count() -> int:
        nonlocal executed
        executed += 1
        return 0

    driver_of(connection).set_progress_handler(count, 100)
    try:
        assert change_feed.stretch(connection, LIMIT, None, {}).due
        [backlog] = change_feed.backlog(connection)
    finally:
        driver_of(connection).set_progress_handler(None, 0)
    assert backlog.checkpoints == 1
    return executed


@pytest.mark.sqlite
async def test_four_times_the_writes_take_about_four_times_the_work(journal: Journal) -> None:
    await fan_out(journal, "t", FEW)
    few = await journal.database.query(instructions)
    for number in range(FEW, MANY):
        said = write("said", b"", task=f"{number}")
        await journal.save_writes(TENANT, key("01"), [said])
    assert await journal.database.query(instructions) < 5 * few


async def test_a_question_among_many_writes_is_found(journal: Journal) -> None:
    await fan_out(journal, "t", FEW)
    assert await due_keys(journal) == ["t:01"]
    asking = write("__interrupt__", b"?", task=f"{FEW // 2}", idx=-3)
    await save(journal, "02", "next", parent_id="01")
    await journal.save_writes(TENANT, key("01"), [asking])
    [backlog] = await journal.index.backlog()
    assert backlog.checkpoints == 3  # two saved checkpoints, and the checkpoint with a question
    assert sorted(await due_keys(journal)) == ["t:01", "t:02"]
