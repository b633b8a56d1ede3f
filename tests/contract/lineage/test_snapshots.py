"""Several threads are captured together, and restored together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import select

from tests.contract.lineage.kit import certify, chain, evict, history, seen, under
from tests.kit.drafts import TENANT, data_of, draft, key, refused, write
from tests.kit.journal import Clock, Journal, row_of, save
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import Lineage, View
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.checkpoints.listed_threads import ThreadQuery
from tuskpoint_server.features.checkpoints.missing_values import ValuesEvictedError
from tuskpoint_server.features.lineage import snapshot_state as kept
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft, SnapshotQuery
from tuskpoint_server.features.lineage.snapshot_state import Snapshot
from tuskpoint_server.journal.sql.schema import contents, threads
from tuskpoint_server.journal.sql.statements import Statement


async def create(journal: Journal, *thread_ids: str, **more: str) -> Snapshot:
    draft = SnapshotDraft(thread_ids, **more)  # type: ignore[arg-type]
    return await journal.snapshots.create_snapshot(TENANT, draft, "")


async def restore(journal: Journal, snapshot: Snapshot, *, rollback: bool = False) -> Sequence[str]:
    """Restore a snapshot; return the threads of its restored members."""
    restored = await journal.snapshots.restore_snapshot(
        TENANT, snapshot.snapshot_id, rollback=rollback, request_id=""
    )
    return [saved.key.thread_id for saved in restored]


async def two_threads(journal: Journal) -> None:
    """Save a thread with delta channels and a stateful subgraph, and a plain thread."""
    await chain(journal, ["01", "02"], seeds=["01"])
    await chain(journal, ["03"], ns="keeper", seeds=["03"], metadata=under("01"))
    await chain(journal, ["04"], parent_id="03", ns="keeper", metadata=under("02"))
    await save(
        journal,
        draft("05", thread_id="u", channels={"y": b"5"}, agent_id="writer", label="l"),
        draft("06", "05", thread_id="u", channels={"y": b"6"}),
    )


async def names(journal: Journal) -> list[str]:
    """Return all live threads, the server's own threads included."""
    rows = await journal.database.query(
        lambda connection: connection.execute(
            select(threads.c.thread_id).where(threads.c.deleted.is_(False))
        ).all()
    )
    return sorted(row[0] for row in rows)


# --- capturing -----------------------------------------------------------------------------


async def test_a_snapshot_lists_its_checkpoints(journal: Journal) -> None:
    await two_threads(journal)
    made = await create(journal, "t", "u", session_id="s", hostname="h", working_directory="/w")
    assert [member.key for member in made.members] == [key("02"), key("06", "u")]
    assert await journal.snapshots.snapshot(TENANT, made.snapshot_id) == made
    assert (made.session_id, made.hostname, made.working_directory) == ("s", "h", "/w")
    assert await journal.snapshots.snapshot(TENANT, "another") is None
    assert await journal.snapshots.snapshot("another tenant", made.snapshot_id) is None


async def test_members_are_threads_of_their_origins_family(journal: Journal) -> None:
    await two_threads(journal)
    before = await stored(journal)
    made = await create(journal, "t", "u")
    held = [kept.member_thread_of(made.snapshot_id, number) for number in (0, 1)]
    describing = kept.thread_of(made.snapshot_id)
    assert await names(journal) == sorted([describing, *held, "t", "u"])
    for thread_id, member in zip(("t", "u"), held, strict=True):
        assert (await row_of(journal, member)).family == (await row_of(journal, thread_id)).family
    assert list(await seen(journal, held[1])) == [("", "06")]
    places = [("", "02"), ("keeper", "03"), ("keeper", "04")]
    assert sorted(await seen(journal, held[0])) == places
    assert await history(journal, key("02", held[0])) == await history(journal, key("02"))
    # Of the threads, only values that only pending writes had are stored, for delta channels.
    new = await stored(journal) - before
    assert {b"w01", b"w03"} < new
    assert len(new) == 4, "the description has two values"
    threads = await journal.list_threads(TENANT, ThreadQuery(), "", 10)
    assert [thread.thread_id for thread in threads] == ["t", "u"]


async def stored(journal: Journal) -> set[bytes]:
    rows = await journal.database.query(
        lambda connection: Statement(select(contents.c.data)).run(connection).fetchall()
    )
    return {row[0] for row in rows}


