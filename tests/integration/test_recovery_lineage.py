"""An empty disk, one catalog, and all that was made of checkpoints is there again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.lineage import Descent, LineageTree, Snapshot
from tuskpoint_server.domain.model import CheckpointKey, PruneStrategy, Saved
from tuskpoint_server.domain.snapshots import thread_of
from tuskpoint_server.journal.lineage_api import SnapshotDraft
from tuskpoint_server.journal.lineage_calls import Lineage
from tuskpoint_server.journal.snapshots import Snapshots

from .archive_kit import TENANT, Kit, write
from .recovery_kit import draft, flush, new_kit, recovered_kit, save, seen

DELTA = ("log",)
KEEP = PruneStrategy.KEEP_LATEST


async def delta_chain(kit: Kit, *ids: str, thread_id: str = "t") -> None:
    """Save checkpoints of which the first stores its delta channel, and a subgraph of each."""
    for before, one in zip(("", *ids), ids, strict=False):
        await save(
            kit,
            draft(
                one,
                before,
                {"x": one.encode()} if before else {"log": b"seed", "x": one.encode()},
                thread_id=thread_id,
                delta=DELTA,
                writes=(write(one.encode(), channel="log"),),
                summary=f"step {one}",
                agent_id="planner",
            ),
            draft(
                f"{one}-sub",
                f"{before}-sub" if before else "",
                thread_id=thread_id,
                ns="keeper",
                metadata={"parents": {"": one}},
            ),
        )


async def fork(kit: Kit, checkpoint_id: str, target: str, source: str = "t") -> Saved:
    key = CheckpointKey(source, "", checkpoint_id)
    return await Lineage(kit.journal).fork(TENANT, key, target, f"fork {target}")


async def roll_back(kit: Kit, checkpoint_id: str, thread_id: str = "t") -> Saved:
    key = CheckpointKey(thread_id, "", checkpoint_id)
    return await Lineage(kit.journal).rollback(TENANT, key, "", None, {})


async def take_snapshot(kit: Kit, *names: str) -> Snapshot:
    asked = SnapshotDraft(names, "session", "host", "/work", b'{"step": 1}')
    return await Snapshots(kit.journal).create_snapshot(TENANT, asked, "")


async def restore(kit: Kit, snapshot: Snapshot, *, rollback: bool) -> list[CheckpointKey]:
    made = await Snapshots(kit.journal).restore_snapshot(
        TENANT, snapshot.snapshot_id, rollback=rollback, request_id="", supplied={}
    )
    return [one.key for one in made]


async def lineage(kit: Kit, thread_id: str) -> LineageTree:
    found = await Lineage(kit.journal).lineage(TENANT, thread_id, 1000)
    assert found is not None
    return found


async def content(kit: Kit, key: CheckpointKey) -> bytes:
    loaded = await kit.journaled(key.checkpoint_id, key.thread_id)
    assert loaded.state is not None
    [value] = [one.value for one in loaded.state.channels if one.name == "x"]
    assert value is not None
    return value.data


async def written_to_log(kit: Kit, key: CheckpointKey) -> list[bytes]:
    """Return the seed of a delta channel, and the writes since."""
    [found] = await kit.journal.delta_history(TENANT, key, DELTA)
    assert found.seed is not None
    assert found.seed.value is not None
    return [found.seed.value.data, *(one.value.data for one in found.writes)]


async def test_forks_and_rollbacks_come_back(tmp_path: Path) -> None:
    """Some of what they are made of was stored before, some is hidden, some is gone."""
    async with new_kit(tmp_path / "old") as kit:
        await delta_chain(kit, "01", "02", "03")
        await flush(kit)
        await fork(kit, "03", "fork")
        rolled = await roll_back(kit, "02")
        await fork(kit, "", "fork of fork", "fork")
        await kit.journal.prune_thread(TENANT, "fork of fork", KEEP)
        await kit.journal.delete_thread(TENANT, "fork")
        catalog = await flush(kit)
        before = await seen(kit.journal)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            assert await seen(found.journal) == before
            [entry] = [
                one.entry
                for one in before["checkpoints"]
                if one.entry.key == CheckpointKey("fork of fork", "", "03")
            ]
            assert entry.lineage.forked_from == "fork:03"
            forked = CheckpointKey("fork of fork", "", "03")
            assert await written_to_log(found, forked) == [b"seed", b"01", b"02"]
            assert await written_to_log(found, rolled.key) == [b"seed", b"01"]
            assert await content(found, rolled.key) == b"02"
            [step] = [
                one for one in (await lineage(found, "t")).descendants if one.key == rolled.key
            ]
            assert (step.descent, step.origin.checkpoint_id) == (Descent.ROLLBACK, "02")
            # What was made of the recovered is made as before.
            again = await roll_back(found, rolled.key.checkpoint_id)
            assert await content(found, again.key) == b"02"
            await fork(found, "", "newest")
            newer = await flush(found)
            after = await seen(found.journal)
            async with recovered_kit(tmp_path / "newer", kit, newer) as once_more:
                assert await seen(once_more.journal) == after


async def test_adopted_threads_come_back(tmp_path: Path) -> None:
    async with new_kit(tmp_path / "theirs") as theirs, new_kit(tmp_path / "old") as kit:
        await delta_chain(theirs, "01", "02", "03")
        closure = await Lineage(theirs.journal).closure(TENANT, CheckpointKey("t", "", "03"))
        assert closure is not None
        adopted = await Lineage(kit.journal).adopt(TENANT, closure, "hash", "ours", "writer", "r")
        await fork(kit, "", "fork", "ours")
        catalog = await flush(kit)
        before = await seen(kit.journal)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            assert await seen(found.journal) == before
            assert await written_to_log(found, adopted.key) == [b"seed", b"01", b"02"]
            [step] = (await lineage(found, "ours")).ancestors
            assert (step.descent, str(step.origin)) == (Descent.ADOPTION, "t:03")
            steps = (await lineage(found, "fork")).ancestors
            assert [one.descent for one in steps] == [Descent.ADOPTION, Descent.FORK]
            detail = await found.journal.thread(TENANT, "ours")
            assert detail is not None
            assert detail.thread.agent_id == "writer"


@pytest.mark.parametrize("certified", [True, False], ids=["stored before", "stored with it"])
async def test_snapshots_come_back(tmp_path: Path, certified: bool) -> None:
    """Captured copies share the envelopes of their threads, or have their own."""
    async with new_kit(tmp_path / "old") as kit:
        await delta_chain(kit, "01", "02", "03")
        await delta_chain(kit, "07", thread_id="u")
        if certified:
            await flush(kit)
        snapshot = await take_snapshot(kit, "t", "u")
        gone = await take_snapshot(kit, "u")
        await flush(kit)
        await Snapshots(kit.journal).delete_snapshot(TENANT, gone.snapshot_id)
        await delta_chain(kit, "04")
        await kit.journal.delete_thread(TENANT, "u")
        catalog = await flush(kit)
        before = await seen(kit.journal)
        assert before["snapshots"] == [snapshot]
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            assert await seen(found.journal) == before
            snapshots = Snapshots(found.journal)
            assert await snapshots.snapshot(TENANT, snapshot.snapshot_id) == snapshot
            assert await snapshots.snapshot(TENANT, gone.snapshot_id) is None
            assert json.loads(snapshot.metadata) == {"step": 1}
            first, second = await restore(found, snapshot, rollback=False)
            assert await content(found, first) == b"03"
            assert await written_to_log(found, first) == [b"seed", b"01", b"02"]
            assert await content(found, second) == b"07"
            detail = await found.journal.thread(TENANT, first.thread_id)
            assert detail is not None
            assert detail.thread.agent_id == "planner"
            assert set(detail.heads) == {"", "keeper"}
            with pytest.raises(Refusal) as refused:
                await restore(found, snapshot, rollback=True)
            assert refused.value.reason is Reason.THREAD_NOT_FOUND


async def test_what_was_restored_after_a_recovery_comes_back_too(tmp_path: Path) -> None:
    """Its envelopes name the thread that kept the snapshot, and that may be gone."""
    async with new_kit(tmp_path / "old") as kit:
        await delta_chain(kit, "01", "02", "03")
        snapshot = await take_snapshot(kit, "t")
        await kit.journal.delete_thread(TENANT, "t")
        catalog = await flush(kit)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            [restored] = await restore(found, snapshot, rollback=False)
            second = await take_snapshot(found, restored.thread_id)
            [twice] = await restore(found, second, rollback=False)
            for one in (snapshot, second):
                await Snapshots(found.journal).delete_snapshot(TENANT, one.snapshot_id)
            newer = await flush(found)
            before = await seen(found.journal)
            async with recovered_kit(tmp_path / "newer", kit, newer) as again:
                assert await seen(again.journal) == before
                assert before["snapshots"] == []
                for key in (restored, twice):
                    assert await content(again, key) == b"03"
                    assert await written_to_log(again, key) == [b"seed", b"01", b"02"]
                steps = (await lineage(again, twice.thread_id)).ancestors
                assert [one.origin.thread_id for one in steps] == ["t", restored.thread_id]


async def test_threads_are_rolled_back_after_a_recovery(tmp_path: Path) -> None:
    """What was captured is there, though its thread was pruned."""
    async with new_kit(tmp_path / "old") as kit:
        await delta_chain(kit, "01", "02", "03")
        snapshot = await take_snapshot(kit, "t")
        await save(kit, draft("04", "03", {"log": b"whole", "x": b"04"}, delta=DELTA))
        await kit.journal.prune_thread(TENANT, "t", KEEP)
        catalog = await flush(kit)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            [rolled] = await restore(found, snapshot, rollback=True)
            assert rolled.thread_id == "t"
            assert await content(found, rolled) == b"03"
            assert await written_to_log(found, rolled) == [b"seed", b"01", b"02"]
            newer = await flush(found)
            before = await seen(found.journal)
            async with recovered_kit(tmp_path / "newer", kit, newer) as again:
                assert await seen(again.journal) == before
                assert await written_to_log(again, rolled) == [b"seed", b"01", b"02"]


async def test_a_retry_after_recovery_is_a_new_request(tmp_path: Path) -> None:
    """First answers are in no blob: what is there already is refused, not made twice."""
    async with new_kit(tmp_path / "old") as kit:
        await delta_chain(kit, "01")
        await fork(kit, "01", "fork")
        catalog = await flush(kit)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            with pytest.raises(Refusal) as refused:
                await fork(found, "01", "fork")
            assert refused.value.reason is Reason.THREAD_EXISTS


async def test_snapshots_are_no_threads_after_a_recovery(tmp_path: Path) -> None:
    async with new_kit(tmp_path / "old") as kit:
        await save(kit, draft("01", metadata={"run_id": "r"}))
        snapshot = await take_snapshot(kit, "t")
        catalog = await flush(kit)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            shown = await seen(found.journal)
            assert set(shown["threads"]) == {"t"}
            assert [one.entry.key.thread_id for one in shown["checkpoints"]] == ["t"]
            assert (await found.journal.delete_runs(TENANT, ["r"])).deleted == 1
            assert thread_of(snapshot.snapshot_id) in {row.thread_id for row in shown["rows"]}
            [restored] = await restore(found, snapshot, rollback=False)
            assert await content(found, restored) == b"01"
