"""The archive: everything that is journaled becomes certified, and can be read back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.metrics import MeterProvider

from ..blobs.api import BlobStore
from ..blobs.cache import CachedStore, origin
from ..domain.errors import Reason, Refusal
from ..domain.formats.manifests import Manifest
from ..domain.model import BlobLocation, Checkpoint, CheckpointKey, Entry, Value
from ..journal.archiving import holes, lifetimes, plan, status
from ..journal.archiving.holes import Hole
from ..journal.archiving.lifetimes import Expiry
from ..journal.archiving.status import KnownCatalog
from ..journal.database.database import Connection, Database
from .apart import HandoffStore
from .flush.flusher import FlushOutcome, TenantFlusher, checkpoint_missing, hole_of
from .flush.one_flush import Flush
from .flush.packs import PackRunner, Pointer, Spool
from .flush.settings import ArchiveSettings
from .flush.telemetry import BacklogReading, Instruments
from .lifetime.epochs import EpochClock
from .lifetime.lifetime import Lifetime
from .read import Segments, manifest, placed, store_manifest
from .verify import ThreadVerification, begin

_HOLES_SHOWN = 100


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """How the archive of a tenant fares. Times are microseconds since the epoch."""

    backlog_checkpoints: int  # their last change is not certified
    backlog_bytes: int  # of values and writes that wait
    oldest_uncertified_us: int | None  # time of the oldest change that is not certified
    last_error: str  # for people; empty since the last success
    last_error_us: int | None
    last_flush_us: int | None  # time of the last certification
    catalog: BlobLocation | None  # the newest
    catalog_seq: int  # its number in its generation
    spool_bytes: int  # packed and not yet certified
    cache_bytes: int  # in the local cache
    certified_checkpoints: int
    earliest_expire_us: int | None  # earliest time at which a blob may expire
    evicted_bytes: int = 0  # of values and writes that are in the blob store only
    stored_blobs: int = 0  # that have not lapsed
    billed_bytes: int = 0  # for these blobs, over all puts
    cost: int = 0  # of those puts in the store's smallest coin
    holes: int = 0  # how much below a watermark cannot be read from the blob store
    first_holes: Sequence[Hole] = ()
    failing_renewals: int = 0  # blobs that are due and could not be stored again


class StoreChangedError(Exception):
    """The journal's blobs are in another kind of store than the one in use."""

    def __init__(self, home: str, backend: str) -> None:
        super().__init__(f"its blobs are in the {home} store, and the settings name {backend}")


