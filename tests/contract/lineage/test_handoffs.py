"""A journal keeps the answers of hand-offs, and the blobs that receivers rely upon."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from sqlalchemy import select

from tests.contract.lineage.kit import certify, logged, sha
from tests.kit.drafts import TENANT, draft, key, refused
from tests.kit.journal import Clock, Journal, bind_again, row_of, save
from tuskpoint_server.archive.rows.pinned_bundles import LostBundle, drop_lost
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import BlobLocation, CheckpointKey
from tuskpoint_server.core.threads import EventKind, PruneStrategy
from tuskpoint_server.features.lineage.first_answers import Request, request
from tuskpoint_server.journal.sql.schema import handoffs, members, threads


def at(name: str) -> BlobLocation:
    """Return the location of a standalone blob."""
    return BlobLocation(sha(name), 1, f"blob-{name}")


def handoff_request(request_id: str, to_agent: str = "writer", tenant: str = TENANT) -> Request:
    """Return a request to hand a checkpoint off."""
    return request(tenant, request_id, "CreateHandoff", to_agent)


async def keep(
    journal: Journal,
    name: str,
    parts: Sequence[str] | None = (),
    *,
    of: CheckpointKey | None = None,
    request_id: str = "",
    to_agent: str = "writer",
    content_seq: int = 1,
) -> bytes:
    return await journal.handoffs.keep_handoff(
        handoff_request(request_id, to_agent),
        of or key("1"),
        at(name),
        None if parts is None else [at(part) for part in parts],
        f"answer {name}".encode(),
        content_seq=content_seq,
    )


async def lose(journal: Journal, name: str) -> list[LostBundle]:
    return await journal.database.transact(
        lambda batch: drop_lost(batch.connection, TENANT, f"blob-{name}")
    )


async def rows(journal: Journal) -> list[tuple[str, bytes]]:
    handoff_rows = await journal.database.query(
        lambda connection: connection.execute(
            select(threads.c.thread_id, handoffs.c.sha256).join(
                threads, threads.c.number == handoffs.c.thread
            )
        ).all()
    )
    return sorted((row[0], bytes(row[1])) for row in handoff_rows)


async def unchanged(journal: Journal, checkpoint_id: str = "1") -> BlobLocation | None:
    kept = journal.handoffs
    bundle = await kept.unchanged(TENANT, key(checkpoint_id))
    return bundle[0] if bundle is not None else None


@pytest.fixture
async def thread(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("1"))


# --- lifetime of bundles ---------------------------------------------------------------


@pytest.mark.usefixtures("thread")
async def test_a_bundle_is_recorded_with_its_parts(journal: Journal) -> None:
    await keep(journal, "list", ["a", "b"])
    await keep(journal, "whole")
    table = members.c
    member_rows = await journal.database.query(
        lambda connection: connection.execute(
            select(table.sha256, table.kind, table.blob_id, table.parts, table.thread)
        ).all()
    )
    assert {tuple(row) for row in member_rows} == {
        (sha("list"), "parts", "blob-list", sha("a") + sha("b"), None),
        (sha("a"), "part", "blob-a", None, None),
        (sha("b"), "part", "blob-b", None, None),
        (sha("whole"), "segment", "blob-whole", None, None),
    }


@pytest.mark.usefixtures("thread")
async def test_a_bundle_is_a_change_that_has_to_be_stored(journal: Journal) -> None:
    """Otherwise no record of the bundle would ever be written."""
    await certify(journal)
    await keep(journal, "whole")
    row = await row_of(journal)
    assert (row.seq, row.certified_seq, row.dirty_since_us is not None) == (2, 1, True)
    assert await logged(journal, "t") == [
        (1, EventKind.CHECKPOINT_SAVED, "1"),
        (2, EventKind.HANDED_OFF, ""),
    ]


@pytest.mark.usefixtures("thread")
async def test_an_event_names_the_checkpoint_that_was_handed_off(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("2", "1"))
    for name, checkpoint_id in (("one", "1"), ("two", "2"), ("one", "1")):
        await keep(journal, name, of=key(checkpoint_id))
    changed = await journal.events.after(TENANT, "t", 0, 10)
    assert [(event.kind, event.key.checkpoint_id) for event in changed.events[2:]] == [
        (EventKind.HANDED_OFF, ""),  # repeated by the last
        (EventKind.HANDED_OFF, "2"),
        (EventKind.HANDED_OFF, "1"),
    ]


# --- repeated hand-offs ----------------------------------------------------------------


@pytest.mark.usefixtures("thread")
async def test_nothing_is_stored_again_while_nothing_changed(
    journal: Journal, clock: Clock
) -> None:
    assert await unchanged(journal) is None
    await keep(journal, "whole")
    assert await unchanged(journal) == at("whole")
    assert await unchanged(journal, "2") is None
    await save(journal, draft("1", thread_id="other"), draft("1"))
    assert await unchanged(journal) == at("whole")
    await keep(journal, "of another", of=key("2"), content_seq=2)
    await certify(journal)
    assert await unchanged(journal) == at("whole")
    await journal.set_label(TENANT, key("1"), "label")
    assert await unchanged(journal) is None
    await keep(journal, "again", content_seq=(await row_of(journal)).seq)
    assert await unchanged(journal) == at("again")


@pytest.mark.usefixtures("thread")
async def test_handing_off_again_keeps_the_parts(journal: Journal) -> None:
    await keep(journal, "list", ["a", "b"])
    assert await unchanged(journal) == at("list")
    await keep(journal, "list", None)
    assert await lose(journal, "b") == [LostBundle(key("1"), sha("list"))]


@pytest.mark.usefixtures("thread")
async def test_a_change_while_a_bundle_is_stored_counts(journal: Journal) -> None:
    await save(journal, draft("2", "1"))
    await keep(journal, "of the first change", content_seq=1)
    assert await unchanged(journal) is None


@pytest.mark.usefixtures("thread")
async def test_a_swept_log_counts_as_a_change(journal: Journal, clock: Clock) -> None:
    await keep(journal, "whole")
    await save(journal, draft("2", "1"), draft("3", "2"))
    row = await row_of(journal)
    await journal.database.transact(
        lambda batch: [
            batch.connection.exec_driver_sql(text)
            for text in (
                f"UPDATE threads SET compacted_seq = {row.seq}",
                "DELETE FROM changes",
            )
        ]
    )
    await bind_again(journal.database)
    assert await unchanged(journal) is None


# --- retention of bundles --------------------------------------------------------------


@pytest.mark.parametrize("end", ["delete", "prune", "retention", "copy over it"])
@pytest.mark.usefixtures("thread")
async def test_however_an_incarnation_ends_its_bundles_go(
    journal: Journal, clock: Clock, end: str
) -> None:
    await keep(journal, "whole")
    if end == "delete":
        await journal.removal.delete_thread(TENANT, "t")
    elif end == "prune":
        await journal.removal.prune_thread(TENANT, "t", PruneStrategy.DELETE_ALL)
    elif end == "retention":
        await journal.removal.set_retention(TENANT, "t", 1)
        clock.advance(2)
        assert await journal.removal.delete_if_past(TENANT, "t") is not None
    else:
        await journal.save_checkpoint(TENANT, draft("1", thread_id="source", metadata={"a": 1}))
        await journal.removal.prune_thread(TENANT, "t", PruneStrategy.DELETE_ALL)
        await journal.lineage.copy_thread(TENANT, "source", "t", "")
    assert await rows(journal) == []


@pytest.mark.usefixtures("thread")
async def test_pruning_keeps_handed_off_bundles(journal: Journal) -> None:
    await keep(journal, "whole")
    await journal.save_checkpoint(TENANT, draft("2", "1"))
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await rows(journal) == [("t", sha("whole"))]


@pytest.mark.usefixtures("thread")
async def test_the_same_bundle_twice_is_kept_once(journal: Journal) -> None:
    await keep(journal, "list", ["a"])
    await keep(journal, "list", ["a"])
    assert await rows(journal) == [("t", sha("list"))]


async def test_a_thread_that_is_gone_meanwhile_hands_nothing_off(journal: Journal) -> None:
    await refused(keep(journal, "whole", request_id="r"), Reason.CHECKPOINT_NOT_FOUND)
    await journal.save_checkpoint(TENANT, draft("1"))
    await journal.removal.delete_thread(TENANT, "t")
    refusal = await refused(keep(journal, "whole", request_id="r"), Reason.CHECKPOINT_NOT_FOUND)
    assert refusal.metadata["checkpoint_id"] == "1"
    assert await rows(journal) == []
    kept = journal.handoffs
    assert await kept.first_answer(handoff_request("r")) is None


# --- lost bundles ----------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["list", "a", "b"])
@pytest.mark.usefixtures("thread")
async def test_a_bundle_without_one_of_its_blobs_is_forgotten(journal: Journal, gone: str) -> None:
    await keep(journal, "list", ["a", "b"])
    await keep(journal, "whole")
    assert await lose(journal, gone) == [LostBundle(key("1"), sha("list"))]
    assert await rows(journal) == [("t", sha("whole"))]
    assert await lose(journal, gone) == []
    await keep(journal, "list", ["a", "b"])
    assert len(await rows(journal)) == 2


@pytest.mark.usefixtures("thread")
async def test_the_loss_of_another_blob_changes_nothing(journal: Journal) -> None:
    await keep(journal, "whole")
    assert await lose(journal, "other") == []
    assert await rows(journal) == [("t", sha("whole"))]


# --- retries ---------------------------------------------------------------------------


@pytest.mark.usefixtures("thread")
async def test_a_retry_gets_the_first_answer(journal: Journal, clock: Clock) -> None:
    kept = journal.handoffs
    assert await kept.first_answer(handoff_request("r")) is None
    assert await keep(journal, "whole", request_id="r") == b"answer whole"
    assert await kept.first_answer(handoff_request("r")) == b"answer whole"
    assert await kept.first_answer(handoff_request("r", tenant="another tenant")) is None
    # The first answer did not exist yet when the second call started.
    assert await keep(journal, "later", request_id="r") == b"answer whole"
    assert await rows(journal) == [("t", sha("whole"))]
    await refused(kept.first_answer(handoff_request("r", "other")), Reason.REQUEST_ID_REUSED)
    await refused(
        keep(journal, "later", request_id="r", to_agent="other"), Reason.REQUEST_ID_REUSED
    )
    clock.advance(LIMITS.request_id_ttl_s + 1)
    await journal.removal.sweep(early_write_ttl_s=1)
    assert await kept.first_answer(handoff_request("r")) is None


@pytest.mark.usefixtures("thread")
async def test_without_a_request_id_there_are_no_retries(journal: Journal) -> None:
    kept = journal.handoffs
    answers = [await keep(journal, name) for name in ("a", "b")]
    assert answers == [b"answer a", b"answer b"]
    assert await kept.first_answer(handoff_request("")) is None


@pytest.mark.usefixtures("thread")
async def test_of_many_at_once_one_is_kept(journal: Journal) -> None:
    answers = await asyncio.gather(
        *(keep(journal, f"{number}", request_id="r") for number in range(10))
    )
    assert len(set(answers)) == 1
    assert len(await rows(journal)) == 1
