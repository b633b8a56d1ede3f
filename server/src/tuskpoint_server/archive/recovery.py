"""Rebuilding an empty journal from blobs alone.

The way leads from a catalog to the heads of manifests, from each head along its chain of
segments, and from their fold to the envelopes. Every step checks the SHA-256 that the
step before names, so one trusted location vouches for all that is read. Work goes in
groups of threads and, inside a group, in batches that lie together in the blob store;
besides those, only the names of threads are held in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..blobs.api import BlobStore
from ..domain.catalog import (
    RunPart,
    ThreadHead,
    decode_catalog,
    encode_page,
    read_parts,
)
from ..domain.errors import Reason, Refusal
from ..domain.manifest import (
    ChainCheck,
    ManifestEntry,
    ManifestHead,
    Segment,
    decode_segment,
    fold,
)
from ..domain.model import BlobLocation, CheckpointKey
from ..domain.snapshots import is_reserved
from ..domain.stored_json import malformed
from ..journal import archive_home, recovering, recovery_losses
from ..journal.recovering import UNLISTED, StoredCheckpoint, StoredThread
from .ports import ArchiveJournal
from .recovery_envelopes import Found, Wanted, batches, read_all, read_each, rebuild

GROUP_THREADS = 512
GROUP_RECORDS = 20_000
CHAINS_AT_ONCE = 16
INSERT_BYTES = 16 * 1024 * 1024

DAMAGE = (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND, Reason.BLOB_MALFORMED)
"""Refusals of what is stored, as against those of a store that does not answer."""


@dataclass(slots=True)
class Recovered:
    """What a recovery has brought back so far.

    Attributes:
        threads: Live threads.
        snapshots: Snapshots.
        ended: Deleted threads that stay deleted.
        checkpoints: Checkpoints, hidden ones too.
        size_bytes: Bytes of their values and writes.
        left_out: What is damaged and was left out, a sentence each.
    """

    threads: int = 0
    snapshots: int = 0
    ended: int = 0
    checkpoints: int = 0
    size_bytes: int = 0
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Chain:
    """A live thread whose manifest was read and checked."""

    head: ThreadHead
    run: int
    segments: tuple[BlobLocation, ...] = ()
    open_segment: bytes = b""
    entries: tuple[ManifestEntry, ...] = ()
    lost_generation: int = 0


class Recovery:
    """Recovers one tenant.

    Args:
        tenant: The tenant.
        journal: An empty journal.
        blobs: Where everything is read.
        clock_us: Microseconds since the epoch.
        skip_damaged: Leave out what is damaged and go on.
        on_progress: Called after every step.
    """

    def __init__(
        self,
        tenant: str,
        journal: ArchiveJournal,
        blobs: BlobStore,
        *,
        clock_us: Callable[[], int],
        skip_damaged: bool = False,
        on_progress: Callable[[Recovered], None] = lambda recovered: None,
    ) -> None:
        self._tenant = tenant
        self._journal = journal
        self._blobs = blobs
        self._now_us = clock_us()
        self._skip_damaged = skip_damaged
        self._on_progress = on_progress
        self._done = Recovered()
        self._damaged_parts: set[bytes] = set()

    async def from_catalog(self, location: BlobLocation) -> Recovered:
        """Recover all threads that a catalog knows.

        Args:
            location: Where the catalog lies; its hash is what all else is trusted by.

        Raises:
            Refusal: `BLOB_HASH_MISMATCH`, `BLOB_NOT_FOUND`, `BLOB_MALFORMED` (unless
                what is damaged can be left out), `BLOB_UNAVAILABLE`,
                `JOURNAL_UNAVAILABLE`. The journal is then of no use.
        """
        data = await self._blobs.get(location)
        location = replace(location, size=len(data))
        catalog = decode_catalog(data, location)
        await self._claim_home()
        await self._journal.transact(
            lambda connection: recovering.add_catalog(
                connection, self._tenant, catalog, location, self._now_us
            )
        )
        group: list[tuple[ThreadHead, int]] = []
        damaged: set[int] = set()
        async for part in read_parts(catalog, location, self._fetch_part):
            await self._add_part(part)
            if part.location.sha256 in self._damaged_parts:
                damaged.add(part.run)
            for head in part.heads:
                if head.ended:
                    continue
                group.append((head, part.run))
                if _is_full(group):
                    await self._recover(group)
                    group = []
        await self._recover(group)
        if damaged:
            await self._journal.transact(
                lambda connection: recovery_losses.drop_runs(
                    connection, self._tenant, catalog, location, damaged, self._now_us
                )
            )
        return self._done

    async def from_manifest(self, location: BlobLocation) -> Recovered:
        """Recover the one thread that a segment of a manifest is the head of.

        The next flush writes a catalog that knows the thread. Whether it was deleted
        later, its agent, its retention and whether search may find it stand in catalogs
        alone.

        Args:
            location: Where the segment lies.

        Raises:
            Refusal: As `from_catalog`.
        """
        data = await self._blobs.get(location)
        segment = decode_segment(data, location.blob_id)
        manifest = ManifestHead(
            replace(location, size=len(data)), segment.segment, segment.generation, 0
        )
        head = ThreadHead(segment.thread_id, segment.incarnation, False, "", manifest)
        await self._claim_home()
        await self._recover([(head, UNLISTED)])
        return self._done

    async def _claim_home(self) -> None:
        await self._journal.transact(
            lambda connection: archive_home.claim(connection, self._blobs.backend)
        )

    # --- the catalog -------------------------------------------------------------------

    async def _fetch_part(self, location: BlobLocation) -> bytes:
        """Fetch a piece of a run; in place of a damaged one return an empty page."""
        try:
            return await self._blobs.get(location)
        except Refusal as refusal:
            self._leave_out("the threads of a page of the catalog", refusal)
            self._damaged_parts.add(location.sha256)
            return encode_page([])

    async def _add_part(self, part: RunPart) -> None:
        await self._journal.transact(
            lambda connection: recovering.add_part(connection, self._tenant, part, self._now_us)
        )
        ended = [head.thread_id for head in part.heads if head.ended]
        self._done.ended += len(ended) - sum(map(is_reserved, ended))

    def _leave_out(self, what: str, refusal: Refusal) -> None:
        """Note what is left out.

        Raises:
            Refusal: The one given, if it is not to be left out.
        """
        if not self._skip_damaged or refusal.reason not in DAMAGE:
            raise refusal
        self._done.left_out.append(f"{what}: {refusal}")

    # --- threads -----------------------------------------------------------------------

    async def _recover(self, group: Sequence[tuple[ThreadHead, int]]) -> None:
        """Recover some live threads, each with the run that lists it."""
        turn = asyncio.Semaphore(CHAINS_AT_ONCE)

        async def read(head: ThreadHead, run: int) -> _Chain:
            async with turn:
                try:
                    return await self._read_chain(head, run)
                except Refusal as refusal:
                    self._leave_out(f"thread '{head.thread_id}'", refusal)
                    lost = head.manifest.generation if head.manifest else 0
                    return _Chain(replace(head, manifest=None), run, lost_generation=lost)

        reading = [asyncio.create_task(read(head, run)) for head, run in group]
        try:
            chains = await asyncio.gather(*reading)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        for batch in batches(_wanted(chains)):
            await self._add_checkpoints(batch)
        await self._journal.transact(
            lambda connection: recovering.add_threads(
                connection,
                self._tenant,
                [_thread(chain, self._now_us) for chain in chains],
                self._now_us,
            )
        )
        names = [chain.head.thread_id for chain in chains if not chain.lost_generation]
        snapshots = sum(map(is_reserved, names))
        self._done.snapshots += snapshots
        self._done.threads += len(names) - snapshots
        self._on_progress(self._done)

    async def _read_chain(self, head: ThreadHead, run: int) -> _Chain:
        manifest = head.manifest
        if manifest is None:
            return _Chain(head, run)
        check = ChainCheck(manifest, head.thread_id, head.incarnation)
        segments: list[tuple[Segment, BlobLocation]] = []
        open_segment = b""
        while check.wanted is not None:
            at = check.wanted
            data = await self._blobs.get(at)
            problem = check.accept(data)
            if problem:
                raise malformed(at.blob_id, problem)
            segments.append((decode_segment(data, at.blob_id), at))
            open_segment = open_segment or data
        segments.reverse()
        entries = fold((segment, at.blob_id) for segment, at in segments)
        counted = sum(len(segment.records) for segment, _ in segments)
        return _Chain(
            head=replace(head, manifest=replace(manifest, records=counted)),
            run=run,
            segments=tuple(at for _, at in segments),
            open_segment=open_segment,
            entries=tuple(entries.values()),
        )

    # --- checkpoints -------------------------------------------------------------------

    async def _add_checkpoints(self, batch: Sequence[Wanted]) -> None:
        """Read the envelopes of a batch and insert what they hold, some at a time."""
        found = await self._read(batch)
        some: list[StoredCheckpoint] = []
        lost: list[tuple[CheckpointKey, int]] = []
        size = 0
        for wanted in batch:
            try:
                checkpoint = await rebuild(self._blobs, wanted, found)
            except Refusal as refusal:
                key = wanted.key
                self._leave_out(f"checkpoint {key} in namespace '{key.checkpoint_ns}'", refusal)
                lost.append((key, wanted.incarnation))
                continue
            some.append(checkpoint)
            size += checkpoint.size_bytes
            if size >= INSERT_BYTES:
                await self._insert(some)
                some, size = [], 0
        await self._insert(some)
        if lost:
            await self._journal.transact(
                lambda connection: recovery_losses.retract(
                    connection, self._tenant, lost, self._now_us
                )
            )
        self._on_progress(self._done)

    async def _read(self, batch: Sequence[Wanted]) -> Found:
        try:
            return await read_all(self._blobs, batch)
        except Refusal as refusal:
            if not self._skip_damaged or refusal.reason not in DAMAGE:
                raise
        return await read_each(self._blobs, batch)

    async def _insert(self, some: Sequence[StoredCheckpoint]) -> None:
        await self._journal.transact(
            lambda connection: recovering.add_checkpoints(
                connection, self._tenant, some, self._now_us
            )
        )
        self._done.checkpoints += len(some)
        self._done.size_bytes += sum(one.size_bytes for one in some)


def _is_full(group: Sequence[tuple[ThreadHead, int]]) -> bool:
    records = sum(head.manifest.records for head, _ in group if head.manifest)
    return len(group) >= GROUP_THREADS or records >= GROUP_RECORDS


def _wanted(chains: Sequence[_Chain]) -> Iterator[Wanted]:
    for chain in chains:
        head = chain.head
        for seq, entry in enumerate(chain.entries, 1):
            key = CheckpointKey(head.thread_id, entry.checkpoint_ns, entry.checkpoint_id)
            yield Wanted(key, head.incarnation, seq, entry)


def _thread(chain: _Chain, now_us: int) -> StoredThread:
    times = [entry.created_us for entry in chain.entries] or [now_us]
    return StoredThread(
        head=chain.head,
        run=chain.run,
        segments=chain.segments,
        open_segment=chain.open_segment,
        seq=len(chain.entries),
        created_us=min(times),
        updated_us=max(times),
        lost_generation=chain.lost_generation,
    )