class Archive:
    """Brings what is journaled to the blob store; one per server. A cache may stand before it.

    Packs on their way lie in the spool, on a disk that survives a restart. `expiry` says how long
    a stored blob lasts.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        spool: Path,
        *,
        settings: ArchiveSettings,
        clock_us: Callable[[], int],
        meters: MeterProvider | None = None,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._origin = origin(blobs)
        self._spool = Spool(spool)
        self._settings = settings
        self._clock_us = clock_us
        self._pointer = Pointer(settings.pointer)
        epochs = EpochClock(blobs.epoch_s, settings.epochs)
        self.expiry: Expiry = lambda blob: epochs.stored(blob, clock_us())
        self._runner = PackRunner(database, self._origin, self._spool, self.expiry)
        self.handoffs = HandoffStore(self._origin)
        self._segments = Segments(blobs, places=placed(database))
        self._origin_segments = Segments(self._origin, 0, placed(database))
        self._instruments = Instruments(self._backlogs, meters)
        self._flushers: dict[str, TenantFlusher] = {}
        self._started = False
        self.lifetime = Lifetime(
            database, blobs, self._runner, epochs, settings, self._flusher, clock_us, meters
        )

    async def start(self) -> None:
        """Resume what an earlier run left on its way, and begin to flush.

        Raises:
            StoreChangedError: The journal's blobs are in another kind of store.
        """
        backend = self._origin.backend
        home = await self._database.transact(
            lambda batch: status.claim_home(batch.connection, backend)
        )
        if home != backend:
            raise StoreChangedError(home, backend)
        left = await self._database.query(plan.unfinished)
        await asyncio.to_thread(self._spool.keep_only, {pack.spool for pack in left})
        # A crash may have come before a pointer file was written.
        for tenant in await self._database.query(status.catalog_tenants):
            known = await self.catalog(tenant)
            if known is not None:
                await asyncio.to_thread(self._pointer.write, tenant, known.location.blob_id)
        for tenant in await self._database.query(status.waiting_tenants):
            await self._flusher(tenant).count_backlog()
        for stored in left:
            pack = await self._runner.resume(stored)
            if pack is not None:
                self._flusher(stored.tenant).flush.resume(pack)
        self._started = True
        for flusher in self._flushers.values():
            flusher.start()
            flusher.flush_soon()
        await self.lifetime.start()

    async def stop(self) -> None:
        """Stop flushing; a pack on its way is finished or resumes at the next start."""
        await self.lifetime.stop()
        self._started = False
        await asyncio.gather(*(flusher.stop() for flusher in self._flushers.values()))

    def changed(self, tenant: str, stored_bytes: int) -> None:
        """Note that something was journaled, with this many bytes of new content."""
        self._flusher(tenant).changed(stored_bytes)

    def admit(self, tenant: str) -> None:
        """Refuse a save with `BACKLOG_FULL` if too much waits."""
        flusher = self._flushers.get(tenant)
        if flusher is not None:
            flusher.backlog.admit()

    def warning(self, tenant: str) -> bool:
        """Return whether so much waits that callers should know."""
        flusher = self._flushers.get(tenant)
        return flusher is not None and flusher.backlog.warning()

    async def certify(self, tenant: str, key: CheckpointKey, seq: int) -> BlobLocation:
        """Wait until a change of a checkpoint is certified; return the catalog.

        With an empty checkpoint ID: until all that its thread is up to there.
        Starts a flush at once; concurrent callers share it. Goes on through failures of
        the blob store: the caller's deadline ends the wait.

        Raises:
            Refusal: `CHECKPOINT_MISSING`, `CERTIFICATION_FAILED`, `DRAINING`,
                `JOURNAL_UNAVAILABLE`.
        """
        found, known, unstored = await self._database.query(
            lambda connection: (
                status.wanted(connection, tenant, key, seq),
                status.catalog(connection, tenant),
                holes.unstored(connection, tenant),
            )
        )
        if found is None:
            raise checkpoint_missing(key)
        wanted, certified_seq = found
        if certified_seq >= seq and known is not None:
            hole = hole_of(wanted, unstored)
            if hole is not None:
                raise Refusal(Reason.CERTIFICATION_FAILED, problem=hole.reason)
            return known.location
        self._refuse_when_stopped()
        return await self._flusher(tenant).certified(key, wanted)

    async def certify_all(
        self, tenant: str, concerns: Callable[[str], bool] = lambda thread_id: True
    ) -> FlushOutcome:
        """Wait until everything journaled before the call is certified, deletions too.

        Only the changes of threads whose names `concerns` are waited for.

        Raises:
            Refusal: The blob store's, if a flush fails; it will be tried again.
                `CERTIFICATION_FAILED` if something of it cannot be stored.
        """
        self._refuse_when_stopped()
        return await self._flusher(tenant).flush_all(concerns)

    async def read(self, entry: Entry, *, bypass_cache: bool) -> Checkpoint:
        """Return a checkpoint from its segments, hash checked; raises as `Segments.checkpoint`."""
        segments = self._origin_segments if bypass_cache else self._segments
        with self._mismatches():
            return await segments.checkpoint(entry)

    async def read_values(
        self, locations: Sequence[BlobLocation], digests: Collection[bytes]
    ) -> dict[bytes, Value]:
        """Return evicted values from the segments that hold them; others are left out."""
        with self._mismatches():
            return await self._segments.values_at(locations, digests)

    async def verification(self, tenant: str, thread_id: str) -> ThreadVerification | None:
        """Begin to compare what is stored of a thread with what was recorded; `None`: no thread."""
        mismatch = self._instruments.mismatch
        return await begin(self._database, self._origin, tenant, thread_id, mismatch)

    async def manifest(self, tenant: str, thread_id: str) -> tuple[Manifest, KnownCatalog] | None:
        """Return the manifest of a thread and the newest catalog; `None`: nothing is stored."""
        return await manifest(self._database, self._blobs, tenant, thread_id)

    async def store_manifest(self, tenant: str, found: Manifest) -> BlobLocation:
        """Store a manifest as a blob of its own; see `archive.read.store_manifest`."""
        return await store_manifest(self._database, self._origin, tenant, found, self.expiry)

    async def catalog(self, tenant: str) -> KnownCatalog | None:
        """Return the newest certified catalog; `None` before the first flush."""
        return await self._database.query(lambda connection: status.catalog(connection, tenant))

    async def status(self, tenant: str) -> ArchiveStatus:
        """Return how the archive of a tenant fares."""

        def read(connection: Connection) -> ArchiveStatus:
            waiting = status.backlog(connection, tenant)
            certified_count, waiting_count = status.counts(connection, tenant)
            known = status.catalog(connection, tenant)
            stored_blobs, billed_bytes, cost = lifetimes.totals(connection, tenant)
            return ArchiveStatus(
                backlog_checkpoints=waiting_count,
                backlog_bytes=waiting.size_bytes,
                oldest_uncertified_us=waiting.oldest_us,
                last_error=trouble.message if trouble else "",
                last_error_us=trouble.at_us if trouble else None,
                last_flush_us=known.certified_us if known else None,
                catalog=known.location if known else None,
                catalog_seq=known.catalog.number if known else 0,
                spool_bytes=spool_bytes,
                cache_bytes=cache_bytes,
                certified_checkpoints=certified_count,
                earliest_expire_us=lifetimes.earliest_expiry(connection, tenant),
                evicted_bytes=status.evicted_bytes(connection, tenant),
                stored_blobs=stored_blobs,
                billed_bytes=billed_bytes,
                cost=cost,
                holes=holes.count(connection, tenant),
                first_holes=holes.first(connection, tenant, _HOLES_SHOWN),
                failing_renewals=self.lifetime.failing(tenant),
            )

        flusher = self._flushers.get(tenant)
        troubles = (self.lifetime.trouble(tenant), flusher.trouble if flusher else None)
        trouble = max(filter(None, troubles), key=lambda one: one.at_us, default=None)
        spool_bytes = await asyncio.to_thread(self._spool.size_bytes)
        cache_bytes = self._blobs.size_bytes if isinstance(self._blobs, CachedStore) else 0
        return await self._database.query(read)

    def _refuse_when_stopped(self) -> None:
        if not self._started:
            raise Refusal(Reason.DRAINING)

    @contextmanager
    def _mismatches(self) -> Iterator[None]:
        """Count a refusal of bytes with another hash."""
        try:
            yield
        except Refusal as refusal:
            if refusal.reason is Reason.BLOB_HASH_MISMATCH:
                self._instruments.mismatch()
            raise

    def _flusher(self, tenant: str) -> TenantFlusher:
        flusher = self._flushers.get(tenant)
        if flusher is None:
            chosen = (self._settings, self._instruments, self._clock_us)
            flush = Flush(
                tenant, self._database, self._origin, self._runner, self._pointer, *chosen
            )
            flusher = TenantFlusher(tenant, flush, self._database, *chosen, self.lifetime.damaged)
            self._flushers[tenant] = flusher
            if self._started:
                flusher.start()
        return flusher

    def _backlogs(self) -> Iterable[BacklogReading]:
        for flusher in list(self._flushers.values()):
            backlog = flusher.backlog
            age_s = backlog.age_s(flusher.now)
            yield BacklogReading(flusher.tenant, backlog.size_bytes, age_s)
