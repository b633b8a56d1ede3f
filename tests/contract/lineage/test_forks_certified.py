"""The same segments store a fork of certified checkpoints, and a fork needs no evicted value."""

from __future__ import annotations

import pytest

from tests.contract.lineage.kit import certify, chain, evict, history, seen, sha
from tests.kit.drafts import TENANT, data_of, digest, draft, key, write
from tests.kit.journal import Journal, insert_gap, row_of, rows_of, save
from tuskpoint_server.core.model import View
from tuskpoint_server.core.state import evicted_digests
from tuskpoint_server.features.checkpoints.missing_values import ValuesEvictedError
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.journal.sql.schema import checkpoints, uses
from tuskpoint_server.journal.values.segment_refs import decode_held


async def held(journal: Journal, thread_id: str) -> dict[str, tuple[int, list[bytes]]]:
    """Return number and segments of each checkpoint of a thread that segments store."""
    number = (await row_of(journal, thread_id)).number
    rows = await rows_of(journal, checkpoints, "thread", "checkpoint_id", "held")
    entries = {row[1]: decode_held(row[2]) for row in rows if row[0] == number and row[2]}
    return {
        checkpoint_id: (entries[checkpoint_id].seq, list(entries[checkpoint_id].segments))
        for checkpoint_id in entries
    }


async def used(journal: Journal, thread_id: str) -> set[bytes]:
    number = (await row_of(journal, thread_id)).number
    rows = await rows_of(journal, uses, "thread", "segment")
    return {segment for thread, segment in rows if thread == number}