async def test_captured_checkpoints_survive_their_threads(journal: Journal) -> None:
    await two_threads(journal)
    expected, log = await seen(journal), await history(journal, key("02"))
    made = await create(journal, "t", "u")
    await save(journal, draft("07", "02", {"x": b"7", "log": b"anew"}, delta=("log",)))
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await journal.removal.delete_thread(TENANT, "t")
    await journal.removal.sweep(early_write_ttl_s=-1)
    [thread_id, _] = await restore(journal, made)
    places = [("", "02"), ("keeper", "03"), ("keeper", "04")]
    assert await seen(journal, thread_id) == {place: expected[place] for place in places}
    assert await history(journal, key("02", thread_id)) == log


async def test_only_threads_with_a_root_are_captured_all_or_none(journal: Journal) -> None:
    await save(journal, draft("01"), draft("01", thread_id="sub", ns="inner"))
    for absent in ("none", "sub"):
        refusal = await refused(create(journal, "t", absent), Reason.THREAD_NOT_FOUND)
        assert refusal.metadata["thread_id"] == absent
    assert await names(journal) == ["sub", "t"]


async def test_a_retry_gets_the_first_snapshot(journal: Journal) -> None:
    await save(journal, draft("01"))
    draft_of = SnapshotDraft(("t",))
    made = await journal.snapshots.create_snapshot(TENANT, draft_of, "r")
    await save(journal, draft("02", "01"))
    assert await journal.snapshots.create_snapshot(TENANT, draft_of, "r") == made
    other = journal.snapshots.create_snapshot(TENANT, SnapshotDraft(("t",), "s"), "r")
    await refused(other, Reason.REQUEST_ID_REUSED)
    await journal.snapshots.delete_snapshot(TENANT, made.snapshot_id)
    gone = journal.snapshots.create_snapshot(TENANT, draft_of, "r")
    await refused(gone, Reason.SNAPSHOT_NOT_FOUND)


# --- listing and deleting ------------------------------------------------------------------


async def test_snapshots_are_listed_newest_first(journal: Journal, clock: Clock) -> None:
    await save(journal, draft("01"), draft("01", thread_id="u"))
    made = []
    for number in range(5):
        clock.advance(1)
        made.append(await create(journal, "t", "u", session_id=f"s{number % 2}"))
    made.reverse()
    assert await journal.snapshots.list_snapshots(TENANT, SnapshotQuery(), "", 10) == made
    assert await journal.snapshots.list_snapshots(TENANT, SnapshotQuery(), "", 2) == made[:2]
    below = made[1].snapshot_id
    assert await journal.snapshots.list_snapshots(TENANT, SnapshotQuery(), below, 2) == made[2:4]
    odd = await journal.snapshots.list_snapshots(TENANT, SnapshotQuery("s1"), "", 10)
    assert odd == [made[1], made[3]]
    assert await journal.snapshots.list_snapshots("another", SnapshotQuery(), "", 10) == []


async def test_a_deleted_snapshot_leaves_nothing(journal: Journal) -> None:
    await two_threads(journal)
    made, other = await create(journal, "t", "u"), await create(journal, "u")
    assert await journal.snapshots.delete_snapshot(TENANT, made.snapshot_id)
    assert not await journal.snapshots.delete_snapshot(TENANT, made.snapshot_id)
    assert await journal.snapshots.list_snapshots(TENANT, SnapshotQuery(), "", 10) == [other]
    assert await names(journal) == sorted(
        ["t", "u", kept.thread_of(other.snapshot_id), kept.member_thread_of(other.snapshot_id, 0)]
    )
    assert len(await restore(journal, other)) == 1
    for rollback in (True, False):
        call = restore(journal, made, rollback=rollback)
        await refused(call, Reason.SNAPSHOT_NOT_FOUND)


# --- restoring -----------------------------------------------------------------------------


