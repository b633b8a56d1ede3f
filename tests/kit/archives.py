"""A journal with an archive that flushes only when a test asks for a flush."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from opentelemetry.metrics import MeterProvider

from tests.kit.databases import ask
from tests.kit.drafts import TENANT, draft
from tests.kit.journal import Clock, Journal, opened
from tuskpoint_server.archive.archive import Archive
from tuskpoint_server.archive.archive_settings import ArchiveSettings
from tuskpoint_server.archive.evict.eviction import evict_family
from tuskpoint_server.archive.formats.catalogs import decode_catalog, read_thread
from tuskpoint_server.archive.formats.manifests import Manifest, fold
from tuskpoint_server.archive.formats.sealing import open_member as opened_with
from tuskpoint_server.archive.read.read import Places, Segments
from tuskpoint_server.archive.rows import status
from tuskpoint_server.blobs.api import BlobStore
from tuskpoint_server.core.model import BlobLocation, Checkpoint, CheckpointKey, View
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.database.journal_keys import OpenKey
from tuskpoint_server.journal.lease import Leader, Lease
from tuskpoint_server.keys.local import LocalKeys
from tuskpoint_server.keys.provider import KeyProvider

KEYS = LocalKeys([bytes(range(32))])
"""Keys for the tests that store sealed values."""

# Settings of a flusher that retries by itself, after very short pauses.
EAGER: dict[str, Any] = {"first_retry_s": 0.001, "longest_retry_s": 0.01}


class House:
    """A journal and its archive; nothing is flushed unless a test asks for a flush.

    Attributes:
        took_over: Set once the server does the duties of the leader after another server.
    """

    def __init__(
        self,
        journal: Journal,
        archive: Archive,
        store: BlobStore,
        clock: Clock,
        lease: Lease,
        leader: Leader,
        took_over: asyncio.Event,
        keys: KeyProvider | None,
    ) -> None:
        self.journal = journal
        self.archive = archive
        self.lease = lease
        self.leader = leader
        self.took_over = took_over
        self.keys = keys
        self.store = store
        self.clock = clock

    async def flush(self) -> int:
        """Certify everything; return the number of certified checkpoints."""
        return (await self.archive.certify_all(TENANT)).certified

    async def from_blobs(self, key: CheckpointKey) -> Checkpoint:
        """Read a certified checkpoint from the blob store alone."""
        checkpoint = await self.journal.load(TENANT, key, View.ENTRY)
        assert checkpoint is not None
        return await self.archive.read(checkpoint.entry)

    async def manifest(self, thread_id: str = "t") -> Manifest:
        """Fold the records of a thread that the newest catalog leads to."""
        known = await self.archive.catalog(TENANT)
        assert known is not None
        stored = decode_catalog(await self.content(known.location), known.location.blob_id)
        assert stored == known.catalog
        return fold(thread_id, await read_thread(stored.runs, thread_id, self.store.get))

    async def content(self, location: BlobLocation) -> bytes:
        """Return the bytes at a location, opened if they are sealed."""
        return opened_with(await self.store.get(location), location)

    async def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query in SQL."""
        return await self.journal.database.query(
            lambda connection: ask(connection, statement, *values)
        )

    async def watermark(self, thread_id: str = "t") -> tuple[int, int]:
        """Return the last change of a thread and its watermark."""
        [[seq, certified_seq]] = await self.ask(
            "SELECT seq, certified_seq FROM threads WHERE thread_id = ?", thread_id
        )
        return seq, certified_seq

    async def evict(self) -> int:
        """Evict all values that the journal can spare; return the number of their bytes."""
        gone = 0
        for [family] in await self.ask("SELECT DISTINCT family FROM threads"):
            evictions = await evict_family(
                self.journal.database,
                int(family),
                self.clock.now_us + 1,
                1 << 40,
            )
            gone += evictions.size_bytes
        return gone

    async def waiting(self) -> status.CertificationBacklog:
        """Return the certification backlog, as the journal counts it."""
        return await self.journal.database.query(
            lambda connection: status.backlog(connection, TENANT)
        )


