"""The archive: everything that is journaled becomes certified, and can be read back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.metrics import MeterProvider

from ..blobs.api import BlobStore
from ..blobs.cache import CachedStore, origin
from ..domain.errors import Reason, Refusal
from ..domain.manifest import ManifestHead
from ..domain.model import BlobLocation, Checkpoint, CheckpointKey, Entry, StoredBlob
from ..journal import archive_blobs, archive_home, archive_packs, archive_status, evicting
from . import verifying
from .epochs import EpochClock
from .flusher import FlushOutcome, TenantFlusher, Trouble, checkpoint_missing
from .handoffs import HandoffStore
from .one_flush import Flush
from .packs import PackRunner
from .pointer import Pointer
from .ports import ArchiveJournal
from .reading import chain_problem, read_checkpoint
from .renewal import Renewer
from .settings import ArchiveSettings
from .spool import Spool
from .telemetry import BacklogReading, Instruments
from .verifying import ThreadVerification


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """How the archive of a tenant fares. Times are microseconds since the epoch.

    Attributes:
        backlog_checkpoints: Checkpoints whose current revision is not certified.
        backlog_bytes: Bytes of values and writes that wait.
        oldest_uncertified_us: Time of the oldest change that is not certified.
        last_error: The last error, for people; empty since the last success.
        last_error_us: Its time.
        last_flush_us: Time of the last certification.
        catalog: The newest catalog.
        catalog_seq: Number of flushes that the catalog counts.
        spool_bytes: Bytes packed and not yet certified.
        cache_bytes: Bytes in the local cache.
        certified_checkpoints: Checkpoints that have a certified revision.
        earliest_expire_us: Earliest time at which a blob that is needed may expire.
        evicted_bytes: Bytes of values and writes that are in the blob store only.
        stored_blobs: Blobs that were stored and have not lapsed.
        billed_bytes: Bytes that the store billed for them, over all puts.
        cost: Price of those puts in the store's smallest coin.
        failing_renewals: Blobs that are due for renewal and whose last renewal failed.
    """

    backlog_checkpoints: int
    backlog_bytes: int
    oldest_uncertified_us: int | None
    last_error: str
    last_error_us: int | None
    last_flush_us: int | None
    catalog: BlobLocation | None
    catalog_seq: int
    spool_bytes: int
    cache_bytes: int
    certified_checkpoints: int
    earliest_expire_us: int | None
    evicted_bytes: int = 0
    stored_blobs: int = 0
    billed_bytes: int = 0
    cost: int = 0
    failing_renewals: int = 0


class StoreChangedError(Exception):
    """The journal's blobs are in another kind of store than the one in use."""

    def __init__(self, home: str, backend: str) -> None:
        super().__init__(f"its blobs are in the {home} store, and the settings name {backend}")


