"""A flush stores and records exactly what it certifies."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.kit.archives import House, check_certified, grow, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import (
    TENANT,
    Reference,
    channel,
    data_of,
    draft,
    key,
    refused,
    write,
    written,
)
from tuskpoint_server.archive.flush import collect
from tuskpoint_server.archive.formats.records import MemberRecord
from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.blobs.api import BlobMember, StoreLimits
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import View
from tuskpoint_server.core.values import blob_digest
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.database.writer import journal_unavailable

LARGE = random.Random(7).randbytes(6000)


async def test_a_flush_is_one_put_of_a_segment_for_each_thread(
    home: House, store: MemoryStore
) -> None:
    for name in ("t", "u", "v"):
        await grow(home, 5, name)
    assert await home.flush() == 15
    [pack] = store.packs.values()
    kinds = sorted(member.kind for member in pack.values())
    assert kinds == ["catalog", "run", "segment", "segment", "segment"]
    assert await check_certified(home) == 15


@pytest.mark.sqlite
async def test_certifying_takes_as_many_statements_for_many_checkpoints_as_for_few(
    home: House,
) -> None:
    await grow(home, 1, "before")
    await home.flush()
    counts = []
    for name, many in (("t", 3), ("u", 150)):
        await grow(home, many, name)
        texts: list[str] = []

        def trace(batch: UnitOfWork, texts: list[str] = texts) -> None:
            driver = batch.connection.connection.driver_connection
            assert driver is not None
            driver.set_trace_callback(texts.append)

        await home.journal.database.transact(trace)
        assert await home.flush() == many
        counts.append(len(texts))
    assert counts[0] == counts[1] > 0


async def test_certifying_takes_no_number_and_leaves_nothing_dirty(home: House) -> None:
    await grow(home, 3)
    before = await home.ask("SELECT count(*) FROM changes")
    await home.flush()
    assert await home.watermark() == (3, 3)
    assert await home.ask("SELECT count(*) FROM changes") == before
    waiting = await home.waiting()
    assert (waiting.threads, waiting.size_bytes, waiting.oldest_us) == (0, 0, None)
    assert await home.flush() == 0


async def test_a_value_that_a_segment_holds_is_named_and_not_stored_again(
    home: House, store: MemoryStore
) -> None:
    await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": LARGE, "y": b"1"}))
    await home.flush()
    inherited = (channel("x", Reference.INHERIT), channel("y", b"2", 2))
    await home.journal.save_checkpoint(TENANT, draft("b", "a", inherited))
    await home.flush()
    first, second = (decode_segment(member.data, "") for member in store.members("segment"))
    assert {value.size for value in first.values} == {6000, 1}
    assert [value.size for value in second.values] == [1]
    [named] = second.members
    assert named.location.sha256 == store.members("segment")[0].sha256
    used = await home.ask("SELECT segment FROM uses ORDER BY 1")
    assert len(used) == 2
    assert data_of(await home.from_blobs(key("b")))["x"] == LARGE


async def test_a_patch_names_the_segment_of_its_keyframe(home: House, store: MemoryStore) -> None:
    text = LARGE
    for number in range(3):
        text += b"%d" % number * 100
        parent = str(number - 1) if number else ""
        await home.journal.save_checkpoint(
            TENANT, draft(str(number), parent, (channel("x", text, number),))
        )
        await home.flush()
    sizes = [len(member.data) for member in store.members("segment")]
    assert sizes[1] < sizes[0] / 10
    assert sizes[2] < sizes[0] / 10
    assert data_of(await home.from_blobs(key("2")))["x"] == text


async def test_at_most_four_segments_are_named_and_the_rest_is_held(
    home: House, store: MemoryStore
) -> None:
    rng = random.Random(1)
    contents = {f"c{number}": rng.randbytes(1000 + 100 * number) for number in range(8)}
    parent = ""
    for number, name in enumerate(contents):
        inherited = (channel(old, Reference.INHERIT) for old in list(contents)[:number])
        channels = (*inherited, channel(name, contents[name]))
        await home.journal.save_checkpoint(TENANT, draft(str(number), parent, channels))
        parent = str(number)
        await home.flush()
    for member in store.members("segment"):
        assert len(decode_segment(member.data, "").members) <= 4
    assert data_of(await home.from_blobs(key("7"))) == contents
    # The next checkpoint names the segment for values that the newest segment had to contain again.
    channels = tuple(channel(name, Reference.INHERIT) for name in contents)
    await home.journal.save_checkpoint(TENANT, draft("8", "7", (*channels, channel("z", b"1"))))
    await home.flush()
    assert data_of(await home.from_blobs(key("8")))["c7"] == contents["c7"]
    sizes = [len(member.data) for member in store.members("segment")]
    assert sizes[-1] < sizes[-2]


async def test_a_range_ends_at_its_bound_and_the_next_goes_on(
    home: House, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "RANGE_BYTES", 20_000)
    rng = random.Random(3)
    for number in range(12):
        channels = {"x": rng.randbytes(4000 if number != 5 else 50_000)}
        await home.journal.save_checkpoint(TENANT, draft(f"{number:02d}", "", channels))
    assert await home.flush() == 12
    ranges = [decode_segment(member.data, "") for member in store.members("segment")]
    assert len(ranges) >= 3
    assert [segment.first_seq for segment in ranges] == [
        1,
        *(segment.last_seq + 1 for segment in ranges[:-1]),
    ]
    assert ranges[-1].last_seq == 12
    for segment in ranges:
        size = sum(value.size for value in segment.values)
        assert size <= 20_000 or len(segment.checkpoints) == 1
    assert await check_certified(home) == 12


async def test_a_re_save_that_overtook_its_flush_is_neither_lost_nor_certified_early(
    home: House, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "RANGE_BYTES", 1)
    await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": b"first"}))
    await home.journal.save_checkpoint(TENANT, draft("b", "a", {"x": b"other"}))
    await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": b"again"}))
    seen = []

    def judge(members: Sequence[BlobMember]) -> Reason | None:
        seen.append([member for member in members if member.kind == "segment"])
        return Reason.BLOB_UNAVAILABLE if len(seen) > 1 else None

    store.verdict = judge
    await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
    seq, certified_seq = await home.watermark()
    assert (seq, certified_seq) == (3, 1)
    # The first range has the current row, with its own number.
    [row] = decode_segment(seen[0][0].data, "").checkpoints
    assert (row.checkpoint_id, row.seq) == ("a", 3)
    checkpoint = await home.journal.load(TENANT, key("a"), View.ENTRY)
    assert checkpoint is not None
    assert not checkpoint.entry.certified
    store.verdict = lambda members: None
    await home.flush()
    assert data_of(await home.from_blobs(key("a")))["x"] == b"again"
    await check_certified(home)


async def test_writes_before_their_checkpoint_are_stored_when_it_comes(
    home: House, store: MemoryStore
) -> None:
    await home.journal.save_writes(TENANT, key("a"), [write("c", b"early")])
    assert await home.flush() == 0
    assert store.packs == {}, "a range with nothing to store takes no put"
    assert await home.watermark() == (1, 1)
    await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))
    await home.flush()
    assert [row[4] for row in written(await home.from_blobs(key("a")))] == [b"early"]


async def test_a_move_that_was_committed_and_answered_as_failed_is_not_repeated(
    home: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await home.journal.save_writes(TENANT, key("a"), [write("c", b"early")])
    database = home.journal.database
    transact = database.transact

    async def forgetful(work: Callable[[UnitOfWork], object], size_bytes: int = 0) -> None:
        await transact(work, size_bytes)
        raise journal_unavailable("the answer was lost")

    monkeypatch.setattr(database, "transact", forgetful)
    await refused(home.flush(), Reason.JOURNAL_UNAVAILABLE)
    monkeypatch.undo()
    assert await home.flush() == 0
    assert await home.watermark() == (1, 1)


async def test_late_writes_do_not_store_the_checkpoint_again(
    home: House, store: MemoryStore
) -> None:
    await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))
    await home.flush()
    await home.journal.save_writes(TENANT, key("a"), [write("c", b"late")])
    await home.flush()
    late = decode_segment(store.members("segment")[1].data, "")
    assert (len(late.checkpoints), len(late.writes)) == (0, 1)
    assert [row[4] for row in written(await home.from_blobs(key("a")))] == [b"late"]
    assert len((await home.manifest()).entries["", "a"].writes) == 1


async def test_a_thread_deleted_while_its_segment_travels_is_not_resurrected(
    home: House, store: MemoryStore
) -> None:
    removal = home.journal.removal
    await grow(home, 3)

    async def delete(members: Sequence[BlobMember]) -> None:
        await removal.delete_thread(TENANT, "t")

    store.on_put = delete
    await home.flush()
    seq, certified_seq = await home.watermark()
    assert certified_seq >= 3
    await home.flush()
    assert await home.watermark() == (seq, seq)
    manifest = await home.manifest()
    assert manifest.ended
    assert manifest.entries == {}
    assert manifest.deleted_through == "0002"
    assert await home.ask("SELECT * FROM removed") == []
    assert await home.ask("SELECT * FROM uses") == []
    await home.journal.save_checkpoint(TENANT, draft("9999", "", {"x": b"new"}))
    await home.flush()
    manifest = await home.manifest()
    assert (manifest.incarnation, manifest.ended) == (2, False)
    assert set(manifest.entries) == {("", "9999")}


async def test_changes_during_a_put_wait_for_the_next_flush(
    home: House, store: MemoryStore
) -> None:
    """A wait covers the changes at the time of the call: new changes do not prolong it."""
    await grow(home, 1)

    async def save(members: Sequence[BlobMember]) -> None:
        await grow(home, 1, start=1)
        store.on_put = save if len(store.packs) < 50 else None

    store.on_put = save
    await home.flush()
    assert len(store.packs) < 50
    store.on_put = None
    await home.flush()
    assert await check_certified(home) >= 2


async def test_flushes_of_a_store_with_small_puts(tmp_path: Path) -> None:
    limits = StoreLimits(
        max_members=5, max_put_bytes=60_000, max_member_bytes=8_000, puts_at_once=4
    )
    store = MemoryStore(limits)
    rng = random.Random(5)
    async with house(tmp_path, store) as home:
        for name in range(12):
            size = 30_000 if name == 7 else 2_000
            await home.journal.save_checkpoint(
                TENANT, draft("a", "", {"x": rng.randbytes(size)}, thread_id=f"t{name}")
            )
        assert await home.flush() == 12
        assert len(store.packs) > 3
        assert len(store.members("part")) == 4
        assert await check_certified(home) == 12
        [[kind, parts]] = await home.ask(
            "SELECT kind, length(parts) FROM members WHERE parts IS NOT NULL"
        )
        assert (kind, parts) == ("parts", 4 * 32)
        manifest = await home.manifest("t7")
        held = [record for record in manifest.records if isinstance(record, MemberRecord)]
        assert sorted(record.holds for record in held) == ["part"] * 4 + ["parts"]


async def test_a_fork_names_the_segment_that_holds_it(home: House, store: MemoryStore) -> None:
    lineage = home.journal.lineage
    await home.journal.save_checkpoint(
        TENANT, draft("a", "", {"x": LARGE}, writes=(write("c", b"w"),))
    )
    await home.flush()
    [segment] = store.members("segment")
    await lineage.fork(TENANT, key("a"), "fork", "")
    await home.flush()
    assert len(store.members("segment")) == 1, "nothing is stored again"
    manifest = await home.manifest("fork")
    record = manifest.entries["", "a"].record
    assert (record.segment, record.held_ns) == (segment.sha256, "")
    assert manifest.location(segment.sha256) is not None
    await home.journal.removal.delete_thread(TENANT, "t")
    await home.flush()
    assert await home.ask("SELECT threads.thread_id FROM uses JOIN threads ON number = thread") == [
        ("fork",)
    ]
    assert data_of(await home.from_blobs(key("a", "fork")))["x"] == LARGE
    await check_certified(home)


async def test_each_checkpoint_is_a_blob_where_that_is_asked_for(
    tmp_path: Path, store: MemoryStore
) -> None:
    async with house(tmp_path, store, standalone=True) as home:
        await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": LARGE, "y": b"1"}))
        inherited = (channel("x", Reference.INHERIT), channel("y", b"2", 2))
        await home.journal.save_checkpoint(TENANT, draft("b", "a", inherited))
        assert await home.flush() == 2
        alone = [pack for pack in store.packs.values() if len(pack) == 1]
        assert len(alone) == 2
        for pack in alone:
            [member] = pack.values()
            segment = decode_segment(member.data, "")
            assert len(segment.checkpoints) == 1
            assert not segment.members
            assert {value.size for value in segment.values} == {6000, 1}
        await home.journal.save_writes(TENANT, key("a"), [write("c", b"late")])
        await home.flush()
        assert [row[4] for row in written(await home.from_blobs(key("a")))] == [b"late"]
        assert await check_certified(home) == 2


async def test_a_tampered_segment_does_not_become_state(home: House, store: MemoryStore) -> None:
    await grow(home, 2)
    await home.flush()
    for pack in store.packs.values():
        for sha256, member in pack.items():
            if member.kind == "segment":
                data = bytearray(member.data)
                data[-1] ^= 1
                pack[sha256] = BlobMember(sha256, bytes(data), member.kind)
                assert blob_digest(bytes(data)) != sha256
    await refused(home.from_blobs(key("0001")), Reason.BLOB_HASH_MISMATCH)


async def test_an_uncertified_checkpoint_is_not_read_from_blobs(home: House) -> None:
    await grow(home, 1)
    await refused(home.from_blobs(key("0000")), Reason.NOT_CERTIFIED)
