"""Restoring snapshots whose threads went on, were pruned, or whose values were evicted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.eviction_house import House, open_house
from tests.contract.journal_drafts import TENANT, data_of, draft, key, refused, write
from tests.contract.lineage_kit import chain, history, under
from tuskpoint_server.domain.errors import Reason
from tuskpoint_server.domain.evicted import lacks_values
from tuskpoint_server.domain.lineage import Snapshot
from tuskpoint_server.domain.model import Checkpoint, CheckpointKey, Durability, PruneStrategy, View
from tuskpoint_server.domain.snapshots import thread_of
from tuskpoint_server.journal.lineage_api import SnapshotDraft, ValuesEvicted
from tuskpoint_server.journal.snapshots import Snapshots

KEEP = PruneStrategy.KEEP_LATEST
BOTH = pytest.mark.parametrize("rollback", [False, True], ids=["new threads", "rollback"])


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as opened:
        yield opened


async def taken(house: House, *names: str) -> Snapshot:
    draft = SnapshotDraft(names or ("t",))
    return await house.snapshots.create(TENANT, draft, "", Durability.JOURNALED)


async def restored(house: House, snapshot: Snapshot, *, rollback: bool) -> CheckpointKey:
    """Restore a snapshot; return what became of its first member."""
    made = await house.snapshots.restore(
        TENANT,
        snapshot.snapshot_id,
        rollback=rollback,
        request_id="",
        wanted=Durability.JOURNALED,
    )
    return made[0]


async def captured(house: House, snapshot: Snapshot) -> Checkpoint:
    """Return what the journal has of the first member."""
    at = key(snapshot.members[0].checkpoint_id, thread_of(snapshot.snapshot_id), "0")
    found = await house.journal.load(TENANT, at, View.FULL)
    assert found is not None
    return found


async def load(house: House, at: CheckpointKey) -> Checkpoint:
    return await house.load(at.checkpoint_id, at.thread_id)


# --- what happened since -------------------------------------------------------------------


@BOTH
async def test_a_head_that_was_replaced_is_restored_as_it_was_captured(
    house: House, rollback: bool
) -> None:
    await house.save(draft("01", "", {"x": b"captured"}, summary="captured"))
    snapshot = await taken(house)
    await house.save(draft("01", "", {"x": b"replaced"}, summary="replaced"))
    made = await load(house, await restored(house, snapshot, rollback=rollback))
    assert data_of(made) == {"x": b"captured"}
    assert made.entry.summary.endswith("captured")
    assert data_of(await house.load("01")) == {"x": b"replaced"}


async def test_writes_that_wait_for_a_pruned_member_are_no_part_of_it(house: House) -> None:
    await chain(house.journal, ["01", "02"], seeds=["01"])
    snapshot = await taken(house)
    await house.save(draft("03", "02", {"x": b"3", "log": b"seed 03"}))
    await house.journal.prune_thread(TENANT, "t", KEEP)
    late = write("log", b"late", task="task of log")
    for gone in ("01", "02"):
        await house.journal.save_writes(TENANT, key(gone), [late])
    made = await restored(house, snapshot, rollback=True)
    assert data_of(await load(house, made)) == {"x": b"02"}
    assert await history(house.journal, made) == (b"seed 01", (("task of log", b"w01"),))


@BOTH
async def test_a_member_outlives_its_deleted_thread(house: House, rollback: bool) -> None:
    await chain(house.journal, ["01", "02"], seeds=["01"])
    snapshot = await taken(house)
    await house.journal.delete_thread(TENANT, "t")
    await house.journal.sweep(content_grace_s=-1, early_write_ttl_s=-1)
    if rollback:
        await refused(restored(house, snapshot, rollback=True), Reason.THREAD_NOT_FOUND)
        return
    made = await restored(house, snapshot, rollback=False)
    assert data_of(await load(house, made)) == {"x": b"02"}
    assert await history(house.journal, made) == (b"seed 01", (("task of log", b"w01"),))


# --- evicted values ------------------------------------------------------------------------


async def test_what_was_captured_may_leave_the_journal(house: House) -> None:
    """Though it is the greatest of its namespace; what describes the snapshot stays."""
    await chain(house.journal, ["01", "02"], seeds=["01"])
    await chain(house.journal, ["05"], ns="keeper", metadata=under("02"))
    snapshot = await taken(house)
    await house.save(draft("03", "02", {"x": b"3"}), draft("06", "05", {"x": b"6"}, ns="keeper"))
    await house.evict()
    assert lacks_values(await captured(house, snapshot))
    assert await house.snapshots.get(TENANT, snapshot.snapshot_id) == snapshot
    puts = len(house.kit.blobs.puts)
    await house.evict()
    assert len(house.kit.blobs.puts) == puts, "nothing waits"


@BOTH
@pytest.mark.parametrize("pruned", [False, True], ids=["whole", "pruned"])
async def test_evicted_members_are_restored(house: House, rollback: bool, pruned: bool) -> None:
    await chain(house.journal, ["01", "02", "03"], seeds=["02"])
    await chain(house.journal, ["05"], ns="keeper", metadata=under("03"))
    snapshot = await taken(house)
    await chain(house.journal, ["04"], parent_id="03")
    await chain(house.journal, ["06"], parent_id="05", ns="keeper", metadata=under("04"))
    await house.evict()
    if pruned:
        await house.save(draft("07", "04", {"x": b"7", "log": b"seed 07"}))
        await house.journal.prune_thread(TENANT, "t", KEEP)
    await house.evict()
    assert lacks_values(await captured(house, snapshot))
    made = await restored(house, snapshot, rollback=rollback)
    assert data_of(await load(house, made)) == {"x": b"03"}
    if rollback:
        assert await house.here(made.checkpoint_id), "it has no envelope yet"
    await house.flush()
    await house.journal.delete_thread(TENANT, thread_of(snapshot.snapshot_id))
    await house.journal.sweep(content_grace_s=-1, early_write_ttl_s=-1)
    assert data_of(await load(house, made)) == {"x": b"03"}
    (log,) = await house.service.delta_history(TENANT, made, ["log"])
    assert log.seed is not None
    assert log.seed.value is not None
    assert log.seed.value.data == b"seed 02"
    assert [one.value.data for one in log.writes] == [b"w02"]


async def test_evicted_values_are_asked_for_and_nothing_is_restored(house: House) -> None:
    for name in ("t", "u"):
        await chain(house.journal, ["01", "02"], thread_id=name, seeds=["01"])
    snapshot = await taken(house, "t", "u")
    for name in ("t", "u"):
        await chain(house.journal, ["03"], parent_id="02", thread_id=name)
    await house.evict()
    journal = Snapshots(house.journal)
    with pytest.raises(ValuesEvicted) as caught:
        await journal.restore_snapshot(
            TENANT, snapshot.snapshot_id, rollback=True, request_id="r", supplied={}
        )
    assert all(one.envelopes for one in caught.value.entries)
    for name in ("t", "u"):
        assert (await house.load("", name)).entry.key == key("03", name)
    made = await house.snapshots.restore(
        TENANT, snapshot.snapshot_id, rollback=True, request_id="r", wanted=Durability.JOURNALED
    )
    again = await journal.restore_snapshot(
        TENANT, snapshot.snapshot_id, rollback=True, request_id="r", supplied={}
    )
    assert tuple(one.key for one in again) == made
    for one in made:
        assert data_of(await load(house, one)) == {"x": b"02"}


async def test_a_thread_that_was_restored_is_captured_and_restored_again(house: House) -> None:
    """Envelopes go from thread to snapshot to thread."""
    await chain(house.journal, ["01", "02"], seeds=["01"])
    first = await taken(house)
    await house.journal.delete_thread(TENANT, "t")
    await house.evict()
    thread = (await restored(house, first, rollback=False)).thread_id
    await house.snapshots.delete(TENANT, first.snapshot_id, Durability.JOURNALED)
    await house.evict()
    second = await taken(house, thread)
    await house.save(draft("03", "02", {"x": b"3"}, thread_id=thread))
    await house.evict()
    for rollback in (False, True):
        made = await restored(house, second, rollback=rollback)
        assert data_of(await load(house, made)) == {"x": b"02"}
        await house.evict()
