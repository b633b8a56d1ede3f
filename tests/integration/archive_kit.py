"""An archive over a real journal and a real directory, and short ways to fill it."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.metrics import MeterProvider

from tuskpoint_server.archive import Archive, ArchiveSettings
from tuskpoint_server.blobs.api import (
    BlobStore,
    Listed,
    Member,
    Progress,
    Receipt,
    StoreLimits,
)
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.domain.catalog import ThreadHead, read_heads
from tuskpoint_server.domain.digests import value_digest
from tuskpoint_server.domain.manifest import ManifestEntry, Segment, decode_segment, fold
from tuskpoint_server.domain.metadata import parse_metadata
from tuskpoint_server.domain.model import (
    BlobLocation,
    ChannelDraft,
    Checkpoint,
    CheckpointDraft,
    CheckpointKey,
    Entry,
    Saved,
    Value,
    View,
    Write,
)
from tuskpoint_server.domain.stored_json import resolved
from tuskpoint_server.journal.journal import SqlJournal

TENANT = "default"


class Clock:
    """Microseconds that go on by one at every look."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us


class WatchedStore:
    """A store that counts, and fails when a test says so."""

    def __init__(self, inner: BlobStore) -> None:
        self.inner = inner
        self.puts: list[list[Member]] = []
        self.before_put: Callable[[], None] = lambda: None
        self.after_put: Callable[[], None] = lambda: None
        self.change_read: Callable[[BlobLocation, bytes], bytes] = lambda _, data: data

    @property
    def backend(self) -> str:
        return self.inner.backend

    @property
    def limits(self) -> StoreLimits:
        return self.inner.limits

    @property
    def epoch_s(self) -> float | None:
        return self.inner.epoch_s

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        return self.inner.predict(sha256, size)

    async def put(self, members: Sequence[Member], *, apart: bool = False) -> Receipt:
        self.puts.append(list(members))
        self.before_put()
        receipt = await self.inner.put(members, apart=apart)
        self.after_put()
        return receipt

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        return self.change_read(location, await self.inner.get(location, progress=progress))

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        return [await self.get(location) for location in locations]

    async def list_blob(self, blob_id: str) -> Sequence[Listed]:
        return await self.inner.list_blob(blob_id)

    async def renew(self, blob_id: str) -> Receipt:
        return await self.inner.renew(blob_id)

    async def close(self) -> None:
        await self.inner.close()


class FilePerMember(DirectoryStore):
    """A directory in which every member is a file of its own, to be damaged alone."""

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        return BlobLocation(sha256, size, urlsafe_b64encode(sha256).rstrip(b"=").decode())

    async def put(self, members: Sequence[Member], *, apart: bool = False) -> Receipt:
        return await super().put(members, apart=True)


