"""The blob store records removals, and the values that remaining checkpoints took over."""

from __future__ import annotations

from tests.contract.removal.rows import chain, history, rows
from tests.kit.archives import House, check_certified
from tests.kit.drafts import TENANT, digest, draft, key
from tests.kit.journal import save
from tuskpoint_server.archive.formats.segment_reading import digests_of
from tuskpoint_server.archive.read.read import Segments, newest_writes, stored_row
from tuskpoint_server.core.model import EVICTED, View
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.journal.sql.schema import contents, gaps, removed

KEEP_LATEST = PruneStrategy.KEEP_LATEST
ALL = 10**9


async def stored_values(home: House, checkpoint_id: str) -> set[bytes]:
    """Return the values that a certified checkpoint finds in the blob store."""
    checkpoint = await home.journal.load(TENANT, key(checkpoint_id), View.ENTRY)
    assert checkpoint is not None
    reader = Segments(home.store, 0)
    segments = await reader.read(checkpoint.entry.segments)
    row, holder = stored_row(segments, checkpoint.entry.key)
    values = await reader.needed(holder, digests_of(row, holder.location.blob_id))
    written = (write.value for write in newest_writes(segments, checkpoint.entry.key))
    return {value.data for value in (*values.values(), *written)}


async def test_removed_checkpoints_are_gone_from_the_manifest(home: House) -> None:
    removal = home.journal.removal
    await chain(home.journal, seed_at=2, length=6)
    await home.flush()
    await removal.prune_thread(TENANT, "t", KEEP_LATEST)
    before = await history(home.journal)
    assert len(await rows(home.journal, removed, "checkpoint_id")) == 5
    await home.flush()
    assert await rows(home.journal, removed, "checkpoint_id") == []
    assert set((await home.manifest()).entries) == {("", "05")}
    assert await check_certified(home) == 1
    assert before == (b"seed", [b"2", b"3", b"4"])
    assert await stored_values(home, "05") >= {b"seed", b"2", b"3", b"4"}


async def test_evicted_writes_that_were_handed_over_are_stored_with_the_child(
    home: House,
) -> None:
    removal = home.journal.removal
    await chain(home.journal, seed_at=2, length=6)
    await home.flush()
    await home.evict()
    await removal.prune_thread(TENANT, "t", KEEP_LATEST)
    (channel_history,) = await home.journal.delta_history(TENANT, key("05"), ["log"])
    assert channel_history.seed is not None
    assert channel_history.seed.value is EVICTED
    assert [write.value is EVICTED for write in channel_history.writes] == [True] * 3
    segments = list(channel_history.sources)
    digests = [
        channel_history.seed.digest or b"",
        *(write.digest for write in channel_history.writes),
    ]
    read = await home.archive.read_values(segments, digests)
    assert [read[digest].data for digest in digests] == [b"seed", b"2", b"3", b"4"]
    await home.flush()
    assert await rows(home.journal, gaps, "reason") == []
    assert await stored_values(home, "05") >= {b"seed", b"2", b"3", b"4"}
    held = dict(await rows(home.journal, contents, "digest", "segment"))
    assert held[digest(b"3")] is not None


async def test_a_deleted_thread_is_ended_in_the_manifest(home: House) -> None:
    removal = home.journal.removal
    await save(home.journal, draft("a"), draft("b", "a"))
    await home.flush()
    await removal.delete_thread(TENANT, "t")
    await home.flush()
    assert (await home.manifest()).ended
    assert await rows(home.journal, removed, "checkpoint_id") == []
    await save(home.journal, draft("c"))
    await home.flush()
    manifest = await home.manifest()
    assert (manifest.ended, set(manifest.entries)) == (False, {("", "c")})
