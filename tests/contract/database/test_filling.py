"""No server can open a journal before it is completely filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.databases import place
from tests.kit.drafts import TENANT, draft, key
from tests.kit.journal import Journal
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import View
from tuskpoint_server.journal.database.database import Database


async def saved(database: Database, checkpoint_id: str) -> None:
    await Journal(database).save_checkpoint(TENANT, draft(checkpoint_id))


async def test_an_unfinished_journal_is_refused_and_dropped_by_the_next_filling(
    tmp_path: Path,
) -> None:
    where = place(tmp_path / "journal.db")
    first = await Database.open(where, generation=2)
    await saved(first, "a")
    await first.close()
    with pytest.raises(RuntimeError, match="was not filled to the end"):
        await Database.open(where)
    second = await Database.open(where, generation=3)
    await saved(second, "b")
    await second.finish()
    await second.close()
    with pytest.raises(RuntimeError, match="it is not empty"):
        await Database.open(where, generation=4)
    served = await Database.open(where)
    try:
        assert served.generation == 3
        journal = Journal(served)
        assert await journal.load(TENANT, key("a"), View.ENTRY) is None
        assert await journal.load(TENANT, key("b"), View.ENTRY) is not None
    finally:
        await served.close()


async def test_a_journal_that_was_removed_leaves_an_empty_database(tmp_path: Path) -> None:
    where = place(tmp_path / "journal.db")
    first = await Database.open(where, generation=2)
    await saved(first, "a")
    await first.remove()
    second = await Database.open(where)
    assert second.generation == 1
    await second.close()


async def test_a_journal_whose_key_cannot_be_opened_leaves_an_empty_database(
    tmp_path: Path,
) -> None:
    where = place(tmp_path / "journal.db")

    async def refuse(_wrapped: str) -> tuple[bytes, str]:
        raise Refusal(Reason.KEY_PROVIDER_UNAVAILABLE, provider="kms", problem="it does not answer")

    with pytest.raises(Refusal):
        await Database.open(where, generation=2, open_key=refuse)
    # A journal that was left behind would be refused as unfinished.
    served = await Database.open(where)
    assert served.generation == 1
    await served.close()