async def test_a_copy_of_certified_checkpoints_is_held_by_the_same_segments(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01", "", {"x": b"1"}), draft("02", "01", {"x": b"2"}))
    first = await certify(journal, needs=["a member"])
    await journal.save_writes(TENANT, key("02"), [write("x", b"late")])
    second = await certify(journal)
    await lineage.fork(TENANT, key("02"), "fork", "")
    assert await held(journal, "fork") == {"02": (1, [first, second])}
    assert await used(journal, "fork") == {first, second, sha("a member")}
    row = await row_of(journal, "fork")
    assert (row.dirty_bytes, row.dirty_since_us is not None) == (0, True)
    await lineage.copy_thread(TENANT, "t", "copy", "")
    assert await held(journal, "copy") == {"01": (1, [first]), "02": (2, [first, second])}


async def test_uncertified_checkpoints_are_stored_with_their_copy(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01", "", {"x": b"1"}))
    await lineage.fork(TENANT, key("01"), "of nothing certified", "")
    await certify(journal)
    await journal.save_writes(TENANT, key("01"), [write("x", b"late")])
    await lineage.fork(TENANT, key("01"), "with a late write", "")
    for target in ("of nothing certified", "with a late write"):
        assert await held(journal, target) == {}
        assert await used(journal, target) == set()
        assert (await row_of(journal, target)).dirty_bytes > 0


async def test_a_copy_is_not_held_by_a_lost_segment(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"), draft("02", "01"))
    lost = await certify(journal)
    await save(journal, draft("03", "02"), draft("04", "03"))
    kept = await certify(journal)
    number = (await row_of(journal)).number
    for checkpoint_id, segment in (("04", None), ("", lost)):
        gap = (number, checkpoint_id, segment)
        await journal.database.transact(
            lambda batch, gap=gap: insert_gap(batch.connection, *gap)  # type: ignore[misc]
        )
    await lineage.copy_thread(TENANT, "t", "copy", "")
    assert await held(journal, "copy") == {"03": (3, [kept])}


async def test_a_copy_of_a_copy_is_held_before_it_is_certified(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01", writes=(write("x", b"w"),)))
    segment = await certify(journal)
    await lineage.fork(TENANT, key("01"), "u", "")
    await lineage.fork(TENANT, key("01", "u"), "v", "")
    assert await held(journal, "v") == {"01": (1, [segment])}
    await journal.save_writes(TENANT, key("01", "v"), [write("x", b"late", task="late")])
    await journal.set_label(TENANT, key("01", "v"), "label")
    await lineage.fork(TENANT, key("01", "v"), "w", "")
    assert await held(journal, "w") == {}


async def test_a_checkpoint_with_a_new_delta_base_is_stored_with_its_copy(
    journal: Journal, lineage: LineageRows
) -> None:
    """A segment has the base of its checkpoint at that time; ancestors are not in the fork."""
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    segment = await certify(journal)
    for checkpoint_id in ("01", "03"):
        await lineage.fork(TENANT, key(checkpoint_id), f"of {checkpoint_id}", "")
    assert await held(journal, "of 01") == {"01": (1, [segment])}
    assert await held(journal, "of 03") == {}
    again = await certify(journal, "of 03")
    await lineage.fork(TENANT, key("03", "of 03"), "again", "")
    assert await held(journal, "again") == {"03": (1, [again])}


async def test_a_held_copy_needs_nothing_that_was_evicted(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(
        journal,
        draft("01", "", {"x": b"old"}, writes=(write("x", b"w"),)),
        draft("02", "01", {"x": b"new"}),
    )
    segment = await certify(journal)
    await evict(journal, segment, b"old", b"w")
    await lineage.fork(TENANT, key("01"), "fork", "")
    loaded = await journal.load(TENANT, key("01", "fork"), View.FULL)
    assert loaded is not None
    assert evicted_digests(loaded)
    assert [place.sha256 for place in loaded.sources] == [segment]


async def test_a_copy_that_has_to_be_stored_asks_for_evicted_values(
    journal: Journal, lineage: LineageRows
) -> None:
    await chain(journal, ["01", "02", "03", "04"], seeds=["01"])
    segment = await certify(journal)
    gone = await evict(journal, segment, b"seed 01", b"w02", b"03", b"v03")
    with pytest.raises(ValuesEvictedError) as caught:
        await lineage.fork(TENANT, key("03"), "fork", "r")
    assert caught.value.digests == gone.keys()
    assert [place.sha256 for place in caught.value.places] == [segment]
    assert await journal.thread(TENANT, "fork") is None
    incomplete_values = {name: value for name, value in gone.items() if value.data != b"w02"}
    with pytest.raises(ValuesEvictedError) as caught:
        await lineage.fork(TENANT, key("03"), "fork", "r", incomplete_values)
    assert caught.value.digests == {digest(b"w02")}
    assert [place.sha256 for place in caught.value.places] == [segment]
    await lineage.fork(TENANT, key("03"), "fork", "r", gone)
    assert data_of(await journal.load(TENANT, key("03", "fork"), View.FULL)) == {"x": b"03"}
    assert [write.value.data for write in (await seen(journal, "fork"))["", "03"].writes] == [
        b"w03",
        b"v03",
    ]
    log = (("task of log", b"w01"), ("task of log", b"w02"))
    assert await history(journal, key("03", "fork")) == (b"seed 01", log)


async def test_a_fork_outlives_its_evicted_source(journal: Journal, lineage: LineageRows) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    gone = await evict(journal, await certify(journal), b"seed 01", b"w01")
    await lineage.fork(TENANT, key("02"), "fork", "", gone)
    await journal.removal.delete_thread(TENANT, "t")
    await journal.removal.sweep(early_write_ttl_s=-1)
    assert await history(journal, key("02", "fork")) == (b"seed 01", (("task of log", b"w01"),))


async def test_evicted_writes_are_found_before_their_checkpoint_is_certified_again(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01", writes=(write("x", b"w"),)), draft("02", "01"))
    first = await certify(journal)
    await journal.save_writes(TENANT, key("01"), [write("x", b"late", task="late")])
    second = await certify(journal)
    await evict(journal, first, b"w", b"late")
    await lineage.fork(TENANT, key("01"), "fork", "")
    await journal.set_label(TENANT, key("01"), "changed since")
    await journal.set_label(TENANT, key("01", "fork"), "changed since")
    for thread_id in ("t", "fork"):
        loaded = await journal.load(TENANT, key("01", thread_id), View.FULL)
        assert loaded is not None
        assert evicted_digests(loaded)
        assert {place.sha256 for place in loaded.sources} == {first, second}
