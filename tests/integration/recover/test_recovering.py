"""Single promises of recovery: heads, removals, hand-offs, damage, manifests, generations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.recover.recovered import (
    compare,
    newest,
    recover,
    recovered_house,
)
from tests.kit.archives import House, check_certified, house, keys_of
from tests.kit.drafts import TENANT, channel, data_of, draft, key, refused, write, written
from tests.kit.stores import MemoryStore
from tuskpoint_server.archive.recover.sources import read_source
from tuskpoint_server.blobs.api import Member
from tuskpoint_server.domain.digests import blob_digest
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.formats.catalogs import Catalog
from tuskpoint_server.domain.formats.manifests import encode_manifest
from tuskpoint_server.domain.formats.members import Kind
from tuskpoint_server.domain.model import BlobLocation, PruneStrategy, Reference, View
from tuskpoint_server.journal.lineage import Lineage
from tuskpoint_server.journal.lineage.handoffs import Handoffs
from tuskpoint_server.journal.recovery import publishing
from tuskpoint_server.journal.removal.removal import Removal


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def home(tmp_path: Path, store: MemoryStore) -> AsyncIterator[House]:
    async with house(tmp_path, store) as opened:
        yield opened


async def grow(home: House, count: int, thread_id: str = "t", start: int = 0) -> None:
    """Append checkpoints whose text grows, each in a flush of its own."""
    for number in range(start, start + count):
        await home.journal.save_checkpoint(
            TENANT,
            draft(
                f"{number:04d}",
                f"{number - 1:04d}" if number else "",
                {"step": b"%d" % number, "text": bytes(range(250)) * 30 + b"%d" % number},
                thread_id=thread_id,
                label=f"label {number}",
                summary=f"step {number}",
                agent_id="agent",
                writes=(write("w", b"written %d" % number),),
            ),
        )
        await home.flush()


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
        found = await second.journal.load(TENANT, key("0005"), View.FULL)
        assert data_of(found)["text"] == bytes(range(250)) * 30 + b"4"
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


async def test_what_was_removed_stays_removed(home: House, tmp_path: Path) -> None:
    removal = Removal(home.journal.database)
    await grow(home, 3)
    await grow(home, 2, "gone")
    await removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await removal.delete_thread(TENANT, "gone")
    await home.journal.save_writes(TENANT, key("9999"), [write("early", b"before")])
    await home.flush()
    async with recovered_house(tmp_path / "second", home) as second:
        assert await compare(home, second) == 1
        assert await keys_of(second, "t") == [key("0002")]
        assert await second.ask("SELECT task_id FROM writes WHERE checkpoint_id = '9999'") == []
        late = draft("0002", "0001", {"a": b"late"}, thread_id="gone")
        await refused(second.journal.save_checkpoint(TENANT, late), Reason.THREAD_DELETED)
        await grow(second, 1, "gone", 0)
        async with recovered_house(tmp_path / "third", second) as third:
            assert await compare(second, third) == 2
            assert await third.ask(
                "SELECT incarnation, deleted_through FROM threads WHERE thread_id = 'gone'"
            ) == [(2, "0001")]


async def test_forks_and_rollbacks_keep_their_lineage(home: House, tmp_path: Path) -> None:
    lineage = Lineage(home.journal.database)
    await grow(home, 3)
    await lineage.fork(TENANT, key("0001"), "fork", "")
    await lineage.rollback(TENANT, key("0001"), "", None)
    await lineage.copy_thread(TENANT, "t", "copy", "")
    await home.flush()
    async with recovered_house(tmp_path / "second", home) as second:
        assert await compare(home, second) == 9
        [[origin]] = await second.ask(
            "SELECT forked_from FROM checkpoints AS c JOIN threads AS t ON t.number = c.thread"
            " WHERE thread_id = 'fork'"
        )
        assert origin


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


async def segment_of(home: House, checkpoint_id: str, thread_id: str = "t") -> bytes:
    entry = (await home.manifest(thread_id)).entries["", checkpoint_id]
    return entry.record.segment


async def test_the_first_damage_ends_a_recovery(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 3)
    store.lost.add(await segment_of(home, "0001"))
    with pytest.raises(Refusal) as caught:
        await recover(tmp_path / "second", store, await newest(home), home.clock)
    assert caught.value.reason is Reason.BLOB_NOT_FOUND
    assert publishing.remains(tmp_path / "second" / "journal.db") == []


async def test_what_is_lost_is_left_out_and_named(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 3, "other")
    await grow(home, 3)
    store.lost.add(await segment_of(home, "0002"))
    source, directory = await newest(home), tmp_path / "second"
    recovered = await recover(directory, store, source, home.clock, skip_damaged=True)
    assert recovered.checkpoints == 5
    assert any("checkpoint '0002' of thread 't'" in one for one in recovered.left_out)
    async with house(directory, store, home.clock) as second:
        assert await keys_of(second, "t") == [key("0000"), key("0001")]
        await second.flush()
        # What was left out is recorded as removed: the next recovery needs no permission.
        async with recovered_house(tmp_path / "third", second) as third:
            assert await keys_of(third, "t") == [key("0000"), key("0001")]
            assert len(await keys_of(third, "other")) == 3


async def test_a_lost_run_is_left_out_and_the_next_catalog_does_not_name_it(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 1, "t")
    await grow(home, 1, "u")
    source = await newest(home)
    assert isinstance(source.content, Catalog)
    lost = source.content.runs.oldest_first()[0].location.sha256
    store.lost.add(lost)
    with pytest.raises(Refusal):
        await recover(tmp_path / "strict", store, source, home.clock)
    directory = tmp_path / "second"
    recovered = await recover(directory, store, source, home.clock, skip_damaged=True)
    assert recovered.threads == 1
    assert "records from thread 't' to thread 't'" in recovered.left_out[0]
    async with house(directory, store, home.clock) as second:
        await grow(second, 1, "v")
        following = (await newest(second)).content
        assert isinstance(following, Catalog)
        assert lost not in {ref.location.sha256 for ref in following.runs.oldest_first()}
        async with recovered_house(tmp_path / "third", second) as third:
            assert await compare(second, third) == 2


async def store_manifest(home: House, store: MemoryStore, thread_id: str) -> BlobLocation:
    data = encode_manifest(await home.manifest(thread_id), TENANT)
    receipt = await store.put([Member(blob_digest(data), data, Kind.MANIFEST.value)])
    return receipt.locations[0]


async def test_one_thread_is_recovered_from_its_stored_manifest(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 3)
    await grow(home, 1, "other")
    source = await read_source(store, await store_manifest(home, store, "t"), Kind.MANIFEST)
    recovered = await recover(tmp_path / "second", store, source, home.clock)
    assert (recovered.threads, recovered.checkpoints) == (1, 3)
    segments = len(store.members("segment"))
    async with house(tmp_path / "second", store, home.clock) as second:
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
    await Removal(home.journal.database).delete_thread(TENANT, "t")
    await home.flush()
    source = await read_source(store, await store_manifest(home, store, "t"), Kind.MANIFEST)
    recovered = await recover(tmp_path / "second", store, source, home.clock)
    assert (recovered.threads, recovered.ended) == (0, 1)
    async with house(tmp_path / "second", store, home.clock) as second:
        await second.flush()
        async with recovered_house(tmp_path / "third", second) as third:
            assert await third.ask("SELECT deleted, deleted_through FROM threads") == [(1, "0001")]


async def test_a_catalog_of_another_format_is_refused_in_one_line(store: MemoryStore) -> None:
    data = b'{"format_version":1,"kind":"catalog","tenant":"default"}'
    receipt = await store.put([Member(blob_digest(data), data, Kind.CATALOG.value)])
    with pytest.raises(Refusal) as caught:
        await read_source(store, receipt.locations[0], Kind.CATALOG)
    assert caught.value.reason is Reason.BLOB_MALFORMED
    assert "\n" not in str(caught.value)


async def test_a_hand_off_is_remembered(home: House, store: MemoryStore, tmp_path: Path) -> None:
    await grow(home, 2)
    data = b"a bundle"
    receipt = await store.put([Member(blob_digest(data), data, Kind.SEGMENT.value)])
    await Handoffs(home.journal.database, lambda blob: None).keep_handoff(
        TENANT, key("0001"), receipt.locations[0], (), receipt.blobs, "", b"", b"", content_seq=2
    )
    await home.flush()
    async with recovered_house(tmp_path / "second", home) as second:
        asked = "SELECT sha256, checkpoint_id FROM handoffs"
        assert await second.ask(asked) == [(blob_digest(data), "0001")] == await home.ask(asked)
        [[kind]] = await second.ask("SELECT kind FROM members WHERE sha256 = ?", blob_digest(data))
        assert kind == "segment"


async def test_a_journal_is_published_alone_and_never_over_another(
    home: House, store: MemoryStore, tmp_path: Path
) -> None:
    await grow(home, 1)
    await recover(tmp_path / "second", store, await newest(home), home.clock)
    path = tmp_path / "second" / "journal.db"
    assert publishing.remains(path) == [path]
    assert publishing.remains(publishing.beside(path)) == []
    with pytest.raises(FileExistsError):
        await recover(tmp_path / "second", store, await newest(home), home.clock)
    assert publishing.remains(path) == [path]
