"""Keeping what is needed in the blob store: looks at what is due, from time to time.

Every blob that may expire within the margin is taken up, and every one of which no end is known.
One that was stored in the epoch that was last seen gains nothing, unless the next epoch has begun
unseen: of those, one is tried at a time. What fails is said (log, metrics, status) and tried
again; if half the margin is left, or the blob is gone, what it holds is stored elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from opentelemetry.metrics import MeterProvider

from ...blobs.api import BlobStore
from ...domain.errors import Reason, Refusal
from ...domain.failpoints import failpoint
from ...domain.limits import MIB
from ...journal.archiving import lifetimes, status
from ...journal.archiving.lifetimes import DueBlob
from ...journal.database.database import Database
from ..flush.flusher import TenantFlusher, Trouble
from ..flush.packs import PackRunner
from ..flush.settings import ArchiveSettings
from .epochs import EpochClock
from .failing import DAMAGE, FIRST_RETRY_S, Failing
from .salvage import Salvage, Salvaged, sliced
from .survey import Survey, Surveyed, survey
from .telemetry import LifetimeInstruments, LifetimeReading

_log = logging.getLogger(__name__)

BATCH = 256
"""Blobs that are looked at together."""

ROUND_BLOBS = 1024
"""Blobs that one round takes up; another follows at once if more are due."""

SHORTEST_PAUSE_S = 0.05
ROUNDS_PER_EPOCH = 8
_MOVED_BYTES = 32 * MIB
_READS = 2
"""What cannot be read so often in a row is lost: one answer may have been cut short."""


@dataclass(slots=True)
class Round(Salvaged):
    """What a round did: numbers of blobs beside those of `Salvaged`."""

    renewed: int = 0
    failed: int = 0
    more: bool = False


class Lifetime:
    """Keeps the blobs of all tenants.

    Args:
        database: The journal.
        blobs: The store, behind a cache or not.
        runner: Stores packs.
        epochs: What is known of the store's epochs.
        settings: Settings.
        flusher: Returns the flusher of a tenant.
        clock_us: Microseconds since the epoch.
        meters: Where to measure; OpenTelemetry's global provider if none is given.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        runner: PackRunner,
        epochs: EpochClock,
        settings: ArchiveSettings,
        flusher: Callable[[str], TenantFlusher],
        clock_us: Callable[[], int],
        meters: MeterProvider | None = None,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._epochs = epochs
        self._settings = settings
        self._flusher = flusher
        self._clock_us = clock_us
        self._salvage = Salvage(database, blobs, runner)
        self._instruments = LifetimeInstruments(self._readings, meters)
        self._failing = Failing(
            clock_us, self._margin_us, epochs.length_us or 0, settings.renew_interval_s
        )
        self._fallen: Trouble | None = None
        self._unlike: set[str] = set()
        self._damaged: set[str] = set()
        self._earliest: dict[str, int | None] = {}
        self._reckoned_us: int | None = None
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take up what the journal knows of epochs, and begin to look."""
        for epoch, at_us in await self._database.query(lifetimes.observations):
            self._epochs.observe(epoch, at_us)
        self._epochs.fallen = None  # it was dealt with when it was seen
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._wake.set)

        self._epochs.on_new_epoch = wake
        self._task = asyncio.create_task(self._run(), name="lifetime")

    async def stop(self) -> None:
        """Stop; what is cut off is repeated after the next start."""
        self._epochs.on_new_epoch = lambda: None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def damaged(self, tenant: str) -> None:
        """Note that a flush could not read what is stored: look at once."""
        self._damaged.add(tenant)
        self._wake.set()

    async def look_now(self) -> Round:
        """Store again whatever is due, also what failed a moment ago.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        return await self._round(patient=False)

    def failing(self, tenant: str) -> int:
        """Return the number of blobs that are due and that could not be stored again."""
        return self._failing.count(tenant)

    def trouble(self, tenant: str) -> Trouble | None:
        """Return the last failure among the blobs that still fail, or that the network is new."""
        return self._failing.trouble(tenant) or self._fallen

    # --- the loop --------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            pause_s: float | None = FIRST_RETRY_S
            try:
                done = await self._round(patient=True)
                pause_s = 0.0 if done.more else self._pause_s()
            except Refusal as refusal:
                _log.warning("looking for blobs that expire waits: %s", refusal)
            except Exception:  # noqa: BLE001 - a defect must not end the looking; it is repeated
                _log.exception("a look for blobs that expire failed")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()

    def _pause_s(self) -> float | None:
        """Return the seconds to the next look; `None`: until something is damaged."""
        waits = self._failing.pauses_s()
        if self._damaged:
            waits.append(FIRST_RETRY_S)
        if self._epochs.length_us is not None:
            waits.append(self._settings.renew_interval_s)
            waits.append(self._epochs.length_us / 1e6 / ROUNDS_PER_EPOCH)
        return max(min(waits), SHORTEST_PAUSE_S) if waits else None

    async def _round(self, *, patient: bool) -> Round:
        async with self._turn:
            done = Round()
            if self._epochs.fallen is not None:
                await self._begin_anew(*self._epochs.fallen)
            await self._reckon()
            for tenant in await self._database.query(status.catalog_tenants):
                if tenant in self._damaged and not await self._mend(tenant):
                    continue
                if self._epochs.length_us is None:
                    continue
                await self._keep(tenant, done, patient=patient)
                await self._clean_up(tenant)
                self._earliest[tenant] = await self._database.query(
                    partial(lifetimes.earliest_expiry, tenant=tenant)
                )
            if not self._failing.count() and not done.waits:
                self._fallen = None
            return done

    async def _begin_anew(self, before: int, now: int) -> None:
        """Take up every blob: the network that had them is another one now."""
        self._epochs.fallen = None
        problem = (
            f"the epoch of the blob store fell from {before} to {now}: the network was wiped, or "
            "the endpoints belong to another one. If that was not intended, correct the endpoints; "
            "whatever can be is stored again"
        )
        _log.error("%s", problem)
        self._fallen = Trouble(problem, self._clock_us())
        await self._database.transact(lambda batch: lifetimes.forget_ends(batch.connection))
        self._failing.clear()

    async def _reckon(self) -> None:
        """Bring the journal's times of expiry up to what the clock has learnt since."""
        origin_us, length_us = self._epochs.expire_us(0), self._epochs.length_us
        if origin_us is None or length_us is None:
            return
        known = self._reckoned_us
        if known is not None and 0 <= origin_us - known < length_us // 100:
            return
        await self._database.transact(
            lambda batch: lifetimes.reckon(batch.connection, origin_us, length_us)
        )
        self._reckoned_us = origin_us

    # --- what is due -----------------------------------------------------------------

    @property
    def _margin_us(self) -> int:
        return self._settings.renew_margin_epochs * (self._epochs.length_us or 0)

    async def _keep(self, tenant: str, done: Round, *, patient: bool) -> None:
        """Store again what gains by it; then try whether an epoch has begun unseen."""
        passed = self._failing.waiting(tenant) if patient else set()
        taken = 0
        while True:
            epoch = self._epochs.epoch_at(self._clock_us())
            gains_below = None if epoch is None else epoch + self._epochs.epochs
            batch = await self._due(tenant, BATCH, gains_below, passed)
            probing = not batch
            if probing:
                batch = await self._due(tenant, 1, None, passed)
            if not batch:
                return
            if taken >= ROUND_BLOBS:
                done.more = True
                return
            taken += len(batch)
            passed.update(blob.blob_id for blob in batch)
            before = done.failed
            try:
                await self._take(tenant, batch, done)
            except Refusal as refusal:
                if refusal.reason is Reason.JOURNAL_UNAVAILABLE:
                    raise
                for blob in batch:
                    self._note_failure(tenant, blob, refusal)
                done.failed += len(batch)
            failed = done.failed - before
            if probing and (failed or self._epochs.epoch_at(self._clock_us()) == epoch):
                return
            if failed == BATCH and not self._failing.any_gone(tenant, batch):
                return  # the store takes nothing now; single blobs that fail stop nobody

    async def _due(
        self, tenant: str, limit: int, below_epoch: int | None, passed: Collection[str]
    ) -> list[DueBlob]:
        before_us = self._clock_us() + self._margin_us
        return await self._database.query(
            lambda connection: lifetimes.due(
                connection, tenant, before_us, limit, below_epoch=below_epoch, passed=passed
            )
        )

    async def _take(self, tenant: str, batch: Sequence[DueBlob], done: Round) -> None:
        """Store again what is needed of some blobs, each in the way that suits it.

        Raises:
            Refusal: Of the blob store or the journal.
        """
        flusher = self._flusher(tenant)
        async with flusher.turn:
            settled, found = await self._survey(flusher, batch)
            needed = [blob for blob in found.blobs if blob.is_needed]
            leaving = [
                one for one in needed if one.of_ended and not self._failing.is_late(one.blob)
            ]
            dense: list[Surveyed] = []
            if settled:
                await self._drop(tenant, found)
                dense = self._dense([blob for blob in needed if blob not in leaving])
                dense += [blob.without_ended() for blob in leaving if not blob.is_member]
                for some in _in_memory(dense):
                    for blob, refusal in await self._move(flusher, found, some, done):
                        self._note_failure(tenant, blob, refusal)
                        done.failed += 1
        if leaving:  # once others need them no more, they lapse with their blob
            ended = set().union(*(blob.of_ended for blob in leaving))
            await self._store_again(flusher, ended, done)
        whole = [blob.blob for blob in needed if blob not in dense and blob not in leaving]
        failed = await self._renew_all(tenant, whole)
        done.renewed += len(whole) - len(failed)
        done.failed += len(failed)
        endangered = [blob for blob in failed if self._failing.is_endangered(tenant, blob)]
        if endangered:
            await self._save(flusher, endangered, done)

    async def _survey(
        self, flusher: TenantFlusher, batch: Sequence[DueBlob]
    ) -> tuple[bool, Survey]:
        """Return whether nothing is on its way, and what is needed of blobs.

        Runs that cannot be read are replaced before. The caller holds the flusher's turn.
        """
        settled = True
        try:
            await flusher.flush.settle()
        except Refusal as refusal:
            if refusal.reason is Reason.JOURNAL_UNAVAILABLE:
                raise
            settled = False
        for _ in range(_READS):
            try:
                return settled, await survey(self._database, self._blobs, flusher.tenant, batch)
            except Refusal as refusal:
                if refusal.reason not in DAMAGE or not settled:
                    raise
                _log.error("tenant %s: a run cannot be read: %s", flusher.tenant, refusal.message)
        await self._salvage.rebuild(flusher)
        flusher.flush_soon()
        return True, await survey(self._database, self._blobs, flusher.tenant, batch)

    def _dense(self, needed: Sequence[Surveyed]) -> list[Surveyed]:
        """Return the blobs whose members go into dense packs."""
        movable = [blob for blob in needed if not blob.is_member]
        dense = [blob for blob in movable if blob.is_sparse or blob.blob.blob_id in self._unlike]
        capacity = self._blobs.limits.max_put_bytes or 0
        small = [blob for blob in movable if blob not in dense and 2 * blob.alive_bytes < capacity]
        # Each is billed for a multiple of what it holds; together they are one.
        return dense + small if len(dense) + len(small) > 1 else dense

    async def _drop(self, tenant: str, found: Survey) -> None:
        """Forget what is in blobs of which nothing is needed, so that they lapse."""
        unneeded = [blob for blob in found.blobs if not blob.is_needed]
        hashes = [one.location.sha256 for blob in unneeded for one in blob.dead]
        if hashes:
            await self._database.transact(
                lambda batch: lifetimes.drop(batch.connection, tenant, hashes)
            )
        for blob in unneeded:
            self._failing.forget(tenant, blob.blob.blob_id)

    # --- renewing --------------------------------------------------------------------

    async def _renew_all(self, tenant: str, batch: Sequence[DueBlob]) -> list[DueBlob]:
        """Renew blobs as a whole; return those that were not."""
        # Half of what the store takes at once: flushes must get through.
        gate = asyncio.Semaphore(max(1, self._blobs.limits.puts_at_once // 2))

        async def one(blob: DueBlob) -> bool:
            async with gate:
                return await self._renew(tenant, blob)

        outcomes = await asyncio.gather(*map(one, batch), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [blob for blob, renewed in zip(batch, outcomes, strict=True) if not renewed]

    async def _renew(self, tenant: str, blob: DueBlob) -> bool:
        """Renew a blob; return whether the store took it."""
        try:
            receipt = await self._blobs.renew(blob.blob_id)
        except Refusal as refusal:
            self._note_failure(tenant, blob, refusal)
            return False
        failpoint("archive.after_renewal")
        now_us = self._clock_us()
        await self._database.transact(
            lambda batch: lifetimes.record_blobs(
                batch.connection,
                tenant,
                receipt.blobs,
                now_us,
                lambda stored: self._epochs.stored(stored, now_us),
            )
        )
        self._failing.forget(tenant, blob.blob_id)
        if any(stored.blob_id != blob.blob_id for stored in receipt.blobs):
            self._unlike.add(blob.blob_id)  # its members have to be looked for there
            self._wake.set()
        ends = [stored.end_epoch for stored in receipt.blobs]
        self._instruments.renewal("unchanged" if ends == [blob.end_epoch] else "renewed")
        return True

    def _note_failure(self, tenant: str, blob: DueBlob, refusal: Refusal) -> None:
        gone = self._failing.note(tenant, blob, refusal)
        self._instruments.renewal("gone" if gone else "failed")

    # --- when renewing fails ---------------------------------------------------------

    async def _save(self, flusher: TenantFlusher, blobs: Sequence[DueBlob], done: Round) -> None:
        """Store elsewhere what lies in blobs that are gone, or that nothing renewed in time."""
        tenant = flusher.tenant
        for blob in blobs:
            if self._failing.is_over(tenant, blob):
                done.bundles_lost += await self._salvage.lose_bundles(tenant, blob.blob_id)
        async with flusher.turn:
            settled, found = await self._survey(flusher, blobs)
            here = [blob for blob in found.blobs if blob.is_needed]
            if settled:
                await self._drop(tenant, found)
                try:
                    for some in _in_memory([blob for blob in here if not blob.is_member]):
                        await self._move(flusher, found, some, done)
                    here = [blob for blob in here if blob.is_member]
                except Refusal as refusal:
                    _log.warning("tenant %s: %s", tenant, refusal.message)
        # What could not be moved, the journal takes back while it can be read.
        await self._store_again(flusher, {one.owner for b in here for one in b.alive}, done)

    async def _move(
        self, flusher: TenantFlusher, found: Survey, chosen: Sequence[Surveyed], done: Round
    ) -> list[tuple[DueBlob, Refusal]]:
        """Move what is needed of blobs; what cannot be read is lost, and stored again if possible.

        Returns the blobs that are not there any more, or not as they were, and what is wrong.
        """
        tenant = flusher.tenant
        wanted = [one for blob in chosen for one in blob.alive]
        lost = await self._salvage.move(flusher, found, chosen)
        flusher.flush_soon()
        holes = await self._salvage.lose(tenant, wanted, lost)
        dead = [one.location.sha256 for blob in chosen for one in blob.dead]
        await self._database.transact(lambda batch: lifetimes.drop(batch.connection, tenant, dead))
        if holes:
            await self._store_again(flusher, holes, done)
        damaged: list[tuple[DueBlob, Refusal]] = []
        for blob in chosen:
            self._unlike.discard(blob.blob.blob_id)
            problem = next((lost[h] for m in blob.alive if (h := m.location.sha256) in lost), None)
            if problem is not None:
                damaged.append((blob.blob, problem))
            else:
                self._failing.forget(tenant, blob.blob.blob_id)
        return damaged

    async def _store_again(
        self, flusher: TenantFlusher, segments: Collection[bytes], done: Round
    ) -> None:
        """Let what needs some segments be stored again by the next flush, while there is room."""
        before = done.stored_again, done.lost
        limit = self._settings.soft_limit_bytes
        await self._salvage.store_again(
            flusher.tenant, segments, done, lambda: flusher.backlog.size_bytes < limit
        )
        self._instruments.stored_again(done.stored_again - before[0])
        self._instruments.lost(done.lost - before[1])
        if done.stored_again > before[0]:
            await flusher.count_backlog()
            flusher.flush_soon()

    async def _mend(self, tenant: str) -> bool:
        """Replace the newest catalog if runs of it cannot be read; return whether that went well.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        flusher = self._flusher(tenant)
        try:
            async with flusher.turn:
                await self._survey(flusher, ())
        except Refusal as refusal:
            if refusal.reason is Reason.JOURNAL_UNAVAILABLE:
                raise
            _log.warning("tenant %s: its catalog is not replaced: %s", tenant, refusal.message)
            return False
        self._damaged.discard(tenant)
        return True

    async def _clean_up(self, tenant: str) -> None:
        """Forget blobs that have lapsed, once it is certain, and failures of what is not due."""
        now_us = self._clock_us()
        before_us = now_us - (self._epochs.length_us or 0)
        await self._database.transact(
            lambda batch: lifetimes.drop_expired(batch.connection, tenant, before_us)
        )
        due = {blob.blob_id for blob in await self._due(tenant, ROUND_BLOBS, None, ())}
        self._failing.keep_only(tenant, due)

    def _readings(self) -> Iterable[LifetimeReading]:
        now_us = self._clock_us()
        for tenant, expire_us in list(self._earliest.items()):
            left_s = None if expire_us is None else (expire_us - now_us) / 1e6
            yield LifetimeReading(tenant, self.failing(tenant), left_s)


def _in_memory(blobs: Iterable[Surveyed]) -> Iterable[list[Surveyed]]:
    """Yield blobs in lists whose needed members fit into memory."""
    return sliced(blobs, lambda blob: blob.alive_bytes, _MOVED_BYTES, BATCH)