@dataclass
class Kit:
    """All rooms below the service."""

    root: Path
    journal: SqlJournal
    blobs: WatchedStore
    archive: Archive
    settings: ArchiveSettings

    async def save(
        self,
        checkpoint_id: str,
        parent_id: str = "",
        *,
        thread_id: str = "t",
        ns: str = "",
        content: bytes = b"state",
        metadata: dict[str, object] | None = None,
        label: str = "",
        writes: tuple[Write, ...] = (),
        agent_id: str = "",
        tenant: str = TENANT,
    ) -> Saved:
        value = Value("msgpack", content)
        draft = CheckpointDraft(
            CheckpointKey(thread_id, ns, checkpoint_id),
            parent_id,
            b"",
            (ChannelDraft("messages", checkpoint_id, value, value_digest(value)),),
            metadata=parse_metadata(json.dumps(metadata or {"step": 1}).encode(), "metadata"),
            label=label,
            agent_id=agent_id,
            writes=writes,
        )
        saved = await self.journal.save_checkpoint(tenant, draft)
        self.archive.changed(tenant, saved.stored_bytes)
        return saved

    async def save_writes(self, checkpoint_id: str, *writes: Write, thread_id: str = "t") -> Saved:
        saved = await self.journal.save_writes(
            TENANT, CheckpointKey(thread_id, "", checkpoint_id), writes
        )
        self.archive.changed(TENANT, saved.stored_bytes)
        return saved

    async def entry(self, checkpoint_id: str, thread_id: str = "t", ns: str = "") -> Entry:
        key = CheckpointKey(thread_id, ns, checkpoint_id)
        loaded = await self.journal.load(TENANT, key, View.ENTRY)
        assert loaded is not None
        return loaded.entry

    async def stored(self, checkpoint_id: str, thread_id: str = "t") -> Checkpoint:
        """Read from the blobs alone."""
        return await self.archive.read(
            TENANT, await self.entry(checkpoint_id, thread_id), bypass_cache=True
        )

    async def journaled(self, checkpoint_id: str, thread_id: str = "t") -> Checkpoint:
        loaded = await self.journal.load(
            TENANT, CheckpointKey(thread_id, "", checkpoint_id), View.FULL
        )
        assert loaded is not None
        return loaded

    async def heads(self, tenant: str = TENANT) -> dict[str, ThreadHead]:
        """All threads, found from the newest catalog's blob alone."""
        status = await self.archive.status(tenant)
        assert status.catalog is not None
        found: dict[str, ThreadHead] = {}
        async for head in read_heads(status.catalog, self.blobs.get):
            assert head.thread_id not in found
            found[head.thread_id] = head
        return found

    async def manifest(self, thread_id: str = "t") -> dict[str, ManifestEntry]:
        """Entries of a thread by ID, found from the newest catalog's blob alone."""
        head = (await self.heads())[thread_id]
        assert head.manifest is not None
        segments: list[tuple[Segment, str]] = []
        location: BlobLocation | None = head.manifest.location
        while location is not None:
            segment = decode_segment(await self.blobs.get(location), location.blob_id)
            segments.insert(0, (segment, location.blob_id))
            location = segment.previous and resolved(segment.previous, location.blob_id)
        assert sum(len(segment.records) for segment, _ in segments) == head.manifest.records
        return {entry.checkpoint_id: entry for entry in fold(segments).values()}


def write(content: bytes, *, task: str = "task", idx: int = 0, channel: str = "out") -> Write:
    value = Value("msgpack", content)
    return Write(task, "", idx, channel, value, value_digest(value))


@asynccontextmanager
async def open_kit(
    root: Path,
    *,
    interval_s: float = 3600.0,
    max_pack_checkpoints: int = 1000,
    max_pack_bytes: int = 1 << 26,
    soft_limit_bytes: int = 1 << 28,
    hard_limit_bytes: int = 1 << 30,
    clock: Clock | None = None,
    entropy: Callable[[], int] | None = None,
    meters: MeterProvider | None = None,
    store: BlobStore | None = None,
    apart: bool = False,
    start: bool = True,
) -> AsyncIterator[Kit]:
    clock = clock or Clock()
    chance = {"entropy": entropy} if entropy else {}
    journal = await SqlJournal.open(root / "journal.db", clock_us=clock, **chance)
    blobs = WatchedStore(store or FilePerMember(root / "blobs"))
    settings = ArchiveSettings(
        pointer=root / "catalog",
        flush_interval_s=interval_s,
        max_pack_checkpoints=max_pack_checkpoints,
        max_pack_bytes=max_pack_bytes,
        soft_limit_bytes=soft_limit_bytes,
        hard_limit_bytes=hard_limit_bytes,
        first_retry_s=0.001,
        longest_retry_s=0.01,
        apart=apart,
    )
    archive = Archive(
        journal, blobs, root / "spool", settings=settings, clock_us=clock, meters=meters
    )
    if start:
        await archive.start()
    try:
        yield Kit(root, journal, blobs, archive, settings)
    finally:
        await archive.stop()
        await blobs.close()
        await journal.close()