@asynccontextmanager
async def house(
    directory: Path,
    store: BlobStore,
    clock: Clock | None = None,
    *,
    journal_of: Path | None = None,
    lease_of: Callable[[Database], Lease] = Lease,
    meters: MeterProvider | None = None,
    keys: KeyProvider | None = None,
    open_key: OpenKey | None = None,
    **changed: Any,
) -> AsyncIterator[House]:
    """Open a journal and its archive in a directory, as a start of the server does.

    A failed flush is retried when a test asks for a flush.

    Args:
        directory: The directory.
        store: The blob store.
        clock: The time.
        journal_of: Directory of another server, whose journal in PostgreSQL is used.
        lease_of: Creates the lease of a journal.
        meters: Provider of the meters.
        keys: Seal the stored values; `None`: nothing is sealed.
        open_key: Opens the key of the journal; `None`: the journal is not sealed.
        **changed: Settings of the archive that differ from the settings of tests.
    """
    time = clock or Clock()
    chosen: dict[str, Any] = {
        "flush_interval_s": 3600.0,
        "first_retry_s": 3600.0,
        "longest_retry_s": 3600.0,
        "stop_grace_s": 1.0,
        **changed,
    }
    settings = ArchiveSettings(pointer=directory / "catalog", **chosen)
    async with opened(journal_of or directory, time, open_key=open_key) as journal:
        lease = lease_of(journal.database)
        archive = Archive(
            journal.database,
            lease,
            store,
            directory / "spool",
            settings=settings,
            clock_us=time,
            keys=keys,
            meters=meters,
        )
        await archive.start()
        took_over = asyncio.Event()

        @asynccontextmanager
        async def noting() -> AsyncIterator[None]:
            took_over.set()
            yield

        leader = Leader(lease, [archive.leading, noting])
        await leader.start()
        took_over.clear()
        try:
            yield House(journal, archive, store, time, lease, leader, took_over, keys)
        finally:
            await leader.stop()
            await archive.stop()


def shown(checkpoint: Checkpoint) -> object:
    """Return the parts of a checkpoint that are the same wherever it is read, values by digest."""
    assert checkpoint.state is not None
    return (
        checkpoint.entry.key,
        checkpoint.entry.metadata,
        checkpoint.state.frame,
        [
            (channel.name, channel.version, channel.digest, channel.size)
            for channel in checkpoint.state.channels
        ],
        [
            (write.task_path, write.task_id, write.idx, write.channel, write.digest)
            for write in checkpoint.writes
        ],
    )


async def keys_of(house: House, thread_id: str) -> list[CheckpointKey]:
    """Return the checkpoints of a thread."""
    rows = await house.ask(
        "SELECT checkpoint_ns, checkpoint_id FROM checkpoints"
        " JOIN threads ON threads.number = checkpoints.thread"
        " WHERE thread_id = ? ORDER BY 1, 2",
        thread_id,
    )
    return [CheckpointKey(thread_id, str(ns), str(name)) for ns, name in rows]


def _places(manifest: Manifest) -> Places:
    """Return a lookup that finds locations by the records of a thread alone."""

    async def places(locations: Sequence[BlobLocation]) -> Sequence[BlobLocation]:
        return [manifest.location(location.sha256) or location for location in locations]

    return places


async def check_certified(house: House, *, gaps: bool = False) -> int:
    """Check that everything at or below a watermark can be read from the blob store.

    Bytes are found at the locations in the journal, and by the folded manifest alone.

    Args:
        house: The journal and its archive.
        gaps: Checkpoints that are gaps may be missing.

    Returns:
        Number of checkpoints that were read.
    """
    count = 0
    known = await house.archive.catalog(TENANT)
    for thread_id, deleted in await house.ask("SELECT thread_id, deleted FROM threads"):
        seq, certified_seq = await house.watermark(str(thread_id))
        if known is None:
            assert certified_seq == 0 or not await keys_of(house, str(thread_id))
            continue
        manifest = await house.manifest(str(thread_id))
        reached = seq == certified_seq
        stored = set(manifest.entries)
        if reached:
            assert manifest.ended == bool(deleted) or not manifest.records
        places = set()
        for key in await keys_of(house, str(thread_id)):
            checkpoint = await house.journal.load(TENANT, key, View.FULL)
            assert checkpoint is not None
            place = (key.checkpoint_ns, key.checkpoint_id)
            if gaps and any(
                (gap.checkpoint_ns, gap.checkpoint_id) == place for gap in manifest.gaps
            ):
                stored.discard(place)
                continue
            places.add(place)
            if checkpoint.entry.seq > certified_seq:
                stored.discard(place)
                places.discard(place)
                continue
            assert checkpoint.entry.certified, f"{key} has no location"
            assert shown(await house.archive.read(checkpoint.entry)) == shown(checkpoint)
            entry = manifest.entries[place]
            segments = [entry.record.segment, *(write.segment for write in entry.writes)]
            locations = [manifest.location(sha256) for sha256 in dict.fromkeys(segments)]
            assert None not in locations, f"nobody says where {key} lies"
            recorded = replace(checkpoint.entry, segments=tuple(filter(None, locations)))
            reader = Segments(house.store, 0, _places(manifest))
            assert shown(await reader.checkpoint(recorded)) == shown(checkpoint)
            assert entry.record.label == checkpoint.entry.label
            assert manifest.needed() <= manifest.members.keys()
            count += 1
        if reached:
            assert stored == places
    return count


async def grow(home: House, count: int, thread_id: str = "t", start: int = 0) -> None:
    """Append checkpoints to a thread."""
    for number in range(start, start + count):
        parent = f"{number - 1:04d}" if number else ""
        channels = {"step": b"%d" % number, "text": b"%d" % number * 300}
        await home.journal.save_checkpoint(
            TENANT, draft(f"{number:04d}", parent, channels, thread_id=thread_id)
        )