async def test_members_are_restored_as_new_threads(journal: Journal) -> None:
    await two_threads(journal)
    made = await create(journal, "t", "u")
    restored = await journal.snapshots.restore_snapshot(
        TENANT, made.snapshot_id, rollback=False, request_id="r"
    )
    [first, second] = [saved.key for saved in restored]
    assert (first.checkpoint_id, second.checkpoint_id) == ("02", "06")
    loaded = await journal.load(TENANT, second, View.FULL)
    assert data_of(loaded) == {"y": b"6"}
    assert loaded is not None
    assert loaded.entry.lineage == Lineage(forked_from="u:06")
    detail = await journal.thread(TENANT, second.thread_id)
    assert detail is not None
    assert (detail.thread.agent_id, detail.thread.head_id) == ("writer", "06")
    again = await journal.snapshots.restore_snapshot(
        TENANT, made.snapshot_id, rollback=False, request_id="r"
    )
    assert [saved.key for saved in again] == [first, second]


async def test_threads_are_rolled_back_to_captured_checkpoints(journal: Journal) -> None:
    await two_threads(journal)
    made, log = await create(journal, "t", "u"), await history(journal, key("02"))
    await save(journal, draft("07", "02", {"x": b"7", "log": b"anew"}, delta=("log",)))
    await chain(journal, ["08"], parent_id="04", ns="keeper", metadata=under("07"))
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await restore(journal, made, rollback=True) == ["t", "u"]
    root = await journal.load(TENANT, key(""), View.FULL)
    assert data_of(root) == {"x": b"02"}
    assert root is not None
    assert root.entry.lineage == Lineage(rolled_back_from="t:02")
    assert await history(journal, root.entry.key) == log
    keeper = await journal.load(TENANT, key("", "t", "keeper"), View.FULL)
    assert keeper is not None
    assert keeper.entry.lineage == Lineage(rolled_back_from="t:03")
    assert keeper.entry.key.checkpoint_id < root.entry.key.checkpoint_id


async def test_a_thread_that_is_gone_is_not_taken_back(journal: Journal) -> None:
    await two_threads(journal)
    made = await create(journal, "t", "u")
    await journal.removal.delete_thread(TENANT, "u")
    before = await seen(journal)
    await refused(restore(journal, made, rollback=True), Reason.THREAD_NOT_FOUND)
    assert await seen(journal) == before


async def test_a_thread_that_began_anew_gets_the_values_of_before(journal: Journal) -> None:
    """A new incarnation is a separate family, so values are copied to it."""
    await two_threads(journal)
    made, log = await create(journal, "t"), await history(journal, key("02"))
    assert await journal.removal.delete_thread(TENANT, "t") == 4
    await save(journal, draft("01", "", {"z": b"new"}, restarts=True))
    await restore(journal, made, rollback=True)
    root = await journal.load(TENANT, key(""), View.FULL)
    assert data_of(root) == {"x": b"02"}
    assert root is not None
    assert await history(journal, root.entry.key) == log
    await journal.snapshots.delete_snapshot(TENANT, made.snapshot_id)
    await journal.removal.sweep(early_write_ttl_s=-1)
    assert data_of(await journal.load(TENANT, key(""), View.FULL)) == {"x": b"02"}


async def test_evicted_values_of_several_members_are_asked_for_at_once(
    journal: Journal,
) -> None:
    segments = []
    for thread_id in ("t", "u"):
        await chain(journal, ["01", "02"], thread_id=thread_id, seeds=["01"])
        segments.append(await certify(journal, thread_id))
    gone = await evict(journal, segments[0], b"w01")
    with pytest.raises(ValuesEvictedError) as caught:
        await create(journal, "t", "u")
    assert caught.value.digests == gone.keys()
    assert [place.sha256 for place in caught.value.places] == segments
    assert await names(journal) == ["t", "u"]
    made = await journal.snapshots.create_snapshot(TENANT, SnapshotDraft(("t", "u")), "", gone)
    for thread_id in await restore(journal, made):
        log = (("task of log", b"w01"),)
        assert await history(journal, key("02", thread_id)) == (b"seed 01", log)


async def test_a_snapshot_of_certified_checkpoints_stores_nothing_again(
    journal: Journal,
) -> None:
    await save(journal, draft("01", "", {"x": b"1"}, writes=(write("x", b"w"),)))
    await certify(journal)
    made = await create(journal, "t")
    held = await row_of(journal, kept.member_thread_of(made.snapshot_id, 0))
    assert (held.dirty_bytes, held.unindexed_since_us) == (0, None)
    [thread_id] = await restore(journal, made)
    assert (await row_of(journal, thread_id)).dirty_bytes == 0