class Archive:
    """Brings what is journaled to the blob store; one per server.

    Args:
        journal: The journal.
        blobs: The blob store, behind a cache or not.
        spool: Directory for packs on their way; on a disk that survives a restart.
        settings: Settings.
        clock_us: Microseconds since the epoch.
        meters: Where to measure; OpenTelemetry's global provider if none is given.
    """

    def __init__(
        self,
        journal: ArchiveJournal,
        blobs: BlobStore,
        spool: Path,
        *,
        settings: ArchiveSettings,
        clock_us: Callable[[], int],
        meters: MeterProvider | None = None,
    ) -> None:
        self._journal = journal
        self._blobs = blobs
        self._origin = origin(blobs)
        self._spool = Spool(spool)
        self._settings = settings
        self._clock_us = clock_us
        self._pointer = Pointer(settings.pointer)
        self._epochs = EpochClock(self._origin.epoch_s, settings.epochs)
        self._runner = PackRunner(
            journal,
            self._origin,
            self._spool,
            clock_us,
            self.expiry,
            apart=settings.apart,
        )
        self.handoffs = HandoffStore(self._origin)
        self.renewer = Renewer(
            journal, blobs, self._epochs, settings, clock_us, self._flush_soon, meters
        )
        self._instruments = Instruments(self._backlogs, meters)
        self._flushers: dict[str, TenantFlusher] = {}
        self._started = False

    async def start(self) -> None:
        """Take up what an earlier run left on its way, and begin to flush.

        Raises:
            StoreChangedError: The journal's blobs are in another kind of store.
        """
        backend = self._origin.backend
        home = await self._journal.transact(
            lambda connection: archive_home.claim(connection, backend)
        )
        if home != backend:
            raise StoreChangedError(home, backend)
        packs = await self._journal.query(archive_packs.unfinished)
        await asyncio.to_thread(self._spool.keep_only, {pack.spool for pack in packs})
        await self._write_pointers()
        waiting = await self._journal.query(archive_status.waiting_tenants)
        for tenant in waiting:
            await self._flusher(tenant).count_backlog()
        for stored in packs:
            pack = await self._runner.resume(stored)
            if pack is not None:
                self._flusher(stored.tenant).flush.take_up(pack)
        self._started = True
        for flusher in self._flushers.values():
            flusher.start()
            flusher.flush_soon()
        await self.renewer.start()

    async def stop(self) -> None:
        """Stop flushing; a pack on its way is finished or resumes at the next start."""
        await self.renewer.stop()
        self._started = False
        await asyncio.gather(*(flusher.stop() for flusher in self._flushers.values()))

    # --- what saves need --------------------------------------------------------------

    def changed(self, tenant: str, stored_bytes: int) -> None:
        """Note that something was journaled, with this many bytes of new content."""
        self._flusher(tenant).changed(stored_bytes)

    def backlog_bytes(self, tenant: str) -> int:
        """Return the bytes that wait for certification."""
        flusher = self._flushers.get(tenant)
        return flusher.backlog.size_bytes if flusher else 0

    def admit(self, tenant: str) -> None:
        """Refuse a save if too much waits.

        Raises:
            Refusal: `BACKLOG_FULL`.
        """
        flusher = self._flushers.get(tenant)
        if flusher is not None:
            flusher.backlog.admit()

    def warning(self, tenant: str) -> bool:
        """Tell whether so much waits that callers should know."""
        flusher = self._flushers.get(tenant)
        return flusher is not None and flusher.backlog.warning()

    # --- certification ----------------------------------------------------------------

    async def certify(self, tenant: str, key: CheckpointKey, revision: int) -> BlobLocation:
        """Wait until a revision (or a later one) is certified; return the catalog.

        Starts a flush at once; concurrent callers share it. Goes on through failures of
        the blob store: the caller's deadline ends the wait.

        Raises:
            Refusal: `CHECKPOINT_MISSING`, `DRAINING`, `JOURNAL_UNAVAILABLE`.
        """
        found = await self._journal.query(
            lambda connection: archive_status.standing(connection, tenant, [key])
        )
        if key not in found or found[key].revision < revision:
            raise checkpoint_missing(key)
        if found[key].certified_revision >= revision:
            catalog = await self._catalog(tenant)
            if catalog is not None:
                return catalog.location
        return await self._flusher(tenant).certified(key, revision)

    async def certify_all(self, tenant: str) -> FlushOutcome:
        """Wait until everything journaled before the call is certified, deletions too.

        Raises:
            Refusal: The blob store's, if a flush fails; it will be tried again.
        """
        return await self._flusher(tenant).flush_all()

    # --- reading ----------------------------------------------------------------------

    async def read(self, tenant: str, entry: Entry, *, bypass_cache: bool) -> Checkpoint:
        """Return a checkpoint from its envelopes, hash checked.

        Args:
            tenant: The tenant that the entry belongs to.
            entry: What the journal knows of it.
            bypass_cache: Go to the blob store itself.

        Raises:
            Refusal: `NOT_CERTIFIED`, `BLOB_HASH_MISMATCH`, `BLOB_NOT_FOUND`,
                `BLOB_UNAVAILABLE`, `BLOB_MALFORMED`.
        """
        store = self._origin if bypass_cache else self._blobs
        try:
            return await read_checkpoint(store, entry)
        except Refusal as refusal:
            if refusal.reason is Reason.BLOB_HASH_MISMATCH:
                self._instruments.mismatch()
            raise

    async def manifest_head(self, tenant: str, thread_id: str) -> ManifestHead | None:
        """Return the certified head of a thread's manifest, or `None`."""
        found = await self.certified_head(tenant, thread_id)
        return found.head if found else None

    async def certified_head(
        self, tenant: str, thread_id: str
    ) -> archive_status.CertifiedHead | None:
        """Return the head with its incarnation and the time of its certification."""
        return await self._journal.query(
            lambda connection: archive_status.manifest_head(connection, tenant, thread_id)
        )

    async def chain_problem(self, tenant: str, thread_id: str) -> str:
        """Read a thread's manifest from the blob store and say what is wrong with it.

        Returns:
            A sentence for people; empty if the chain holds or nothing is certified.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`.
        """
        found = await self.certified_head(tenant, thread_id)
        if found is None:
            return ""
        return await chain_problem(self._origin, found.head, thread_id, found.incarnation)

    async def verification(self, tenant: str, thread_id: str) -> ThreadVerification | None:
        """Begin to compare what is stored of a thread with what was recorded.

        Returns:
            `None` if there is no such thread.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
        """
        return await verifying.begin(
            self._journal, self._origin, tenant, thread_id, self._instruments.mismatch
        )

    def expiry(self, blob: StoredBlob) -> int | None:
        """Return the time before which a blob stored just now is not gone; `None`: never."""
        return self._epochs.stored(blob, self._clock_us())

    async def status(self, tenant: str) -> ArchiveStatus:
        """Return how the archive of a tenant fares."""
        backlog, catalog, certified, evicted, totals, expire_us = await self._journal.query(
            lambda connection: (
                archive_status.backlog(connection, tenant),
                archive_status.catalog(connection, tenant),
                archive_status.certified_count(connection, tenant),
                evicting.evicted_bytes(connection, tenant),
                archive_blobs.totals(connection, tenant),
                archive_blobs.earliest_expiry(connection, tenant),
            )
        )
        trouble = self._trouble(tenant)
        return ArchiveStatus(
            backlog_checkpoints=backlog.checkpoints,
            backlog_bytes=backlog.size_bytes,
            oldest_uncertified_us=backlog.oldest_us,
            last_error=trouble.message if trouble else "",
            last_error_us=trouble.at_us if trouble else None,
            last_flush_us=catalog.certified_us if catalog else None,
            catalog=catalog.location if catalog else None,
            catalog_seq=catalog.seq if catalog else 0,
            spool_bytes=await asyncio.to_thread(self._spool.size_bytes),
            cache_bytes=self._blobs.size_bytes if isinstance(self._blobs, CachedStore) else 0,
            certified_checkpoints=certified,
            earliest_expire_us=expire_us,
            evicted_bytes=evicted,
            stored_blobs=totals.blobs,
            billed_bytes=totals.billed_bytes,
            cost=totals.cost,
            failing_renewals=self.renewer.failing(tenant),
        )

    # --- inside -----------------------------------------------------------------------

    def _trouble(self, tenant: str) -> Trouble | None:
        """Return the newest of what certification and renewal have to complain of."""
        flusher = self._flushers.get(tenant)
        troubles = [flusher.trouble if flusher else None, self.renewer.trouble(tenant)]
        return max(filter(None, troubles), key=lambda trouble: trouble.at_us, default=None)

    def _flush_soon(self, tenant: str) -> None:
        self._flusher(tenant).flush_soon()

    def _flusher(self, tenant: str) -> TenantFlusher:
        flusher = self._flushers.get(tenant)
        if flusher is None:
            flush = Flush(
                tenant,
                self._journal,
                self._origin,
                self._runner,
                self._pointer,
                self._settings,
                self._instruments,
                self._clock_us,
            )
            flusher = TenantFlusher(
                tenant, flush, self._journal, self._settings, self._instruments, self._clock_us
            )
            self._flushers[tenant] = flusher
            if self._started:
                flusher.start()
        return flusher

    async def _catalog(self, tenant: str) -> archive_status.KnownCatalog | None:
        return await self._journal.query(
            lambda connection: archive_status.catalog(connection, tenant)
        )

    async def _write_pointers(self) -> None:
        """Write the pointer files anew; a crash may have come before the last one."""
        for tenant in await self._journal.query(archive_status.catalog_tenants):
            catalog = await self._catalog(tenant)
            if catalog is not None:
                await asyncio.to_thread(self._pointer.write, tenant, catalog.location.blob_id)

    def _backlogs(self) -> Iterable[BacklogReading]:
        for flusher in list(self._flushers.values()):
            yield BacklogReading(
                flusher.tenant, flusher.backlog.size_bytes, flusher.backlog_age_s()
            )
