"""The archive: certifies everything that is journaled, and reads certified bytes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from opentelemetry.metrics import MeterProvider

from ..blobs.api import BlobStore, StoreLostError
from ..blobs.cache import CachedStore, origin
from ..core.errors import Reason, Refusal
from ..core.model import BlobLocation, Checkpoint, CheckpointEntry, CheckpointKey, Value
from ..journal.database.database import Connection, Database
from ..journal.lease import Lease
from ..keys.provider import KeyProvider
from .archive_settings import ArchiveSettings
from .flush import flush_requests
from .flush.backlog import FlushBacklog
from .flush.flusher import FlushTrouble, TenantFlusher
from .flush.one_flush import ArchiveParts, Flush
from .flush.packs import PackRunner, Pointer, Spool
from .flush.remote_flush import RemoteFlush
from .flush.waiting import FlushOutcome
from .formats.manifests import Manifest, encode_manifest, fold
from .formats.records import MemberRecord
from .formats.stored_json import Kind
from .read.read import Segments, recorded_places, records_of
from .read.standalone import GONE, StandaloneStore
from .renew.epochs import EpochClock
from .renew.lifetime import Lifetime
from .renew.rewriting import PackRewriter
from .renew.store_watch import StoreWatch
from .rows import gaps, lifetimes, losses, plan, recorded, status
from .rows.gaps import Gap
from .rows.status import NewestCatalog
from .telemetry import FlushInstruments
from .verify import scrub_progress as scrubbing
from .verify.repair_values import Mender
from .verify.scrub import Scrubber
from .verify.verify import ThreadVerification

_log = logging.getLogger(__name__)

_GAPS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """Status of the archive of a tenant. Times are in microseconds since the Unix epoch."""

    backlog_checkpoints: int  # checkpoints whose last change is not certified
    backlog_bytes: int  # bytes of values and writes that wait for certification
    oldest_uncertified_us: int | None  # time of the oldest change that is not certified
    last_error: str  # text for people; empty since the last success
    last_error_us: int | None
    last_flush_us: int | None  # time of the last certification
    catalog: BlobLocation | None  # newest certified catalog
    catalog_seq: int  # number of the catalog in its generation
    spool_bytes: int  # bytes of packs that are not certified yet
    cache_bytes: int  # bytes in the local cache
    certified_checkpoints: int
    earliest_expire_us: int | None  # earliest time at which a blob may expire
    evicted_bytes: int = 0  # bytes of values and writes that only the blob store has
    stored_blobs: int = 0  # stored blobs that have not expired
    billed_bytes: int = 0  # bytes billed for these blobs, over all puts
    cost: int = 0  # cost of those puts in the store's smallest coin
    gaps: int = 0  # number of gaps, of segments and of checkpoints
    first_gaps: Sequence[Gap] = ()
    failing_renewals: int = 0  # blobs that are due and could not be stored again
    scrubbed_us: int | None = None  # end of the last complete pass of the scrub
    damaged_threads: Sequence[str] = ()  # threads in which the scrub found damage


class StoreChangedError(Exception):
    """The journal's blobs are in another kind of store than the configured one."""

    def __init__(self, home: str, backend: str) -> None:
        super().__init__(f"its blobs are in the {home} store, and the settings name {backend}")


