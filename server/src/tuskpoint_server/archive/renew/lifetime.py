"""Keeps needed members in the blob store: checks at intervals for blobs that are due.

Each check renews the blobs that may expire within the margin, and the blobs whose end is unknown. A
blob that was stored in the newest known epoch gains nothing from a renewal, unless the next epoch
has started unnoticed: of such blobs one is tried at a time. Failures are reported (log, metrics,
status) and retried; if half the margin is left, or the blob is gone, its members are stored
elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from ...blobs.api import BlobStore, gather_all
from ...blobs.cache import origin
from ...core.errors import Reason, Refusal
from ...core.pacing import pause
from ...journal.failpoints import failpoint
from ...journal.lease import LeaseLostError
from ..flush.flusher import FlushTrouble, TenantFlusher
from ..flush.one_flush import ArchiveParts
from ..read.read import DAMAGE, read_each, slice_items
from ..rows import gaps, lifetimes, losses, status
from ..rows.lifetimes import DueBlob
from .epochs import FIRST_RETRY_S, EpochClock, FailingBlobs
from .lost_segments import look_again
from .repair import Repair, Round, Survey, SurveyedBlob, survey

_log = logging.getLogger(__name__)

BATCH = 256  # blobs that are handled together

ROUND_BLOBS = 1024  # most blobs of one round; if more are due, the next round follows at once

SHORTEST_PAUSE_S = 0.05
ROUNDS_PER_EPOCH = 8
_OF_JOURNAL = (Reason.JOURNAL_UNAVAILABLE, Reason.OUTCOME_UNKNOWN)
_READS = 2  # failed reads in a row after which a member is lost: one answer may be cut short


@dataclass(eq=False)
class Lifetime:
    """Renews the blobs of all tenants; a cache may be in front of the store."""

    _parts: ArchiveParts
    _blobs: BlobStore
    _epochs: EpochClock
    _flusher: Callable[[str], TenantFlusher]

    def __post_init__(self) -> None:
        self.repair = Repair(self._parts, self._blobs)
        epoch_us = self._epochs.length_us or 0
        self._margin_us = self._parts.settings.renew_margin_epochs * epoch_us
        pause_s = self._parts.settings.renew_interval_s
        self.failing = FailingBlobs(self._parts.clock_us, self._margin_us, epoch_us, pause_s)
        self._fallen: FlushTrouble | None = None
        self._unlike: set[str] = set()
        self._damaged: set[str] = set()
        self._lost: set[str] = set()
        self._lacking: set[str] = set()  # tenants with lost segments
        self._earliest: dict[str, int | None] = {}
        self._reckoned_us: int | None = None
        # Half of the store's concurrent puts: the other half remains for flushes.
        self._gate = asyncio.Semaphore(max(1, self._blobs.limits.puts_at_once // 2))
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._parts.instruments.gauge(
            "tuskpoint.archive.expiry",
            "s",
            "Time to the earliest expiry of a blob that is needed.",
            lambda: (
                (tenant, (expire_us - self._parts.clock_us()) / 1e6)
                for tenant, expire_us in [*self._earliest.items()]
                if expire_us is not None
            ),
        )
        self._parts.instruments.gauge(
            "tuskpoint.archive.renewals.failing",
            "{blob}",
            "Blobs that are due for renewal and whose last renewal failed.",
            lambda: ((tenant, self.failing.count(tenant)) for tenant in [*self._earliest]),
        )

    async def start(self) -> None:
        """Load the epochs that the journal has seen, and start to check."""
        # Another server may have renewed the blobs since the last stop.
        self.failing.clear()
        self._earliest.clear()
        self._reckoned_us = None
        for epoch, at_us in await self._parts.database.query(lifetimes.observations):
            self._epochs.observe(epoch, at_us)
        self._epochs.fallen = None  # the fall of the epoch was handled when it was seen
        self._lost |= await self._parts.database.query(losses.tenants)
        loop = asyncio.get_running_loop()
        self._epochs.on_new_epoch = partial(loop.call_soon_threadsafe, self._wake.set)
        self._task = asyncio.create_task(self._run(), name="lifetime")

    async def stop(self) -> None:
        """Stop; interrupted work is repeated after the next start."""
        self._epochs.on_new_epoch = lambda: None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def damaged(self, tenant: str) -> None:
        """Note that a flush could not read stored bytes, and check at once."""
        self._damaged.add(tenant)
        self._wake.set()

    def lost(self, tenant: str) -> None:
        """Note that the store lost blobs of a tenant, to store again what the journal has."""
        self._lost.add(tenant)
        self._wake.set()

    async def check_now(self) -> Round:
        """Store all due blobs again, also those that failed a moment ago."""
        return await self._round(patient=False)

    def trouble(self, tenant: str) -> FlushTrouble | None:
        """Return the last failure among the failing blobs, or the notice of a new network."""
        return self.failing.trouble(tenant) or self._fallen

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            pause_s: float | None = FIRST_RETRY_S
            try:
                done = await self._round(patient=True)
                pause_s = 0.0 if done.more else self._pause_s()
            except LeaseLostError:
                return
            except Refusal as refusal:
                _log.warning("the check for expiring blobs is delayed: %s", refusal)
            except Exception:  # noqa: BLE001 - a defect must not end the looking; it is repeated
                _log.exception("the check for expiring blobs failed")
            await pause(pause_s, self._wake)

    def _pause_s(self) -> float | None:
        """Return the seconds to the next check; `None`: wait until something is damaged."""
        waits = self.failing.pauses_s()
        if self._damaged or self._lost:
            waits.append(FIRST_RETRY_S)
        if self._lacking:
            waits.append(gaps.RETRY_US / 1e6)
        if self._epochs.length_us is not None:
            per_epoch_s = self._epochs.length_us / 1e6 / ROUNDS_PER_EPOCH
            waits += [self._parts.settings.renew_interval_s, per_epoch_s]
        return max(min(waits), SHORTEST_PAUSE_S) if waits else None

    async def _round(self, *, patient: bool) -> Round:
        async with self._turn:
            done = Round()
            await self._follow_epochs()
            for tenant in await self._parts.database.query(status.catalog_tenants):
                if tenant in self._damaged:
                    try:
                        await self._take(tenant, (), done)  # replace runs that cannot be read
                    except Refusal as refusal:
                        if refusal.reason in _OF_JOURNAL:
                            raise
                        _log.warning("tenant %s: its catalog is not replaced: %s", tenant, refusal)
                        continue
                    self._damaged.discard(tenant)
                if tenant in self._lost:
                    await self._parts.lease.transact(partial(losses.note, tenant=tenant))
                    if await self._replace_lost(tenant):
                        await self._parts.lease.transact(partial(losses.forget, tenant=tenant))
                        self._lost.discard(tenant)
                await self._look_for_lost(tenant)
                if self._epochs.length_us is None:
                    continue
                await self._keep(tenant, done, patient=patient)
                # Forget blobs that have certainly expired, and failures of blobs that are no longer
                # due.
                before_us = self._parts.clock_us() - self._epochs.length_us
                await self._parts.lease.transact(
                    partial(lifetimes.drop_expired, tenant=tenant, before_us=before_us)
                )
                due = await self._due(tenant, ROUND_BLOBS, None, ())
                self.failing.keep_only(tenant, {blob.blob_id for blob in due})
                self._earliest[tenant] = await self._parts.database.query(
                    partial(lifetimes.earliest_expiry, tenant=tenant)
                )
            if not self.failing.pauses_s() and not done.waits:
                self._fallen = None
            return done

    async def _look_for_lost(self, tenant: str) -> None:
        arguments = (self._flusher(tenant), self._parts.database, self._parts.lease, self._blobs)
        try:
            lacks = await look_again(*arguments, self._parts.clock_us())
        except Refusal as refusal:
            if refusal.reason in _OF_JOURNAL:
                raise
            _log.warning("tenant %s: lost segments are not looked for yet: %s", tenant, refusal)
            lacks = True
        (self._lacking.add if lacks else self._lacking.discard)(tenant)

    async def _replace_lost(self, tenant: str) -> bool:
        """Read every needed member from the store, and store missing members again.

        The bytes come from the cache or the journal; a member that neither has becomes a gap. At
        the end a new catalog is stored. Returns false if a part of the work has to wait.
        """
        flusher, done = self._flusher(tenant), Round()
        try:
            recorded = (await self._parts.database.query(lifetimes.all_blobs)).get(tenant, [])
            for batch in slice_items(recorded, lambda _: 0, 1, BATCH):
                async with flusher.turn:
                    settled, report = await self._survey(flusher, batch)
                    if not settled:
                        return False
                    broken = [blob for blob in report.blobs if await self._is_broken(blob)]
                    for blob in broken:
                        await self.repair.lose_bundles(tenant, blob.blob.blob_id)
                    movable = [blob for blob in broken if not blob.is_member]
                    await self._move(flusher, report, movable, done)
                segments = {
                    member.owner for blob in broken if blob.is_member for member in blob.alive
                }
                await self.repair.store_again(flusher, segments, done)
        except Refusal as refusal:
            if refusal.reason is Reason.JOURNAL_UNAVAILABLE:
                raise
            _log.warning("tenant %s: lost blobs are not stored again yet: %s", tenant, refusal)
            return False
        if not done.waits:
            flusher.flush.renew_root()
            flusher.flush_soon()
        return not done.waits

    async def _is_broken(self, blob: SurveyedBlob) -> bool:
        """Return whether the store itself, without the cache, lacks a needed member of a blob."""
        contents = await read_each(origin(self._blobs), [member.location for member in blob.alive])
        return any(isinstance(content, Refusal) for content in contents)

    async def _follow_epochs(self) -> None:
        """Update the journal's times of expiry with the clock's newer bounds.

        After the epoch has fallen, every blob is renewed, because the network is a new one.
        """
        if self._epochs.fallen is not None:
            old_epoch, new_epoch = self._epochs.fallen
            self._epochs.fallen = None
            problem = (
                f"the epoch of the blob store fell from {old_epoch} to {new_epoch}: the network "
                "was wiped, or the endpoints belong to another one. If that was not intended, "
                "correct the endpoints; the server stores again what it still has"
            )
            _log.error("%s", problem)
            self._fallen = FlushTrouble(problem, self._parts.clock_us())
            await self._parts.lease.transact(lifetimes.forget_ends)
            self.failing.clear()
        origin_us, length_us = self._epochs.expire_us(0), self._epochs.length_us
        if origin_us is None or length_us is None:
            return
        reckoned_us = self._reckoned_us
        if reckoned_us is None or not 0 <= origin_us - reckoned_us < length_us // 100:
            reckon = partial(lifetimes.reckon, origin_us=origin_us, length_us=length_us)
            await self._parts.lease.transact(reckon)
            self._reckoned_us = origin_us

    async def _keep(self, tenant: str, done: Round, *, patient: bool) -> None:
        """Renew blobs that gain from it; then test whether an epoch has started unnoticed."""
        passed = self.failing.waiting(tenant) if patient else set()
        count = 0
        while True:
            epoch = self._epochs.epoch_at(self._parts.clock_us())
            gains_below = None if epoch is None else epoch + self._epochs.epochs
            batch = await self._due(tenant, BATCH, gains_below, passed)
            probing = not batch
            if probing:
                batch = await self._due(tenant, 1, None, passed)
            if not batch:
                return
            if count >= ROUND_BLOBS:
                done.more = True
                return
            count += len(batch)
            passed.update(blob.blob_id for blob in batch)
            failed_before, gone_before = done.failed, done.gone
            try:
                await self._take(tenant, batch, done)
            except Refusal as refusal:
                if refusal.reason in _OF_JOURNAL:
                    raise
                for blob in batch:
                    self._note_failure(tenant, blob, refusal, done)
            failed = done.failed - failed_before
            if probing and (failed or self._epochs.epoch_at(self._parts.clock_us()) == epoch):
                return
            if failed == BATCH and done.gone == gone_before:
                # the whole batch failed, so the store accepts nothing; single failures do not end
                # the loop
                return

    async def _due(
        self, tenant: str, limit: int, below_epoch: int | None, passed: Collection[str]
    ) -> list[DueBlob]:
        before_us = self._parts.clock_us() + self._margin_us
        return await self._parts.database.query(
            lambda connection: lifetimes.read_due_blobs(
                connection, tenant, before_us, limit, below_epoch=below_epoch, passed=passed
            )
        )

    async def _take(self, tenant: str, batch: Sequence[DueBlob], done: Round) -> None:
        flusher = self._flusher(tenant)
        async with flusher.turn:
            settled, report = await self._survey(flusher, batch)
            needed = [blob for blob in report.blobs if blob.is_needed]
            leaving = [
                blob for blob in needed if blob.of_ended and not self.failing.is_late(blob.blob)
            ]
            dense: list[SurveyedBlob] = []
            if settled:
                dense = self._dense([blob for blob in needed if blob not in leaving])
                dense += [blob.without_ended() for blob in leaving if not blob.is_member]
                for blob, refusal in await self._move(flusher, report, dense, done):
                    self._note_failure(tenant, blob, refusal, done)
        # segments of deleted threads expire with their blob once no other thread needs them
        if leaving:
            ended_segments = set().union(*(blob.of_ended for blob in leaving))
            await self.repair.store_again(flusher, ended_segments, done)
        whole = [blob.blob for blob in needed if blob not in dense and blob not in leaving]
        renewed = await gather_all(self._renew(tenant, blob, done) for blob in whole)
        endangered = [
            blob
            for blob, is_renewed in zip(whole, renewed, strict=True)
            if not is_renewed and self.failing.is_endangered(tenant, blob)
        ]
        if endangered:
            await self._save(flusher, endangered, done)

    async def _survey(
        self, flusher: TenantFlusher, batch: Sequence[DueBlob]
    ) -> tuple[bool, Survey]:
        """Return whether no pack is in flight, and the needed members of blobs.

        Unreadable runs are replaced first. Blobs without needed members are forgotten, so that they
        expire. The caller holds the flusher's turn.
        """
        tenant = flusher.tenant
        settled = True
        try:
            await flusher.flush.settle()
        except Refusal as refusal:
            if refusal.reason in _OF_JOURNAL:
                raise
            settled = False
        for attempt in range(_READS + 1):
            try:
                report = await survey(self._parts.database, self._blobs, tenant, batch)
                break
            except Refusal as refusal:
                if refusal.reason not in DAMAGE or not settled or attempt == _READS:
                    raise
                _log.error("tenant %s: a run cannot be read: %s", tenant, refusal.message)
            if attempt == _READS - 1:
                await self.repair.rebuild(flusher)
                flusher.flush_soon()
        unneeded = [blob for blob in report.blobs if settled and not blob.is_needed]
        hashes = [member.location.sha256 for blob in unneeded for member in blob.dead]
        if hashes:
            await self._parts.lease.transact(partial(lifetimes.drop, tenant=tenant, hashes=hashes))
        for blob in unneeded:
            self.failing.forget(tenant, blob.blob.blob_id)
        return settled, report

    def _dense(self, needed: Sequence[SurveyedBlob]) -> list[SurveyedBlob]:
        movable = [blob for blob in needed if not blob.is_member]
        dense = [blob for blob in movable if blob.is_sparse or blob.blob.blob_id in self._unlike]
        capacity = self._blobs.limits.max_put_bytes or 0
        small = [blob for blob in movable if blob not in dense and 2 * blob.alive_bytes < capacity]
        # Each blob is billed for a multiple of its content, so small blobs are joined into one.
        return dense + small if len(dense) + len(small) > 1 else dense

    async def _renew(self, tenant: str, blob: DueBlob, done: Round) -> bool:
        """Renew a blob; return whether the store accepted the renewal."""
        try:
            async with self._gate:
                receipt = await self._blobs.renew(blob.blob_id)
        except Refusal as refusal:
            self._note_failure(tenant, blob, refusal, done)
            return False
        failpoint("archive.after_renewal")
        await self._parts.runner.record(tenant, receipt)
        done.renewed += 1
        self.failing.forget(tenant, blob.blob_id)
        if any(stored.blob_id != blob.blob_id for stored in receipt.blobs):
            # the renewed blob has another ID, so its members must be moved there
            self._unlike.add(blob.blob_id)
            self._wake.set()
        unchanged = [stored.end_epoch for stored in receipt.blobs] == [blob.end_epoch]
        outcome = "unchanged" if unchanged else "renewed"
        self._parts.instruments.renewals.add(1, {"outcome": outcome})
        return True

    def _note_failure(self, tenant: str, blob: DueBlob, refusal: Refusal, done: Round) -> None:
        gone = self.failing.note(tenant, blob, refusal)
        done.failed += 1
        done.gone += gone
        self._parts.instruments.renewals.add(1, {"outcome": "gone" if gone else "failed"})

    async def _save(self, flusher: TenantFlusher, blobs: Sequence[DueBlob], done: Round) -> None:
        """Move the members of blobs that are gone, or that could not be renewed in time."""
        tenant = flusher.tenant
        for blob in blobs:
            if self.failing.is_over(tenant, blob):
                done.bundles_lost += await self.repair.lose_bundles(tenant, blob.blob_id)
        async with flusher.turn:
            settled, report = await self._survey(flusher, blobs)
            needed = [blob for blob in report.blobs if blob.is_needed]
            if settled:
                try:
                    await self._move(
                        flusher, report, [blob for blob in needed if not blob.is_member], done
                    )
                    needed = [blob for blob in needed if blob.is_member]
                except Refusal as refusal:
                    _log.warning("tenant %s: %s", tenant, refusal.message)
        # Checkpoints that cannot be moved are restored to the journal while they can be read.
        segments = {member.owner for blob in needed for member in blob.alive}
        await self.repair.store_again(flusher, segments, done)

    async def _move(
        self, flusher: TenantFlusher, report: Survey, blobs: Sequence[SurveyedBlob], done: Round
    ) -> list[tuple[DueBlob, Refusal]]:
        """Move the needed members of blobs; return blobs with unreadable members, and why."""
        lost = await self.repair.move(flusher, report, blobs, done)
        damaged: list[tuple[DueBlob, Refusal]] = []
        for blob in blobs:
            self._unlike.discard(blob.blob.blob_id)
            problems = [
                lost[sha256] for member in blob.alive if (sha256 := member.location.sha256) in lost
            ]
            if problems:
                damaged.append((blob.blob, problems[0]))
            else:
                self.failing.forget(flusher.tenant, blob.blob.blob_id)
        return damaged
