"""Renewing what is still needed before it expires.

A renewal stores identical bytes again, so that they last as long as what is stored now.
Every blob that may expire within the margin and that something live needs is renewed;
whatever else was stored lapses. A blob that was stored in the epoch that was last seen
gains nothing, unless the next epoch has begun unseen: of those, one is tried at a time.

A renewal that fails is told (log, metrics, status) and tried again. If half the margin is
left, or the blob is gone, what lies only there goes back to the journal while it can
still be read, and is stored anew. A bundle of a hand-off cannot be: once its blob is gone
and past its end, it is given up and told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from opentelemetry.metrics import MeterProvider

from ..blobs.api import BlobStore, Receipt
from ..domain.errors import Reason, Refusal
from ..domain.failpoints import failpoint
from ..journal import archive_blobs
from ..journal.archive_blobs import DueBlob
from .epochs import EpochClock
from .flusher import Trouble
from .ports import ArchiveJournal
from .rehydration import Rehydration
from .renewal_telemetry import RenewalInstruments, RenewalReading
from .settings import ArchiveSettings

_log = logging.getLogger(__name__)

BATCH = 64
"""Blobs that one look at the journal brings."""
ROUND_BLOBS = 1024
"""Blobs that one round takes up; another follows at once if more are due."""
FIRST_RETRY_S = 30.0
SHORTEST_PAUSE_S = 0.05
ROUNDS_PER_EPOCH = 8


@dataclass(frozen=True, slots=True)
class Failure:
    """A needed blob whose renewal fails.

    Attributes:
        since_us: Time of the first failure.
        retry_us: Time of the next attempt.
        attempts: Failures in a row.
        expire_us: Earliest time at which it may expire; `None` if that is not known.
        gone: The store does not have it any more.
        problem: What went wrong, for people.
        at_us: Time of the last failure.
    """

    since_us: int
    retry_us: int
    attempts: int
    expire_us: int | None
    gone: bool
    problem: str
    at_us: int


@dataclass(slots=True)
class Round:
    """What a round did: numbers of blobs, of checkpoints rehydrated and lost, of bundles."""

    renewed: int = 0
    failed: int = 0
    lapsed: int = 0
    rehydrated: int = 0
    lost: int = 0
    bundles_lost: int = 0
    more: bool = False


class Renewer:
    """Renews the blobs of all tenants.

    Args:
        journal: Knows what is stored and needed.
        blobs: The store; reads may come from its cache.
        epochs: What is known of the store's epochs.
        settings: Settings.
        clock_us: Microseconds since the epoch.
        changed: Called with a tenant of which something waits for a flush.
        meters: Where to measure; OpenTelemetry's global provider if none is given.
    """

    def __init__(
        self,
        journal: ArchiveJournal,
        blobs: BlobStore,
        epochs: EpochClock,
        settings: ArchiveSettings,
        clock_us: Callable[[], int],
        changed: Callable[[str], None],
        meters: MeterProvider | None = None,
    ) -> None:
        self._journal = journal
        self._blobs = blobs
        self._epochs = epochs
        self._settings = settings
        self._clock_us = clock_us
        self._changed = changed
        self._instruments = RenewalInstruments(self._readings, meters)
        self._rehydration = Rehydration(journal, blobs, clock_us, self._instruments)
        self._failing: dict[tuple[str, str], Failure] = {}
        self._earliest: dict[str, int | None] = {}
        self._reckoned_us: int | None = None
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take up what the journal knows of epochs, and begin to renew."""
        if self._epochs.length_us is None:
            return
        for epoch, at_us in await self._journal.query(archive_blobs.observations):
            self._epochs.observe(epoch, at_us)
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._wake.set)

        self._epochs.on_new_epoch = wake
        self._task = asyncio.create_task(self._run(), name="renewal")

    async def stop(self) -> None:
        """Stop; a renewal that is cut off is repeated after the next start."""
        self._epochs.on_new_epoch = lambda: None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def renew_now(self) -> Round:
        """Renew whatever is due, also what failed a moment ago.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        return await self._round(patient=False)

    def failing(self, tenant: str) -> int:
        """Return the number of blobs that are due and whose last renewal failed."""
        return sum(1 for of, _ in list(self._failing) if of == tenant)

    def trouble(self, tenant: str) -> Trouble | None:
        """Return the last failure among the blobs that still fail."""
        mine = (failure for (of, _), failure in self._failing.items() if of == tenant)
        last = max(mine, key=lambda failure: failure.at_us, default=None)
        return None if last is None else Trouble(last.problem, last.at_us)

    # --- the loop --------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            pause_s = FIRST_RETRY_S
            try:
                done = await self._round(patient=True)
                pause_s = 0.0 if done.more else self._pause_s()
            except Refusal as refusal:
                _log.warning("renewal waits: %s", refusal)
            except Exception:  # noqa: BLE001 - a defect must not end renewal; it is told and retried
                _log.exception("a round of renewals failed")
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _pause_s(self) -> float:
        epoch_s = (self._epochs.length_us or 0) / 1e6
        pause = min(self._settings.renew_interval_s, epoch_s / ROUNDS_PER_EPOCH)
        retries = [failure.retry_us for failure in self._failing.values()]
        if retries:
            pause = min(pause, (min(retries) - self._clock_us()) / 1e6)
        return max(pause, SHORTEST_PAUSE_S)

    async def _round(self, *, patient: bool) -> Round:
        async with self._turn:
            done = Round()
            if self._epochs.length_us is None:
                return done
            await self._reckon()
            for tenant in await self._journal.query(archive_blobs.tenants):
                await self._renew_tenant(tenant, done, patient=patient)
                await self._rehydrate_tenant(tenant, done)
                await self._review_failures(tenant)
                done.lapsed += await self._clean_up(tenant)
                self._earliest[tenant] = await self._journal.query(
                    partial(archive_blobs.earliest_expiry, tenant=tenant)
                )
            return done

    async def _reckon(self) -> None:
        """Bring the journal's times of expiry up to what the clock has learnt since."""
        origin_us, length_us = self._epochs.expire_us(0), self._epochs.length_us
        if origin_us is None or length_us is None:
            return
        told = self._reckoned_us
        if told is not None and told <= origin_us < told + length_us // 100:
            return
        await self._journal.transact(
            lambda connection: archive_blobs.reckon(connection, origin_us, length_us)
        )
        self._reckoned_us = origin_us

    # --- renewing --------------------------------------------------------------------

    @property
    def _margin_us(self) -> int:
        return self._settings.renew_margin_epochs * (self._epochs.length_us or 0)

    async def _renew_tenant(self, tenant: str, done: Round, *, patient: bool) -> None:
        """Renew what gains by it; then try whether an epoch has begun unseen."""
        passed = self._waiting(tenant) if patient else set()
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
            renewed = sum(await self._renew_all(tenant, batch))
            passed.update(blob.blob_id for blob in batch)
            done.renewed += renewed
            done.failed += len(batch) - renewed
            if probing and (not renewed or self._epochs.epoch_at(self._clock_us()) == epoch):
                return
            if not renewed and len(batch) == BATCH and not self._any_gone(tenant, batch):
                return  # the store takes nothing now; single blobs that fail stop nobody

    async def _due(
        self, tenant: str, limit: int, below_epoch: int | None, passed: Iterable[str]
    ) -> list[DueBlob]:
        before_us = self._clock_us() + self._margin_us
        names = sorted(passed)
        return await self._journal.query(
            lambda connection: archive_blobs.due(
                connection, tenant, before_us, limit, below_epoch=below_epoch, passed=names
            )
        )

    def _any_gone(self, tenant: str, batch: Iterable[DueBlob]) -> bool:
        failures = (self._failing.get((tenant, blob.blob_id)) for blob in batch)
        return any(failure is not None and failure.gone for failure in failures)

    def _waiting(self, tenant: str) -> set[str]:
        """Return the blobs whose next attempt is not due yet."""
        now_us = self._clock_us()
        return {
            blob_id
            for (of, blob_id), failure in self._failing.items()
            if of == tenant and failure.retry_us > now_us
        }

    async def _renew_all(self, tenant: str, batch: Sequence[DueBlob]) -> list[bool]:
        # Half of what the store takes at once: flushes must get through.
        gate = asyncio.Semaphore(max(1, self._blobs.limits.puts_at_once // 2))

        async def one(blob: DueBlob) -> bool:
            async with gate:
                return await self._renew(tenant, blob)

        outcomes = await asyncio.gather(*(one(blob) for blob in batch), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome is True for outcome in outcomes]

    async def _renew(self, tenant: str, blob: DueBlob) -> bool:
        """Renew a blob; true if the store took it."""
        try:
            receipt = await self._blobs.renew(blob.blob_id)
        except Refusal as refusal:
            self._note_failure(tenant, blob, refusal)
            return False
        failpoint("archive.after_renewal")
        await self._record(tenant, blob.blob_id, receipt)
        self._failing.pop((tenant, blob.blob_id), None)
        ends = [stored.end_epoch for stored in receipt.blobs]
        self._instruments.renewal("unchanged" if ends == [blob.end_epoch] else "renewed")
        return True

    async def _record(self, tenant: str, blob_id: str, receipt: Receipt) -> None:
        now_us = self._clock_us()

        def record(connection: Any) -> None:
            archive_blobs.move(connection, tenant, blob_id, receipt.locations)
            archive_blobs.record(
                connection,
                tenant,
                receipt.blobs,
                now_us,
                lambda stored: self._epochs.stored(stored, now_us),
            )

        await self._journal.transact(record)

    def _note_failure(self, tenant: str, blob: DueBlob, refusal: Refusal) -> None:
        now_us = self._clock_us()
        before = self._failing.get((tenant, blob.blob_id))
        attempts = before.attempts + 1 if before else 1
        pause_s = min(self._settings.renew_interval_s, FIRST_RETRY_S * 2 ** min(attempts - 1, 20))
        gone = refusal.reason is Reason.BLOB_NOT_FOUND
        left = "unknown"
        if blob.expire_us is not None:
            left = f"{max(0, blob.expire_us - now_us) // 1_000_000} s"
        problem = f"blob {blob.blob_id} is not renewed, time left: {left}: {refusal.message}"
        self._failing[tenant, blob.blob_id] = Failure(
            since_us=before.since_us if before else now_us,
            retry_us=now_us + round(pause_s * 1e6),
            attempts=attempts,
            expire_us=blob.expire_us,
            gone=gone,
            problem=problem,
            at_us=now_us,
        )
        self._instruments.renewal("gone" if gone else "failed")
        _log.warning("tenant %s: %s", tenant, problem)

    # --- when renewing fails ---------------------------------------------------------

    async def _rehydrate_tenant(self, tenant: str, done: Round) -> None:
        """Save what lies in blobs that are gone, or that nothing renewed in time."""
        if not self.failing(tenant):
            return
        for blob_id in await self._endangered(tenant):
            if self._is_lost(tenant, blob_id):
                done.bundles_lost += await self._rehydration.forget_bundles(tenant, blob_id)
            outcome = await self._rehydration.rehydrate(tenant, blob_id)
            done.rehydrated += outcome.stored_anew
            done.lost += outcome.lost
            if outcome.changed:
                self._changed(tenant)
            needed = await self._journal.query(
                partial(archive_blobs.is_needed, tenant=tenant, blob_id=blob_id)
            )
            if not needed:
                self._failing.pop((tenant, blob_id), None)

    def _is_lost(self, tenant: str, blob_id: str) -> bool:
        """Tell whether the store does not have a blob, and should not have it any more.

        One that should still last may be there again tomorrow: the wrong network may have
        been asked for it.
        """
        failure = self._failing.get((tenant, blob_id))
        if failure is None or not failure.gone:
            return False
        end_us = failure.since_us + self._margin_us
        if failure.expire_us is not None:
            end_us = failure.expire_us
        return end_us <= self._clock_us()

    async def _review_failures(self, tenant: str) -> None:
        """Drop what nothing needs any more, and put off what this round did not get to.

        One that a flush has stored again meanwhile is not due any more.
        """
        now_us = self._clock_us()
        for (of, blob_id), failure in list(self._failing.items()):
            if of != tenant or failure.retry_us > now_us:
                continue
            needed = await self._journal.query(
                partial(archive_blobs.is_needed, tenant=tenant, blob_id=blob_id)
            )
            lasts = not failure.gone and await self._journal.query(
                partial(
                    archive_blobs.lasts,
                    tenant=tenant,
                    blob_id=blob_id,
                    beyond_us=now_us + self._margin_us,
                )
            )
            if needed and not lasts:
                retry_us = now_us + round(FIRST_RETRY_S * 1e6)
                self._failing[of, blob_id] = replace(failure, retry_us=retry_us)
            else:
                del self._failing[of, blob_id]

    async def _endangered(self, tenant: str) -> list[str]:
        soon_us = self._clock_us() + self._margin_us // 2
        expiring = await self._journal.query(
            lambda connection: archive_blobs.due(connection, tenant, soon_us, ROUND_BLOBS)
        )
        found = {blob.blob_id: None for blob in expiring if blob.expire_us is not None}
        for (of, blob_id), failure in self._failing.items():
            # Of a blob whose end is not known, half a margin of failures is too long.
            late_us = failure.since_us + self._margin_us
            if of == tenant and (failure.gone or (failure.expire_us or late_us) < soon_us):
                found[blob_id] = None
        return list(found)

    async def _clean_up(self, tenant: str) -> int:
        """Forget what has lapsed, once it is certain that it has."""
        before_us = self._clock_us() - (self._epochs.length_us or 0)
        return await self._journal.transact(
            lambda connection: archive_blobs.drop_expired(
                connection, tenant, before_us, ROUND_BLOBS
            )
        )

    def _readings(self) -> Iterable[RenewalReading]:
        now_us = self._clock_us()
        for tenant, expire_us in list(self._earliest.items()):
            left_s = None if expire_us is None else (expire_us - now_us) / 1e6
            yield RenewalReading(tenant, self.failing(tenant), left_s)