class Archive:
    """Certifies journaled changes in the blob store; one per server. Reads may use a cache.

    Of the servers that share a journal, only the leader (`journal.lease`) flushes; callers can wait
    for certification on every server.

    In-flight packs are in the spool, on a disk that survives a restart.
    """

    def __init__(
        self,
        database: Database,
        lease: Lease,
        blobs: BlobStore,
        spool: Path,
        *,
        settings: ArchiveSettings,
        clock_us: Callable[[], int],
        keys: KeyProvider | None = None,
        meters: MeterProvider | None = None,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self.spool = Spool(spool)
        store = origin(blobs)
        epochs = EpochClock(blobs.epoch_s, settings.epochs)
        self._parts = ArchiveParts(
            database=database,
            lease=lease,
            settings=settings,
            instruments=FlushInstruments(meters),
            clock_us=clock_us,
            blobs=store,
            runner=PackRunner(
                database, lease, store, self.spool, lambda blob: epochs.stored(blob, clock_us())
            ),
            pointer=Pointer(settings.pointer),
            keys=keys,
        )
        self.standalone = StandaloneStore(
            store, partial(self._parts.runner.store, standalone=True), keys
        )
        self._segments = Segments(blobs, places=recorded_places(database))
        self._origin_segments = Segments(store, 0, recorded_places(database))
        self.mender = Mender(database, self._segments, self._parts.instruments)
        self.scrubber = partial(Scrubber, database, self.mender, self._parts.instruments)
        self._flushers: dict[str, TenantFlusher] = {}
        self._keeping = False
        database.added.append(self._added)
        self.lifetime = Lifetime(self._parts, blobs, epochs, self._flusher)
        self._watch = StoreWatch(
            database,
            self._parts.blobs,
            settings.look_interval_s,
            clock_us,
            self._seen,
            self._lost,
        )
        self._remote_flush = RemoteFlush(
            database, lease, self._flushers, self._flusher, self._trouble
        )
        self._parts.instruments.gauge(
            "tuskpoint.archive.backlog.size",
            "By",
            "Bytes of values and writes that wait for certification.",
            lambda: (
                (tenant, flusher.backlog.size_bytes)
                for tenant, flusher in [*self._flushers.items()]
            ),
        )
        self._parts.instruments.gauge(
            "tuskpoint.archive.backlog.age",
            "s",
            "Time since the oldest change that is not certified.",
            lambda: (
                (tenant, flusher.backlog.age_s(flusher.now))
                for tenant, flusher in [*self._flushers.items()]
            ),
        )
        self._parts.instruments.gauge(
            "tuskpoint.archive.damaged_threads",
            "{thread}",
            "Threads with changes that are not certified, because they are damaged in the journal.",
            lambda: (
                (tenant, len(flusher.flush.damaged))
                for tenant, flusher in [*self._flushers.items()]
            ),
        )

    async def start(self) -> None:
        """Let callers wait for certification; `keeping` certifies, here or on another server.

        Removes the spool files of packs that another server has finished since the last stop.

        Raises:
            StoreChangedError: The journal's blobs are in another kind of store.
            Refusal: `JOURNAL_UNAVAILABLE`; `KEY_MISSING` or `KEY_WRONG` if the keys of stored blobs
                cannot be unwrapped here.
        """
        backend = self._parts.blobs.backend
        home = await self._database.transact(
            lambda batch: status.claim_home(batch.connection, backend)
        )
        if home != backend:
            raise StoreChangedError(home, backend)
        await self._check_keys()
        await self._unfinished()
        if self._database.is_shared:
            await self._remote_flush.start()
        self._watch.start()

    async def _check_keys(self) -> None:
        """Refuse if the newest catalog of a tenant is sealed and cannot be opened here.

        A sealed tenant stays sealed: runs contain the keys of everything that they lead to.
        """
        for tenant in await self._database.query(status.catalog_tenants):
            catalog = await self.catalog(tenant)
            if catalog is None or not catalog.root:
                continue
            if self._parts.keys is None:
                what = f"the newest catalog of tenant {tenant}"
                problem = "this server has no key provider; give the one that sealed it"
                raise Refusal(Reason.KEY_MISSING, what=what, problem=problem)
            try:
                await self._parts.keys.unwrap(tenant, catalog.root)
            except Refusal as refusal:
                if refusal.reason is not Reason.KEY_PROVIDER_UNAVAILABLE:
                    raise
                _log.warning("%s; until it answers nothing is certified", refusal)

    async def stop(self) -> None:
        """Refuse all waiting and future callers: the server stops."""
        await self._watch.stop()
        await self._remote_flush.stop()
        for flusher in self._flushers.values():
            flusher.refuse()

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Resume the packs of an earlier process, flush and renew inside the context.

        Only the leader does this. An in-flight pack is finished, or resumes at the next start; an
        in-flight pack of another server is built again.

        Raises:
            Refusal: The journal cannot be used.
        """
        packs = await self._unfinished()
        # A crash may have left a pointer file behind, or another server was the leader.
        for tenant in await self._database.query(status.catalog_tenants):
            catalog = await self.catalog(tenant)
            if catalog is not None:
                await self._flusher(tenant).flush.point(catalog.location)  # or the next flush does
                if self._parts.keys is not None and not self._parts.keys.is_current(catalog.root):
                    self._flusher(tenant).flush.renew_root()
                if catalog.location.blob_id in self._parts.settings.given_up:
                    # Before anything is certified: the next catalog is not the one given up.
                    await self._parts.lease.transact(partial(losses.note, tenant=tenant))
        for tenant in await self._database.query(status.waiting_tenants):
            await self._flusher(tenant).count_backlog()
        for stored_pack in packs:
            pack = await self._parts.runner.resume(stored_pack)
            if pack is not None:
                self._flusher(stored_pack.tenant).flush.resume(pack)
        self._keeping = True
        for flusher in self._flushers.values():
            flusher.start()
            flusher.flush_soon()
        try:
            await self.lifetime.start()
            async with self._remote_flush.serving():
                yield
        finally:
            await self.lifetime.stop()
            self._keeping = False
            await asyncio.gather(*(flusher.end() for flusher in self._flushers.values()))

    async def _seen(self, tenant: str, catalog: BlobLocation) -> None:
        """Retry a flush that waited for the store; without the lease, update the pointer file."""
        flusher = self._flusher(tenant)
        if self._parts.lease.held:
            flusher.retry_lost()
            return
        problem = await flusher.flush.point(catalog)
        if problem:
            _log.warning("tenant %s: %s", tenant, problem)

    def _lost(self, tenant: str, error: StoreLostError) -> None:
        """Handle a lost newest catalog: where blobs expire, store again what the journal has.

        Where blobs do not expire, the lost blobs may come back. On a server that is not the leader,
        waiting callers are refused; on the leader, its flush refuses them.
        """
        if self._parts.blobs.epoch_s is None and not self._parts.lease.held:
            failed = Refusal(Reason.CERTIFICATION_FAILED, problem=error.message)
            self._flusher(tenant).fail(failed)
        elif self._parts.lease.held and self._parts.blobs.epoch_s is not None:
            self.lifetime.lost(tenant)

    async def _unfinished(self) -> list[plan.StoredPack]:
        """Return the in-flight packs; remove all other spool files."""
        packs = await self._database.query(plan.unfinished_packs)
        await asyncio.to_thread(self.spool.keep_only, {pack.spool for pack in packs})
        return packs

    def backlog(self, tenant: str) -> FlushBacklog:
        """Return the backlog of a tenant, which admits saves or warns of its size."""
        return self._flusher(tenant).backlog

    async def certify(self, tenant: str, key: CheckpointKey, seq: int) -> BlobLocation:
        """Wait until a change of a checkpoint is certified; return the catalog.

        With an empty checkpoint ID, wait until all changes of the thread up to `seq` are certified.
        A flush starts at once; concurrent callers share the flush. Failures of the blob store are
        retried until the caller's deadline ends the wait.

        Raises:
            Refusal: `CHECKPOINT_MISSING`, `CERTIFICATION_FAILED`, `DRAINING`,
                `JOURNAL_UNAVAILABLE`.
        """
        return await self._flusher(tenant).certified(key, seq)

    async def certify_all(
        self, tenant: str, concerns: Callable[[str], bool] = lambda thread_id: True
    ) -> FlushOutcome:
        """Wait until everything journaled before the call is certified, including deletions.

        The wait covers only threads for whose name `concerns` returns true.

        Raises:
            Refusal: The blob store's refusal, if a flush fails; the flush is retried later.
                `CERTIFICATION_FAILED` if a checkpoint cannot be stored.
        """
        return await self._flusher(tenant).flush_all(concerns)

    async def read(self, entry: CheckpointEntry) -> Checkpoint:
        """Return a checkpoint from its segments, without the cache, as `Segments.checkpoint`."""
        with self._mismatches():
            return await self._origin_segments.checkpoint(entry)

    async def read_values(
        self, locations: Sequence[BlobLocation], digests: Collection[bytes]
    ) -> dict[bytes, Value]:
        """Return evicted values from the segments that contain them; leave out missing values."""
        with self._mismatches():
            return await self._segments.values_at(locations, digests)

    async def verification(self, tenant: str, thread_id: str) -> ThreadVerification | None:
        """Start to compare a thread's stored bytes with the recorded bytes; `None`: no thread."""
        thread_and_places = await self._database.query(
            partial(recorded.of_thread_now, tenant=tenant, thread_id=thread_id)
        )
        if thread_and_places is None:
            return None
        mismatch = partial(self._parts.instruments.mismatches.add, 1)
        return ThreadVerification(self._database, self._parts.blobs, *thread_and_places, mismatch)

    async def manifest(self, tenant: str, thread_id: str) -> tuple[Manifest, NewestCatalog] | None:
        """Return the manifest of a thread, live or deleted, and the newest certified catalog.

        Returns `None` if nothing of the thread is stored.
        """
        places = recorded_places(self._database, tenant)

        async def fetch(locations: Sequence[BlobLocation]) -> list[bytes]:
            return await self._blobs.get_many(await places(locations))

        failed: bytes | None = None
        while (newest := await self.catalog(tenant)) is not None:
            try:
                records = await records_of(newest.catalog.runs, thread_id, fetch)
            except Refusal as refusal:
                # Once another catalog is certified, runs that it dropped may be removed.
                if refusal.reason not in GONE or newest.location.sha256 == failed:
                    raise
                failed = newest.location.sha256
                continue
            if records:
                return await asyncio.to_thread(fold, thread_id, records), newest
            break
        return None

    async def store_manifest(self, tenant: str, manifest: Manifest) -> BlobLocation:
        """Store a manifest as a standalone blob, which recovery accepts in place of a catalog.

        The blob lasts as long as the store keeps blobs; nothing renews it. Returns the location of
        the manifest, or of the list of its parts.
        """
        members = [
            record.location for record in manifest.records if isinstance(record, MemberRecord)
        ]
        locations = {
            location.sha256: location
            for location in await recorded_places(self._database, tenant)(members)
        }
        records = tuple(
            replace(record, location=locations[record.sha256])
            if isinstance(record, MemberRecord)
            else record
            for record in manifest.records
        )
        data = await asyncio.to_thread(encode_manifest, replace(manifest, records=records), tenant)
        return (await self.standalone.store(tenant, data, Kind.MANIFEST)).location

    async def rewrite(self, rewriter: PackRewriter, tenant: str, sizes: Mapping[str, int]) -> int:
        """Rewrite the packs of a tenant, as `PackRewriter.rewrite`; call inside `keeping`."""
        return await rewriter.rewrite(self._flusher(tenant), self.lifetime.repair, sizes)

    async def clear_cache(self) -> None:
        """Empty the local cache, if there is one.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`: the cache cannot be emptied.
        """
        if not isinstance(self._blobs, CachedStore):
            return
        try:
            await self._blobs.clear()
        except OSError as error:
            problem = error.strerror or str(error)
            raise Refusal(Reason.BLOB_UNAVAILABLE, backend="cache", problem=problem) from error

    @property
    def cache_bytes(self) -> int:
        """Bytes in the local cache of blobs."""
        return self._blobs.size_bytes if isinstance(self._blobs, CachedStore) else 0

    @property
    def backend(self) -> str:
        """Kind of blob store, such as "directory"."""
        return self._parts.blobs.backend

    async def catalog(self, tenant: str) -> NewestCatalog | None:
        """Return the newest certified catalog; `None` before the first flush."""
        return await self._database.query(lambda connection: status.catalog(connection, tenant))

    async def status(self, tenant: str) -> ArchiveStatus:
        """Return the status of the archive of a tenant."""

        def read(connection: Connection) -> ArchiveStatus:
            waiting = status.backlog(connection, tenant)
            certified_count, waiting_count = status.counts(connection, tenant)
            known = status.catalog(connection, tenant)
            stored_blobs, billed_bytes, cost = lifetimes.totals(connection, tenant)
            scrub = scrubbing.read(connection)
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
                cache_bytes=self.cache_bytes,
                certified_checkpoints=certified_count,
                earliest_expire_us=lifetimes.earliest_expiry(connection, tenant),
                evicted_bytes=status.evicted_bytes(connection, tenant),
                stored_blobs=stored_blobs,
                billed_bytes=billed_bytes,
                cost=cost,
                gaps=gaps.count(connection, tenant),
                first_gaps=gaps.first_found(connection, tenant, _GAPS_SHOWN),
                failing_renewals=failing,
                scrubbed_us=scrub.ended_us or None,
                damaged_threads=scrub.of_tenant(tenant),
            )

        trouble, failing = self._trouble(tenant)
        if not self._parts.lease.held:  # only the leader knows its errors
            row = await self._database.query(partial(flush_requests.of_tenant, tenant=tenant))
            trouble = self._watch.trouble(tenant)
            if trouble is None and row.trouble_us is not None:
                trouble = FlushTrouble(row.trouble, row.trouble_us)
            failing = row.failing
        spool_bytes = await asyncio.to_thread(self.spool.size_bytes)
        return await self._database.query(read)

    def _trouble(self, tenant: str) -> tuple[FlushTrouble | None, int]:
        """Return the last error of a tenant on this server, and its number of failing renewals."""
        flusher = self._flushers.get(tenant)
        troubles = (
            self.lifetime.trouble(tenant),
            self._watch.trouble(tenant),
            flusher.trouble if flusher else None,
        )
        last = max(filter(None, troubles), key=lambda trouble: trouble.at_us, default=None)
        return last, self.lifetime.failing.count(tenant)

    @contextmanager
    def _mismatches(self) -> Iterator[None]:
        """Count a refusal of bytes whose hash differs from the recorded hash."""
        try:
            yield
        except Refusal as refusal:
            if refusal.reason is Reason.BLOB_HASH_MISMATCH:
                self._parts.instruments.mismatches.add(1)
            raise

    def _added(self, tenant: str, changes: int, added_bytes: int) -> None:
        """Note that changes were journaled, with `added_bytes` of new content."""
        self._flusher(tenant).added(changes, added_bytes)

    def _flusher(self, tenant: str) -> TenantFlusher:
        flusher = self._flushers.get(tenant)
        if flusher is None:
            flush = Flush(tenant, self._parts)
            flusher = TenantFlusher(tenant, self._parts, flush, self.lifetime.damaged)
            self._flushers[tenant] = flusher
            if self._keeping:
                flusher.start()
        return flusher
