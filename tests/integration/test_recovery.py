"""An empty disk, one catalog, and everything certified is there again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select

from tuskpoint_server.archive.recovery import Recovered, Recovery
from tuskpoint_server.blobs.api import Member
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.domain.catalog import (
    Catalog,
    ThreadHead,
    decode_catalog,
    encode_catalog,
)
from tuskpoint_server.domain.digests import blob_digest
from tuskpoint_server.domain.envelope import decode_envelope
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.manifest import (
    ManifestHead,
    Record,
    RecordType,
    Segment,
    decode_segment,
    encode_segment,
)
from tuskpoint_server.domain.model import (
    BlobLocation,
    CheckpointKey,
    PruneStrategy,
    ThreadState,
)
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.schema import manifests, metadata_members, threads

from .archive_kit import TENANT, Clock, Kit, write
from .recovery_kit import draft, flush, new_kit, recover_into, recovered_kit, save, seen

DELTA = ("log",)


async def delta_chain(kit: Kit, length: int, *, thread_id: str = "t") -> None:
    """Save checkpoints "00", "01", ... of which the first stores its delta channel."""
    for n in range(length):
        channels = {"log": b"seed"} if n == 0 else {"other": b"%d" % n}
        await save(
            kit,
            draft(
                f"{n:02}",
                f"{n - 1:02}" if n else "",
                channels,
                thread_id=thread_id,
                delta=DELTA,
                writes=(write(b"%d" % n, channel="log"),),
            ),
        )


async def test_everything_certified_comes_back(tmp_path: Path) -> None:
    async with new_kit(tmp_path / "old") as kit:
        await save(
            kit,
            draft("1", agent_id="planner", label="first", metadata={"run_id": "r1"}),
            draft("2", "1", {"x": b"2", "y": b""}, summary="it went well"),
            draft("2a", ns="sub:1", metadata={"parents": {"": "2"}, "step": -1}),
            draft("1", thread_id="asks", writes=(write(b"?", channel="__interrupt__", idx=-3),)),
            draft("1", thread_id="fails", writes=(write(b"!", channel="__error__", idx=-1),)),
        )
        await flush(kit)
        await kit.save_writes("2", write(b"late"), write(b"later", task="u"))
        await kit.journal.set_label(TENANT, CheckpointKey("t", "", "1"), "renamed")
        await kit.journal.copy_thread(TENANT, "t", "copy", "")
        await flush(kit)
        await kit.save_writes("2", write(b"third", task="v"))
        await save(kit, draft("2", "1", {"x": b"anew"}, thread_id="copy", summary="otherwise"))
        catalog = await flush(kit)
        before = await seen(kit.journal)
        assert len(before["checkpoints"]) == 8
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            assert await seen(found.journal) == before
            asks = await found.journal.thread(TENANT, "asks")
            assert asks is not None
            assert asks.thread.state is ThreadState.INTERRUPTED
            fails = await found.journal.thread(TENANT, "fails")
            assert fails is not None
            assert fails.thread.state is ThreadState.FAILED
            status = await found.archive.status(TENANT)
            assert status.catalog == catalog
            assert status.backlog_checkpoints == 0


async def test_deleted_threads_stay_deleted(tmp_path: Path) -> None:
    async with new_kit(tmp_path / "old") as kit:
        await save(kit, *(draft(one, thread_id=name) for name in "abc" for one in "12"))
        await flush(kit)
        for name in "abc":
            await kit.journal.delete_thread(TENANT, name)
        await save(kit, draft("3", thread_id="b"))  # the second incarnation
        await flush(kit)
        await save(kit, draft("3", thread_id="c"))
        await kit.journal.delete_thread(TENANT, "c")
        catalog = await flush(kit)
        before = await seen(kit.journal)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            assert await seen(found.journal) == before
            assert set(before["threads"]) == {"b"}
            for name, old in (("a", "2"), ("b", "2"), ("c", "3")):
                key = CheckpointKey(name, "", old)
                with pytest.raises(Refusal) as refused:
                    await found.journal.save_writes(TENANT, key, [write(b"from the dead")])
                assert refused.value.reason is Reason.THREAD_DELETED
            await save(found, draft("9", thread_id="c"))
            detail = await found.journal.thread(TENANT, "c")
            assert detail is not None
            assert detail.thread.incarnation == 3
            newer = await flush(found)
            again = await seen(found.journal)
            async with recovered_kit(tmp_path / "newer", kit, newer) as once_more:
                assert await seen(once_more.journal) == again


async def test_pruned_delta_threads_keep_their_history(tmp_path: Path) -> None:
    """Some of the ancestors were stored before they were hidden, some never."""
    async with new_kit(tmp_path / "old") as kit:
        await delta_chain(kit, 3)
        await flush(kit)
        for n in range(3, 6):
            await save(
                kit,
                draft(
                    f"{n:02}",
                    f"{n - 1:02}",
                    {"other": b"%d" % n},
                    delta=DELTA,
                    writes=(write(b"%d" % n, channel="log"),),
                ),
            )
        removed = await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        assert removed.hidden == 5
        await kit.save_writes("01", write(b"late", task="u", channel="log"))
        await kit.journal.copy_thread(TENANT, "t", "copy", "")
        catalog = await flush(kit)
        before = await seen(kit.journal)
        [history] = before["histories"][CheckpointKey("t", "", "05")]
        assert [one.value.data for one in history.writes] == [b"0", b"1", b"late", b"2", b"3", b"4"]
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            assert await seen(found.journal) == before
            assert len(before["checkpoints"]) == 2
            # What nothing needs any more goes, and is told.
            await save(found, draft("06", "05", {"log": b"whole"}, delta=DELTA))
            await found.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
            newer = await flush(found)
            again = await seen(found.journal)
            async with recovered_kit(tmp_path / "newer", kit, newer) as once_more:
                assert await seen(once_more.journal) == again
                assert len([row for row in again["rows"] if row.thread_id == "t"]) == 1


async def test_a_hidden_checkpoint_that_was_saved_anew_is_visible(tmp_path: Path) -> None:
    async with new_kit(tmp_path / "old") as kit:
        await delta_chain(kit, 4)
        await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        await flush(kit)
        await save(kit, draft("02", "01", {"other": b"again"}, delta=DELTA, label="back"))
        catalog = await flush(kit)
        before = await seen(kit.journal)
        assert [one.entry.key.checkpoint_id for one in before["checkpoints"]] == ["03", "02"]
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            assert await seen(found.journal) == before


async def test_agent_and_settings_come_back(tmp_path: Path) -> None:
    facts = [threads.c[name] for name in ("agent_id", "retention_s", "unsearchable", "untold")]
    async with new_kit(tmp_path / "old") as kit:
        await save(kit, draft("1", agent_id="planner"))
        await kit.journal.set_retention(TENANT, "t", 86_400)
        await kit.journal.set_searchable(TENANT, "t", False)
        catalog = await flush(kit)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            row = await found.journal.query(
                lambda connection: connection.execute(select(*facts)).one()
            )
            assert tuple(row) == ("planner", 86_400, True, False)


async def test_the_thread_goes_on_in_a_new_generation(tmp_path: Path) -> None:
    async with new_kit(tmp_path / "old") as kit:
        await save(kit, *(draft(f"{n:03}", f"{n - 1:03}" if n else "") for n in range(70)))
        catalog = await flush(kit)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            await save(found, draft("070", "069"), draft("1", thread_id="other"))
            await found.save_writes("069", write(b"late"))
            newer = await flush(found)
            stored = decode_catalog(await found.blobs.get(newer), newer)
            assert (stored.generation, stored.seq) == (2, 2)
            assert stored.previous == catalog
            head = (await found.heads())["t"].manifest
            assert head is not None
            assert (head.generation, head.segment, head.records) == (2, 2, 72)
            assert await found.archive.chain_problem(TENANT, "t") == ""
            await save(found, draft("071", "070"))
            newest = await flush(found)
            head = (await found.heads())["t"].manifest
            assert head is not None
            assert (head.generation, head.segment, head.records) == (2, 2, 73)
            before = await seen(found.journal)
            async with recovered_kit(tmp_path / "newer", kit, newest) as again:
                assert await seen(again.journal) == before
                assert await again.archive.chain_problem(TENANT, "t") == ""


async def test_an_old_server_that_goes_on_does_not_split_the_chain(tmp_path: Path) -> None:
    async with new_kit(tmp_path / "old") as old:
        await save(old, *(draft(f"{n}", f"{n - 1}" if n else "") for n in range(5)))
        catalog = await flush(old)
        async with recovered_kit(tmp_path / "new", old, catalog) as new:
            for round_ in range(3):
                await save(old, draft(f"5-{round_}", "4", {"x": b"old"}))
                await save(new, draft(f"5-{round_}", "4", {"x": b"new"}))
                of_old, of_new = await flush(old), await flush(new)
                for kit, at in ((old, of_old), (new, of_new)):
                    assert await kit.archive.chain_problem(TENANT, "t") == ""
                    name = f"{kit.root.name}-{round_}"
                    async with recovered_kit(tmp_path / name, old, at) as check:
                        assert await seen(check.journal) == await seen(kit.journal)
            assert decode_catalog(await old.blobs.get(of_old), of_old).generation == 1
            assert decode_catalog(await old.blobs.get(of_new), of_new).generation == 2


async def test_an_identical_save_is_known_after_recovery(tmp_path: Path) -> None:
    """Clients retry what they did not see acknowledged; that must change nothing."""
    once = draft("1", "", {"x": b"1", "y": b"2"}, delta=DELTA, writes=(write(b"w"),))
    async with new_kit(tmp_path / "old") as kit:
        await save(kit, once)
        catalog = await flush(kit)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            again = await found.journal.save_checkpoint(TENANT, once)
            assert (again.revision, again.stored_bytes) == (1, 0)
            assert await flush(found) == catalog


async def test_late_writes_after_recovery_are_the_only_ones_stored(tmp_path: Path) -> None:
    async with new_kit(tmp_path / "old") as kit:
        await save(kit, draft("1", writes=(write(b"early"),)))
        await flush(kit)
        await kit.save_writes("1", write(b"second", task="u"))
        await flush(kit)
        await kit.journal.set_label(TENANT, CheckpointKey("t", "", "1"), "named")
        catalog = await flush(kit)
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            await found.save_writes("1", write(b"third", task="v"))
            await flush(found)
            manifest = (await found.manifest())["1"]
            assert manifest.label == "named"
            assert len(manifest.addenda) == 2
            addendum = decode_envelope(await found.blobs.get(manifest.addenda[1]), "")
            assert [one.value.data for one in addendum.writes] == [b"third"]
            stored = await found.stored("1")
            assert [one.value.data for one in stored.writes] == [b"early", b"second", b"third"]
            assert stored.writes == (await found.journaled("1")).writes


async def test_all_members_of_metadata_are_known(tmp_path: Path) -> None:
    """What renewal has to keep alive is the same before and after."""
    async with new_kit(tmp_path / "old") as kit:
        for n in range(3):
            await save(kit, *(draft(f"{n}-{one:03}") for one in range(70)))
            await flush(kit)
        catalog = await flush(kit)
        members = select(metadata_members.c.sha256).distinct()
        before = await kit.journal.query(lambda c: set(c.execute(members).scalars()))
        async with recovered_kit(tmp_path / "new", kit, catalog) as found:
            after = await found.journal.query(lambda c: set(c.execute(members).scalars()))
            assert after == before
            assert len(after) == 7


async def test_many_threads_over_merges_of_the_catalog(tmp_path: Path) -> None:
    """Recover, go on until runs are merged, recover from that; twice."""
    async with new_kit(tmp_path / "old") as kit:
        for flushes in range(20):
            await save(
                kit,
                *(draft(f"{flushes:02}", thread_id=f"t{n}") for n in range(flushes, 300, 9)),
                draft("1", thread_id=f"gone{flushes}"),
            )
            if flushes:
                await kit.journal.delete_thread(TENANT, f"gone{flushes - 1}")
            catalog = await flush(kit)
        before = await seen(kit.journal)
        assert len(before["threads"]) > 250
        current = catalog
        for life in range(2):
            root = tmp_path / f"life{life}"
            async with recovered_kit(root, kit, current) as found:
                assert await seen(found.journal) == before
                for n in range(20):
                    name = f"t{life}{n}"
                    await save(found, draft(f"9{life}{n:02}", thread_id=name))
                    current = await flush(found)
                stored = decode_catalog(await found.blobs.get(current), current)
                assert len(stored.runs) > 1, "runs were merged"
                assert stored.generation == life + 2
                before = await seen(found.journal)
        async with recovered_kit(tmp_path / "last", kit, current) as found:
            assert await seen(found.journal) == before


# --- one thread ------------------------------------------------------------------------


async def test_one_thread_comes_back_from_its_manifest(tmp_path: Path) -> None:
    async with new_kit(tmp_path / "old") as kit:
        await save(kit, *(draft(f"{n:03}") for n in range(70)), draft("1", thread_id="other"))
        await flush(kit)
        head = (await kit.heads())["t"].manifest
        assert head is not None
        expected = [
            one for one in (await seen(kit.journal))["certified"] if one.key.thread_id == "t"
        ]
        root = tmp_path / "new"
        root.mkdir()
        journal = await SqlJournal.open(root / "journal.db", clock_us=Clock())
        recovery = Recovery(TENANT, journal, kit.blobs, clock_us=Clock())
        recovered = await recovery.from_manifest(head.location)
        await journal.close()
        assert (recovered.threads, recovered.checkpoints) == (1, 70)
        async with new_kit(root, store=DirectoryStore(tmp_path / "old" / "blobs")) as found:
            assert (await seen(found.journal))["certified"] == expected
            catalog = await flush(found)  # nothing changed, and yet the catalog lacks it
            heads = await found.heads()
            assert set(heads) == {"t"}
            assert await found.archive.chain_problem(TENANT, "t") == ""
            before = await seen(found.journal)
            async with recovered_kit(tmp_path / "newer", kit, catalog) as again:
                assert await seen(again.journal) == before


# --- damage ----------------------------------------------------------------------------

VICTIMS = ("catalog", "earlier catalog", "open segment", "first segment", "envelope", "addendum")


@dataclass(frozen=True)
class Left:
    """What an old server left on the blob store, and one blob of each kind that is read."""

    blobs: Path
    victims: dict[str, BlobLocation]

    @property
    def catalog(self) -> BlobLocation:
        return self.victims["catalog"]

    def path(self, at: BlobLocation) -> Path:
        return self.blobs / at.blob_id[:2] / at.blob_id


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return asyncio.run(_leave(tmp_path_factory.mktemp("original")))


@pytest.fixture
def left(original: Left, tmp_path: Path) -> Left:
    """A copy, to be damaged."""
    return Left(Path(shutil.copytree(original.blobs, tmp_path / "blobs")), original.victims)


async def _leave(root: Path) -> Left:
    async with new_kit(root) as kit:
        await save(kit, draft("1", thread_id="other"), draft("1", thread_id="third"))
        await flush(kit)
        await save(kit, *(draft(f"{n:03}", label=f"label {n}") for n in range(70)))
        await flush(kit)
        await kit.save_writes("000", write(b"late"))
        at = await flush(kit)
        catalog = decode_catalog(await kit.blobs.get(at), at)
        head = (await kit.heads())["t"].manifest
        assert head is not None
        segment = decode_segment(await kit.blobs.get(head.location), head.location.blob_id)
        assert segment.previous is not None
        entry = (await kit.manifest())["000"]
        found = (
            at,
            catalog.runs[0][0].location,
            head.location,
            segment.previous,
            entry.envelope,
            entry.addenda[0],
        )
        return Left(root / "blobs", dict(zip(VICTIMS, found, strict=True)))


async def recover_left(left: Left, root: Path, **options: bool) -> Recovered:
    store = DirectoryStore(left.blobs)
    try:
        return await recover_into(root, store, left.catalog, **options)
    finally:
        await store.close()


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize(
    "damage",
    [flip, lambda data: data[:-7], lambda data: b"", lambda data: data + b"x"],
    ids=["corrupted", "truncated", "emptied", "longer"],
)
async def test_a_damaged_blob_is_refused_with_both_hashes(
    left: Left, tmp_path: Path, victim: str, damage: Callable[[bytes], bytes]
) -> None:
    at = left.victims[victim]
    data = damage(left.path(at).read_bytes())
    left.path(at).write_bytes(data)
    with pytest.raises(Refusal) as refused:
        await recover_left(left, tmp_path / "new")
    assert refused.value.reason is Reason.BLOB_HASH_MISMATCH
    told = refused.value.metadata
    assert (told["blob_id"], told["expected"]) == (at.blob_id, at.sha256.hex())
    assert told["actual"] == blob_digest(data).hex()


@pytest.mark.parametrize("victim", VICTIMS)
async def test_a_substituted_or_missing_blob_is_refused(
    left: Left, tmp_path: Path, victim: str
) -> None:
    at = left.victims[victim]
    other = left.victims["envelope" if victim != "envelope" else "addendum"]
    left.path(at).write_bytes(left.path(other).read_bytes())
    with pytest.raises(Refusal) as refused:
        await recover_left(left, tmp_path / "new")
    assert refused.value.reason is Reason.BLOB_HASH_MISMATCH
    assert refused.value.metadata["actual"] == other.sha256.hex()
    assert refused.value.metadata["expected"] == at.sha256.hex()
    left.path(at).unlink()
    with pytest.raises(Refusal) as refused:
        await recover_left(left, tmp_path / "newer")
    assert refused.value.reason is Reason.BLOB_NOT_FOUND
    assert refused.value.metadata["blob_id"] == at.blob_id


@pytest.mark.parametrize(
    ("victim", "threads_left", "checkpoints_left", "told"),
    [
        ("earlier catalog", 1, 70, "page of the catalog"),
        ("open segment", 2, 2, "thread 't'"),
        ("first segment", 2, 2, "thread 't'"),
        ("envelope", 3, 71, "checkpoint t:000"),
        ("addendum", 3, 71, "checkpoint t:000"),
    ],
)
async def test_what_is_damaged_can_be_left_out(
    left: Left, tmp_path: Path, victim: str, threads_left: int, checkpoints_left: int, told: str
) -> None:
    at = left.victims[victim]
    left.path(at).write_bytes(b"damaged")
    done = await recover_left(left, tmp_path / "new", skip_damaged=True)
    assert (done.threads, done.checkpoints) == (threads_left, checkpoints_left)
    [line] = done.left_out
    assert told in line
    assert at.sha256.hex() in line
    async with new_kit(tmp_path / "new", store=DirectoryStore(left.blobs)) as found:
        await save(found, draft("2", "1", thread_id="third"), draft("1", thread_id="fresh"))
        newer = await flush(found)
        before = await seen(found.journal)
        assert {"fresh", "third"} <= set(before["threads"])
        async with recovered_kit(tmp_path / "newer", found, newer) as again:
            assert await seen(again.journal) == before, "nothing damaged is told of any more"


async def test_a_thread_that_was_left_out_can_begin_anew(left: Left, tmp_path: Path) -> None:
    left.path(left.victims["first segment"]).unlink()
    await recover_left(left, tmp_path / "new", skip_damaged=True)
    async with new_kit(tmp_path / "new", store=DirectoryStore(left.blobs)) as found:
        await save(found, draft("100", "069"))
        newer = await flush(found)
        head = (await found.heads())["t"].manifest
        assert head is not None
        assert (head.generation, head.segment, head.records) == (2, 0, 1)
        before = await seen(found.journal)
        async with recovered_kit(tmp_path / "newer", found, newer) as again:
            assert await seen(again.journal) == before


async def test_a_damaged_catalog_cannot_be_left_out(left: Left, tmp_path: Path) -> None:
    left.path(left.catalog).write_bytes(b"damaged")
    with pytest.raises(Refusal):
        await recover_left(left, tmp_path / "new", skip_damaged=True)


async def test_envelopes_of_another_checkpoint_are_refused(tmp_path: Path) -> None:
    """A manifest with true hashes that lies, as someone with the keys could write it."""
    async with new_kit(tmp_path / "old") as kit:
        await save(kit, draft("1"), draft("2"))
        await flush(kit)
        manifest = await kit.manifest()
        lie = Record(RecordType.PUT, "", "1", 1, manifest["2"].envelope)
        segment = encode_segment(Segment("t", 1, 1, 0, None, (lie,)))
        [at] = (await kit.blobs.put([Member(blob_digest(segment), segment)])).locations
        head = ThreadHead("t", 1, False, "", ManifestHead(at, 0, 1, 1))
        catalog = encode_catalog(Catalog(1, 1, None, {}, (), (head,)))
        [at] = (await kit.blobs.put([Member(blob_digest(catalog), catalog)])).locations
        with pytest.raises(Refusal) as refused:
            await recover_into(tmp_path / "new", kit.blobs.inner, at)
        assert refused.value.reason is Reason.BLOB_MALFORMED
        assert "'2'" in str(refused.value)


async def test_nothing_waits_after_recovery(left: Left, tmp_path: Path) -> None:
    await recover_left(left, tmp_path / "new")
    async with new_kit(tmp_path / "new", store=DirectoryStore(left.blobs)) as found:
        assert await flush(found) == left.catalog
        assert found.blobs.puts == []
        generations = await found.journal.query(
            lambda c: c.execute(select(manifests.c.next_generation).distinct()).scalars().all()
        )
        assert generations == [2]
