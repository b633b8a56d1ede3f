"""Recovery keeps its single promises: heads, removals, hand-offs, manifests, snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.archive.recover.recovered import (
    compare,
    grow,
    newest,
    recover,
    recovered_house,
)
from tests.kit.archives import House, check_certified, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import (
    TENANT,
    Reference,
    as_loaded,
    channel,
    data_of,
    draft,
    key,
    refused,
    write,
    written,
)
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.archive.formats.catalogs import Catalog
from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.lineage import Descriptor, encode_descriptor
from tuskpoint_server.core.model import View
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.core.values import blob_digest
from tuskpoint_server.features.inbox.offer_rows import OfferQuery
from tuskpoint_server.features.lineage.first_answers import request
from tuskpoint_server.features.lineage.handoff_rows import HandoffRows, OfferDraft
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.lineage.snapshot_rows import (
    SnapshotDraft,
    SnapshotQuery,
    SnapshotRows,
)
from tuskpoint_server.features.lineage.snapshot_state import Snapshot
from tuskpoint_server.features.recovery.recovery import read_source
from tuskpoint_server.features.removal.removal_rows import RemovalRows


async def test_the_next_save_inherits_from_the_recovered_head(home: House, tmp_path: Path) -> None:
    await grow(home, 5)
    async with recovered_house(tmp_path / "second", home) as second:
        assert await compare(home, second) == 5
        await second.journal.save_checkpoint(
            TENANT,
            draft(
                "0005",
                "0004",
                (channel("step", b"5"), channel("text", Reference.INHERIT)),
            ),
        )
        checkpoint = await second.journal.load(TENANT, key("0005"), View.FULL)
        assert data_of(checkpoint)["text"] == bytes(range(250)) * 30 + b"4"
        assert await second.flush() == 1
        assert await check_certified(second) == 6
        known = await second.archive.catalog(TENANT)
        first = await home.archive.catalog(TENANT)
        assert known is not None
        assert first is not None
        assert known.catalog.generation == first.catalog.generation + 1
        assert known.catalog.previous is not None
        assert known.catalog.previous.sha256 == first.location.sha256
        async with recovered_house(tmp_path / "third", second) as third:
            assert await compare(second, third) == 6
            assert third.journal.database.generation == known.catalog.generation + 1


async def test_what_takes_more_than_the_memory_is_refused_or_left_out(
    home: House, tmp_path: Path
) -> None:
    await grow(home, 1, "small")
    # the packed value is small
    large = draft("0000", "", {"text": b"x" * 200_000}, thread_id="large")
    await home.journal.save_checkpoint(TENANT, large)
    await home.flush()
    source = await newest(home)
    with pytest.raises(Refusal) as caught:
        await recover(tmp_path / "second", home.store, source, home.clock, memory_bytes=100_000)
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert "checkpoint '0000' of thread 'large' with 200000 bytes" in str(caught.value)
    assert "--memory-bytes = 100000" in str(caught.value)
    with pytest.raises(Refusal, match="which unpacks to") as caught:
        await recover(tmp_path / "third", home.store, source, home.clock, memory_bytes=100)
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    recovered = await recover(
        *(tmp_path / "fourth", home.store, source, home.clock),
        skip_damaged=True,
        memory_bytes=100_000,
    )
    assert recovered.checkpoints == 1
    [left_out] = recovered.left_out
    assert left_out.startswith("checkpoint '0000' of thread 'large'")


async def test_only_heads_keep_their_values_in_the_journal(home: House, tmp_path: Path) -> None:
    await grow(home, 4)
    async with recovered_house(tmp_path / "second", home) as second:
        here = await second.ask("SELECT count(*) FROM contents WHERE data IS NOT NULL")
        gone = await second.ask(
            "SELECT count(*) FROM contents WHERE data IS NULL AND segment IS NOT NULL"
        )
        assert (here, gone) == ([(2,)], [(6,)])
        assert await second.ask("SELECT count(*) FROM writes WHERE data IS NULL") == [(3,)]
        head = await second.journal.load(TENANT, key("0003"), View.FULL)
        assert written(head) == [("", "task", 0, "w", b"written 3")]


async def test_forks_and_rollbacks_keep_their_lineage(home: House, tmp_path: Path) -> None:
    lineage = LineageRows(home.journal.database)
    await grow(home, 3)
    await lineage.fork(TENANT, key("0001"), "fork", "a request")
    await lineage.rollback(TENANT, key("0001"), "", None)
    await lineage.copy_thread(TENANT, "t", "copy", "")
    await home.flush()
    async with recovered_house(tmp_path / "second", home) as second:
        assert await compare(home, second) == 9
        [[origin]] = await second.ask(
            "SELECT forked_from FROM checkpoints AS c JOIN threads AS t ON t.number = c.thread"
            " WHERE thread_id = 'fork'"
        )
        assert origin == "t:0001"
        # Answers of requests are not in the blobs: a retry is a new request.
        again = LineageRows(second.journal.database).fork(TENANT, key("0001"), "fork", "a request")
        await refused(again, Reason.THREAD_EXISTS)


async def test_a_write_that_a_copy_replaced_stays_replaced_in_copies_of_the_copy(
    home: House, tmp_path: Path
) -> None:
    lineage = LineageRows(home.journal.database)
    await grow(home, 3)
    await home.journal.save_writes(TENANT, key("0002"), [write("r", b"first", idx=-1)])
    await home.flush()
    await lineage.copy_thread(TENANT, "t", "copy", "")
    await home.flush()
    copied = key("0002", "copy")
    await home.journal.save_writes(TENANT, copied, [write("r", b"second", idx=-1)])
    await home.flush()
    await lineage.copy_thread(TENANT, "copy", "again", "")
    await home.flush()
    assert await check_certified(home) == 9
    async with recovered_house(tmp_path / "second", home) as second:
        assert await compare(home, second) == 9
        loaded = await second.journal.load(TENANT, key("0002", "again"), View.FULL)
        assert loaded is not None
        there = as_loaded(write("r", b"second", idx=-1), write("w", b"written 2"))
        assert loaded.writes == there


async def test_a_recovered_journal_is_another_one_without_changes(
    home: House, tmp_path: Path
) -> None:
    await grow(home, 2)
    async with recovered_house(tmp_path / "second", home) as second:
        assert second.journal.database.journal_id != home.journal.database.journal_id
        assert await second.ask("SELECT * FROM changes") == []
        [(seq, begun, compacted, indexed, unindexed)] = await second.ask(
            "SELECT seq, begun_seq, compacted_seq, indexed_seq, unindexed_since_us FROM threads"
        )
        assert seq == begun == compacted
        assert indexed == 0
        assert unindexed is not None


async def test_many_flushes_come_back_over_merged_runs(home: House, tmp_path: Path) -> None:
    await grow(home, 20)
    async with recovered_house(tmp_path / "second", home) as second:
        await compare(home, second)
        await grow(second, 20, "u")
        content = (await newest(second)).content
        assert isinstance(content, Catalog)
        assert any(content.runs.levels[1:]), "runs were merged"
        async with recovered_house(tmp_path / "third", second) as third:
            assert await compare(second, third) == 40


async def test_a_server_that_goes_on_beside_a_recovered_one_harms_neither(
    home: House, tmp_path: Path
) -> None:
    await grow(home, 3)
    async with recovered_house(tmp_path / "second", home) as second:
        for start in (3, 4):
            await grow(home, 1, start=start)
            await grow(second, 1, start=start)
        for number, origin in enumerate((home, second)):
            async with recovered_house(tmp_path / f"of-{number}", origin) as third:
                assert await compare(origin, third) == 5


async def test_seeds_and_writes_of_a_pruned_thread_come_back(home: House, tmp_path: Path) -> None:
    frame = checkpoint_pb2.CheckpointState(delta_channels=("log",)).SerializeToString()
    for number in range(5):
        await home.journal.save_checkpoint(
            TENANT,
            draft(
                f"{number}",
                f"{number - 1}" if number else "",
                {"x": b"%d" % number} if number else {"log": b"seed"},
                frame=frame,
                delta=("log",),
                writes=(write("log", b"written %d" % number),),
            ),
        )
    await RemovalRows(home.journal.database).prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await home.flush()
    async with recovered_house(tmp_path / "second", home) as second:
        assert await compare(home, second) == 1
        histories = [
            await server_home.journal.delta_history(TENANT, key("4"), ("log",))
            for server_home in (home, second)
        ]
        assert [len(history[0].writes) for history in histories] == [4, 4]
        assert [write.digest for write in histories[1][0].writes] == [
            write.digest for write in histories[0][0].writes
        ]


async def test_writes_that_were_certified_later_stay_readable_after_a_pruning(
    home: House, tmp_path: Path
) -> None:
    frame = checkpoint_pb2.CheckpointState(delta_channels=("log",)).SerializeToString()
    for number, parent in ((0, ""), (1, "0")):
        content = {"x": b"1"} if number else {"log": b"seed"}
        await home.journal.save_checkpoint(
            TENANT, draft(f"{number}", parent, content, frame=frame, delta=("log",))
        )
    await home.flush()
    await home.journal.save_writes(TENANT, key("0"), [write("log", b"written later")])
    await home.flush()
    async with recovered_house(tmp_path / "second", home) as second:
        removal = RemovalRows(second.journal.database)
        await removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        [history] = await second.journal.delta_history(TENANT, key("1"), ("log",))
        wanted = [write.digest for write in history.writes]
        read = await second.archive.read_values(history.sources, wanted)
        assert [read[digest].data for digest in wanted] == [b"written later"]


async def test_snapshots_come_back_and_can_be_restored(home: House, tmp_path: Path) -> None:
    await grow(home, 2)
    await grow(home, 1, "u")
    snapshot = await take_snapshot(home, "t", "u")
    await RemovalRows(home.journal.database).delete_thread(TENANT, "t")
    await home.flush()
    async with recovered_house(tmp_path / "second", home) as second:
        await compare(home, second)
        snapshots = SnapshotRows(second.journal.database)
        assert await snapshots.list_snapshots(TENANT, SnapshotQuery(), "", 9) == [snapshot]
        restored = await snapshots.restore_snapshot(
            TENANT, snapshot.snapshot_id, rollback=False, request_id=""
        )
        checkpoint = await second.journal.load(TENANT, restored[0].key, View.FULL)
        assert data_of(checkpoint)["step"] == b"1"


@pytest.mark.parametrize("part", ["", "~"])
async def test_a_snapshot_of_which_something_is_not_certified_does_not_exist(
    home: House, store: MemoryStore, tmp_path: Path, part: str
) -> None:
    await grow(home, 1)
    whole = await take_snapshot(home, "t")
    await home.flush()
    await home.journal.save_checkpoint(TENANT, draft("0001", "0000", {"step": b"1"}))
    torn = await take_snapshot(home, "t")
    store.verdict = lambda members: rejected(members, f"$snapshot/{part}{torn.snapshot_id}")
    with pytest.raises(Refusal):
        await home.flush()
    async with recovered_house(tmp_path / "second", home) as second:
        snapshots = SnapshotRows(second.journal.database)
        assert await snapshots.list_snapshots(TENANT, SnapshotQuery(), "", 9) == [whole]
        kept = await second.ask("SELECT thread_id FROM threads WHERE NOT deleted ORDER BY 1")
        assert len(kept) == 3
        assert not [name for [name] in kept if torn.snapshot_id in str(name)]


async def take_snapshot(home: House, *threads: str) -> Snapshot:
    snapshots = SnapshotRows(home.journal.database)
    return await snapshots.create_snapshot(TENANT, SnapshotDraft(threads, "session"), "")


def rejected(members: Sequence[BlobMember], beginning: str) -> Reason | None:
    """Let the store reject the log of threads whose names have a prefix."""
    logs = [decode_segment(member.data, "") for member in members if member.kind == Kind.SEGMENT]
    matches = any(log.thread_id.startswith(beginning) for log in logs)
    return Reason.BLOB_REJECTED if matches else None


async def test_one_thread_is_recovered_from_its_stored_manifest(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 3)
    await grow(home, 1, "other")
    stored = await home.archive.store_manifest(TENANT, await home.manifest("t"))
    source = await read_source(store, replace(stored, key=b""), Kind.MANIFEST, home.keys, TENANT)
    recovered = await recover(tmp_path / "second", store, source, home.clock)
    assert (recovered.threads, recovered.checkpoints) == (1, 3)
    segments = len(store.members("segment"))
    async with house(tmp_path / "second", store, home.clock, keys=home.keys) as second:
        await second.flush()
        assert len(store.members("segment")) == segments
        assert await check_certified(second) == 3
        async with recovered_house(tmp_path / "third", second) as third:
            assert await compare(second, third) == 3
            assert await third.ask("SELECT agent_id FROM threads") == [("agent",)]


async def test_a_manifest_of_a_deleted_thread_brings_back_that_it_was_deleted(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 2)
    await RemovalRows(home.journal.database).delete_thread(TENANT, "t")
    await home.flush()
    stored = await home.archive.store_manifest(TENANT, await home.manifest("t"))
    source = await read_source(store, replace(stored, key=b""), Kind.MANIFEST, home.keys, TENANT)
    recovered = await recover(tmp_path / "second", store, source, home.clock)
    assert (recovered.threads, recovered.ended) == (0, 1)
    async with house(tmp_path / "second", store, home.clock, keys=home.keys) as second:
        await second.flush()
        async with recovered_house(tmp_path / "third", second) as third:
            assert await third.ask("SELECT deleted, deleted_through FROM threads") == [(1, "0001")]


async def test_a_catalog_of_another_format_is_refused_in_one_line(store: MemoryStore) -> None:
    data = b'{"format_version":1,"kind":"catalog","tenant":"default"}'
    receipt = await store.put([BlobMember(blob_digest(data), data, Kind.CATALOG.value)])
    with pytest.raises(Refusal) as caught:
        await read_source(store, receipt.locations[0], Kind.CATALOG, None, TENANT)
    assert caught.value.reason is Reason.BLOB_MALFORMED
    assert "\n" not in str(caught.value)


async def test_a_hand_off_is_remembered(home: House, store: MemoryStore, tmp_path: Path) -> None:
    await grow(home, 2)
    data = b"a bundle"
    receipt = await store.put([BlobMember(blob_digest(data), data, Kind.SEGMENT.value)])
    handed_off = request(TENANT, "", "CreateHandoff")
    await HandoffRows(home.journal.database).keep_handoff(
        handed_off, key("0001"), receipt.locations[0], (), b"", content_seq=2
    )
    await home.flush()
    async with recovered_house(tmp_path / "second", home) as second:
        query = "SELECT sha256, checkpoint_id FROM handoffs"
        assert await second.ask(query) == [(blob_digest(data), "0001")] == await home.ask(query)
        [[kind]] = await second.ask("SELECT kind FROM members WHERE sha256 = ?", blob_digest(data))
        assert kind == "segment"


async def test_open_offers_come_back(home: House, store: MemoryStore, tmp_path: Path) -> None:
    await grow(home, 2)
    await grow(home, 2, "ended")
    receipt = await store.put([BlobMember(blob_digest(b"b"), b"b", Kind.SEGMENT.value)])
    handed_off, bundle = request(TENANT, "", "CreateHandoff"), receipt.locations[0]
    for thread_id in ("t", "ended", "t"):
        descriptor = Descriptor(
            *(f"{thread_id}:0001", thread_id, "0001", bundle.blob_id, bundle.sha256.hex()),
            to_agent="writer ä",
            summary="It waits.",
        )
        await home.journal.handoffs.keep_handoff(
            *(handed_off, key("0001", thread_id), bundle, (), encode_descriptor(descriptor)),
            content_seq=2,
            draft=OfferDraft(descriptor, 10**12),
        )
    offers = home.journal.offers
    last = (await offers.listed(TENANT, OfferQuery(thread_id="t"), "", 9)).offers[-1]
    await offers.withdraw(TENANT, last.handoff_id)
    await home.flush()
    await home.journal.removal.delete_thread(TENANT, "ended")
    await home.flush()
    before = await offers.listed(TENANT, OfferQuery(), "", 9)
    async with recovered_house(tmp_path / "second", home) as second:
        assert await second.journal.offers.listed(TENANT, OfferQuery(), "", 9) == before
        assert [offer.state.name for offer in before.offers] == ["OFFERED", "WITHDRAWN"]
        await second.journal.offers.withdraw(TENANT, before.offers[0].handoff_id)
        await second.flush()
        assert await check_certified(second) == 4


async def test_nothing_is_recovered_over_another_journal(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 1)
    await recover(tmp_path / "second", store, await newest(home), home.clock)
    with pytest.raises(RuntimeError, match="it is not empty"):
        await recover(tmp_path / "second", store, await newest(home), home.clock)
    async with house(tmp_path / "second", store, home.clock, keys=home.keys) as second:
        assert await check_certified(second) == 1
