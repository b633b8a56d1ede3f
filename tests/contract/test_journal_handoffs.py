"""What a journal keeps of hand-offs: the answers, and the blobs that others rely upon."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from sqlalchemy import select

from tests.contract.conftest import Clock
from tests.contract.journal_drafts import TENANT, draft, key, refused
from tests.contract.test_journal_blobs import NOW, names_due, sha
from tuskpoint_server.domain.errors import Reason
from tuskpoint_server.domain.limits import LIMITS
from tuskpoint_server.domain.model import BlobLocation, CheckpointKey, PruneStrategy, StoredBlob
from tuskpoint_server.journal import archive_blobs, handoffs, schema
from tuskpoint_server.journal.handoffs import Handoffs, LostBundle
from tuskpoint_server.journal.journal import SqlJournal

ENDS = NOW + 100


def at(name: str) -> BlobLocation:
    """Where bytes lie that are a blob of their own."""
    return BlobLocation(sha(name), 1, f"blob-{name}")


def stored(name: str) -> StoredBlob:
    return StoredBlob(f"blob-{name}", epoch=1, end_epoch=5)


async def keep(
    journal: SqlJournal,
    name: str,
    parts: Sequence[str] = (),
    *,
    of: CheckpointKey | None = None,
    request_id: str = "",
    fingerprint: bytes = b"asked",
    tenant: str = TENANT,
) -> bytes:
    kept = Handoffs(journal, lambda blob: ENDS)
    return await kept.keep_handoff(
        tenant,
        of or key("1"),
        at(name),
        [at(part) for part in parts],
        [stored(one) for one in (*parts, name)],
        request_id,
        fingerprint,
        f"answer {name}".encode(),
    )


async def needed(journal: SqlJournal, name: str, tenant: str = TENANT) -> bool:
    return await journal.query(
        lambda connection: archive_blobs.is_needed(connection, tenant, f"blob-{name}")
    )


async def lose(journal: SqlJournal, name: str) -> list[LostBundle]:
    return await journal.transact(
        lambda connection: handoffs.drop_lost(connection, TENANT, f"blob-{name}")
    )


async def rows(journal: SqlJournal) -> list[tuple[str, bytes]]:
    table = schema.handoffs
    found = await journal.query(
        lambda connection: connection.execute(
            select(table.c.thread_id, table.c.sha256).order_by(table.c.sha256)
        ).all()
    )
    return [(row[0], bytes(row[1])) for row in found]


@pytest.fixture
async def thread(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("1"))


# --- what must last --------------------------------------------------------------------


@pytest.mark.usefixtures("thread")
async def test_a_bundle_is_needed_with_its_parts(journal: SqlJournal) -> None:
    await keep(journal, "list", ["a", "b"])
    for name in ("list", "a", "b"):
        assert await needed(journal, name)
        assert not await needed(journal, name, "another tenant")
    assert not await needed(journal, "c")
    assert set(await names_due(journal, ENDS + 1)) == {"blob-list", "blob-a", "blob-b"}
    assert await names_due(journal, ENDS) == []


@pytest.mark.usefixtures("thread")
async def test_a_thread_expires_with_its_bundles(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("1", thread_id="other"))
    await keep(journal, "list", ["a"])
    for thread_id, expected in (("t", ENDS), ("other", None)):
        found = await journal.thread(TENANT, thread_id)
        assert found is not None
        assert found.expire_us == expected
    assert (
        await journal.query(lambda connection: archive_blobs.earliest_expiry(connection, TENANT))
        == ENDS
    )


@pytest.mark.usefixtures("thread")
async def test_what_no_live_thread_handed_off_lapses(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("1", thread_id="other"))
    await keep(journal, "list", ["a"])
    await keep(journal, "whole", of=key("1", "other"))
    await journal.delete_thread(TENANT, "t")
    assert await rows(journal) == [("other", sha("whole"))]
    assert [await needed(journal, name) for name in ("list", "a", "whole")] == [False, False, True]
    dropped = await journal.transact(
        lambda connection: archive_blobs.drop_expired(connection, TENANT, ENDS + 1, 100)
    )
    assert dropped == 2


@pytest.mark.parametrize("end", ["delete", "prune", "retention", "copy over it"])
@pytest.mark.usefixtures("thread")
async def test_however_an_incarnation_ends_its_bundles_go(
    journal: SqlJournal, clock: Clock, end: str
) -> None:
    await keep(journal, "whole")
    if end == "delete":
        await journal.delete_thread(TENANT, "t")
    elif end == "prune":
        await journal.prune_thread(TENANT, "t", PruneStrategy.DELETE_ALL)
    elif end == "retention":
        await journal.set_retention(TENANT, "t", 1)
        clock.advance(2)
        assert await journal.delete_if_past(TENANT, "t") is not None
    else:
        await journal.save_checkpoint(TENANT, draft("1", thread_id="source", metadata={"a": 1}))
        await journal.prune_thread(TENANT, "t", PruneStrategy.DELETE_ALL)
        await journal.copy_thread(TENANT, "source", "t", "")
    assert await rows(journal) == []
    assert not await needed(journal, "whole")


@pytest.mark.usefixtures("thread")
async def test_pruning_leaves_what_was_handed_off(journal: SqlJournal) -> None:
    await keep(journal, "whole")
    await journal.save_checkpoint(TENANT, draft("2", "1"))
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await needed(journal, "whole")


@pytest.mark.usefixtures("thread")
async def test_the_same_bundle_twice_is_kept_once(journal: SqlJournal) -> None:
    await keep(journal, "list", ["a"])
    await keep(journal, "list", ["a"])
    assert await rows(journal) == [("t", sha("list"))]


async def test_a_thread_that_is_gone_meanwhile_hands_nothing_off(journal: SqlJournal) -> None:
    await refused(keep(journal, "whole", request_id="r"), Reason.CHECKPOINT_NOT_FOUND)
    await journal.save_checkpoint(TENANT, draft("1"))
    await journal.delete_thread(TENANT, "t")
    refusal = await refused(keep(journal, "whole", request_id="r"), Reason.CHECKPOINT_NOT_FOUND)
    assert refusal.metadata["checkpoint_id"] == "1"
    assert await rows(journal) == []
    assert not await needed(journal, "whole")
    kept = Handoffs(journal, lambda blob: ENDS)
    assert await kept.handed_off(TENANT, "r", b"asked") is None


# --- what the store has lost -----------------------------------------------------------


@pytest.mark.parametrize("gone", ["list", "a", "b"])
@pytest.mark.usefixtures("thread")
async def test_a_bundle_without_one_of_its_blobs_is_forgotten(
    journal: SqlJournal, gone: str
) -> None:
    await keep(journal, "list", ["a", "b"])
    await keep(journal, "whole")
    assert await lose(journal, gone) == [LostBundle(key("1"), sha("list"))]
    assert [await needed(journal, name) for name in ("list", "a", "b")] == [False] * 3
    assert await needed(journal, "whole")
    assert await lose(journal, gone) == []
    await keep(journal, "list", ["a", "b"])
    assert await needed(journal, "a")


@pytest.mark.usefixtures("thread")
async def test_the_loss_of_another_blob_changes_nothing(journal: SqlJournal) -> None:
    await keep(journal, "whole")
    assert await lose(journal, "other") == []
    assert await rows(journal) == [("t", sha("whole"))]


# --- retries ---------------------------------------------------------------------------


@pytest.mark.usefixtures("thread")
async def test_a_retry_gets_the_first_answer(journal: SqlJournal, clock: Clock) -> None:
    kept = Handoffs(journal, lambda blob: ENDS)
    assert await kept.handed_off(TENANT, "r", b"asked") is None
    assert await keep(journal, "whole", request_id="r") == b"answer whole"
    assert await kept.handed_off(TENANT, "r", b"asked") == b"answer whole"
    assert await kept.handed_off("another tenant", "r", b"asked") is None
    # Nobody had the first answer yet when the second began.
    assert await keep(journal, "later", request_id="r") == b"answer whole"
    assert await rows(journal) == [("t", sha("whole"))]
    await refused(kept.handed_off(TENANT, "r", b"other"), Reason.REQUEST_ID_REUSED)
    await refused(
        keep(journal, "later", request_id="r", fingerprint=b"other"), Reason.REQUEST_ID_REUSED
    )
    clock.advance(LIMITS.request_id_ttl_s + 1)
    await journal.sweep(content_grace_s=1, early_write_ttl_s=1)
    assert await kept.handed_off(TENANT, "r", b"asked") is None


@pytest.mark.usefixtures("thread")
async def test_without_a_request_id_there_are_no_retries(journal: SqlJournal) -> None:
    kept = Handoffs(journal, lambda blob: ENDS)
    answers = [await keep(journal, name) for name in ("a", "b")]
    assert answers == [b"answer a", b"answer b"]
    assert await kept.handed_off(TENANT, "", b"asked") is None


@pytest.mark.usefixtures("thread")
async def test_of_many_at_once_one_is_kept(journal: SqlJournal) -> None:
    answers = await asyncio.gather(
        *(keep(journal, f"{number}", request_id="r") for number in range(10))
    )
    assert len(set(answers)) == 1
    assert len(await rows(journal)) == 1
