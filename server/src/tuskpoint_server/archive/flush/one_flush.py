"""One flush: reads the dirty ranges, builds their bytes, stores them, and certifies them.

A flush that fits one put is one pack. For a larger one the segments are stored first, in concurrent
puts; the run and the catalog are built once their locations are known.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from opentelemetry.trace import Link

from ...blobs.api import BlobMember, BlobStore
from ...core.errors import Reason, Refusal
from ...core.limits import MIB
from ...core.model import BlobLocation, CheckpointKey, Value
from ...journal.database.database import Database
from ...journal.database.thread_rows import Place
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.failpoints import failpoint
from ...journal.lease import Lease
from ...keys.provider import KeyProvider
from ..archive_settings import ArchiveSettings
from ..formats.sealing import Sealer
from ..formats.stored_json import MEMBER_BYTES, Kind
from ..read.read import Segments, recorded_places
from ..read.root_keys import new_root
from ..rows import gaps, status
from ..rows.damaged_threads import DamagedThreads
from ..rows.dirty import DirtyRange
from ..telemetry import FlushInstruments, tracer
from ..verify.repair_values import Mender
from . import certify
from .assembling import Chores, FinalPut, Recorder, Work, assemble, record
from .building import BuiltSegment, build
from .catalog_repair import repair_catalog, require_catalog
from .collect import CollectedRanges, RangeBounds, collect
from .packs import Pack, PackRunner, Pointer, group_members

_log = logging.getLogger(__name__)

_SEGMENTS = (Kind.SEGMENT, Kind.PARTS, Kind.PART)
_FOR_EVER_US = (1 << 63) - 1
_KEPT_RUN_BYTES = 16 * MIB
_THREADS_PER_FLUSH = 4096


@dataclass(frozen=True, slots=True)
class FlushResult:
    """Outcome of a flush."""

    checkpoints: int = 0
    size_bytes: int = 0  # bytes of values and writes that no longer wait
    # whether everything journaled before the flush started is certified, except gaps
    complete: bool = False
    pointer_problem: str = ""  # reason why the pointer file is behind, for people; else empty
    retried: bool = False  # whether the flush retried every gap


@dataclass(frozen=True, slots=True, eq=False)
class ArchiveParts:
    """Collaborators of the flushes and renewals of all tenants; one per server."""

    database: Database
    lease: Lease
    settings: ArchiveSettings
    instruments: FlushInstruments
    clock_us: Callable[[], int]
    blobs: BlobStore  # the store itself, without a cache
    runner: PackRunner
    pointer: Pointer
    keys: KeyProvider | None


@dataclass(eq=False)
class Flush:
    """Flushes of one tenant, one at a time, to the blob store itself, without a cache."""

    _tenant: str
    _parts: ArchiveParts

    def __post_init__(self) -> None:
        self._limits = self._parts.blobs.limits
        self._segments = Segments(self._parts.blobs, 0, recorded_places(self._parts.database))
        self._mender = Mender(self._parts.database, self._segments, self._parts.instruments)
        self._bounds = _bounds(self._parts.settings, self._parts.blobs)
        self._rejected: dict[tuple[int, Place], str] = {}
        self._lone: set[int] = set()  # threads with a range that the store rejected
        self._asked_to_retry = self._retries = self._new_root = False
        self._packs: list[Pack] = []
        self._work: Work | None = None
        self._calls: Sequence[Link] = ()
        # whether the last pack was rejected: segments are stored before the next pack
        self._split = False
        self._runs: OrderedDict[bytes, bytes] = OrderedDict()
        self._pointed_to = ""
        self._newest: BlobLocation | None = None
        self._behind: BlobLocation | None = None  # the catalog that the pointer file should name
        self.damaged = DamagedThreads(self._tenant, self._parts.clock_us)

    def resume(self, pack: Pack) -> None:
        """Finish a pack of an earlier process before anything is read."""
        self._packs.append(pack)

    def forget(self) -> None:
        """Forget in-flight packs and read ranges: another server may continue with them."""
        self._packs.clear()
        self.damaged.forget()
        self._work = self._newest = self._behind = None
        self._pointed_to = ""

    def retry_gaps(self) -> None:
        """Retry gaps with the next flush."""
        self._asked_to_retry = True

    @property
    def retries_gaps(self) -> bool:
        """Whether gaps are being retried, or will be with the next flush."""
        return self._asked_to_retry or self._retries

    def renew_root(self) -> None:
        """Store a catalog with the next flush even if nothing else has to be stored."""
        self._new_root = True

    async def once(self, on_collect: Callable[[], Sequence[Link]]) -> FlushResult:
        """Finish an in-flight pack, or else flush dirty ranges.

        `on_collect` is called before the ranges are read, and returns links to the calls that made
        the changes.

        Raises:
            LeaseLostError: This server is not the leader.
        """
        self._parts.lease.require()
        if self._packs:
            return await self._finish(self._packs[0], complete=False)
        if self._work is None:
            self._calls = on_collect()
            try:
                self._work = await self._begin()
            except Refusal as refusal:
                if refusal.reason is not Reason.JOURNAL_DAMAGED or not await self.mend_catalog():
                    raise
                self._work = await self._begin()
        work = self._work
        if not any(segment.data for segment in work.built):
            recorder = await asyncio.to_thread(record, work, 0, self._parts.blobs.predict)
            if not recorder.records and not self._new_root:
                # a failed commit may have moved watermarks, so the ranges are read again
                self._work = None
                flushed = await self._move(recorder, work.taken)
                self._end(work)
                return self._settled(flushed)
        count = sum(len(dirty.places) for dirty in work.taken.ranges)
        attributes = self._about(count)
        with tracer.start_as_current_span("archive.pack", attributes=attributes, links=self._calls):
            pack = await self._pack(work)
        self._end(work)
        if pack is None:
            return FlushResult()
        self._packs.append(pack)
        self._new_root = False
        complete = work.taken.complete and not work.left_out
        flushed = await self._finish(pack, complete=complete)
        return flushed if work.left_out else self._settled(flushed)

    async def settle(self) -> None:
        """Finish the in-flight packs; ranges that were only read are read again."""
        while self._packs:
            await self._finish(self._packs[0], complete=False)
        self._work = None

    async def record(self, chores: Chores, runs: Iterable[BlobMember] = ()) -> None:
        """Certify a catalog with `chores` alone; no pack may be in flight.

        The bytes of `runs` need not be read again. If the store refuses, a spooled pack stays in
        flight.
        """
        for member in runs:
            self._keep_run(member)
        catalog = await self._parts.database.query(partial(status.catalog, tenant=self._tenant))
        work = await self._work_on(CollectedRanges(catalog), self._parts.clock_us())
        work.chores = chores
        pack = await self._pack(work)
        if pack is not None:
            self._packs.append(pack)
            await self._finish(pack, complete=False)

    def _settled(self, flushed: FlushResult) -> FlushResult:
        """Note that every gap was retried, if nothing was rejected and the flush is certified."""
        if not self._retries or self._split or flushed == FlushResult():
            return flushed
        self._retries = False
        return replace(flushed, retried=True)

    def _end(self, work: Work) -> None:
        """Forget a flush that is spooled, or that has nothing to store."""
        self._work = None
        for segment in work.built:
            for checkpoint in segment.dirty.places:
                if checkpoint.problem:  # the checkpoint is a gap from now on
                    self._rejected.pop((segment.dirty.thread.number, checkpoint.place), None)

    async def mend_catalog(self) -> bool:
        """Repair the newest catalog if it is damaged in the journal; return whether it was."""
        return await repair_catalog(
            self._parts.database, self._parts.blobs, self._parts.keys, self._tenant
        )

    async def _begin(self) -> Work:
        """Read the dirty ranges and build their segments."""
        begun_us = self._parts.clock_us()
        if self._asked_to_retry:
            self._asked_to_retry, self._retries = False, True
            self._rejected.clear()
        due_us = _FOR_EVER_US if self._retries else begun_us
        read = partial(
            collect,
            tenant=self._tenant,
            bounds=self._bounds,
            lone=None if self._parts.settings.standalone else set(self._lone),
            rejected=dict(self._rejected),
            due_us=due_us,
            doubtful=self.damaged.numbers,
        )
        collected = await self._parts.database.query(read)
        if await self._mend(collected.ranges):
            collected = await self._parts.database.query(read)
        self.damaged.look(collected.damaged)
        failpoint("archive.after_collect")
        fetched = await self._fetch_evicted(collected.ranges)
        part_bytes = min(MEMBER_BYTES, self._limits.max_member_bytes or MEMBER_BYTES)
        work = await self._work_on(collected, begun_us)
        arguments = (fetched, self._parts.database.generation, work.sealer, part_bytes)
        work.built = await asyncio.to_thread(build, collected.ranges, *arguments)
        return work

    async def _mend(self, ranges: Iterable[DirtyRange]) -> bool:
        """Repair values that are damaged in the journal; return whether a value was repaired."""
        mended = False
        for dirty in ranges:
            for place, damage in dirty.damages:
                key = CheckpointKey(dirty.thread.thread_id, *place)
                mended |= await self._mender.mend(self._tenant, key, [damage])
        return mended

    async def _work_on(self, collected: CollectedRanges, begun_us: int) -> Work:
        """Start the work of a flush, with new keys."""
        root = await new_root(self._parts.keys, self._tenant)
        return Work(collected, begun_us, Sealer(seals=self._parts.keys is not None), root)

    async def _fetch_evicted(self, ranges: Iterable[DirtyRange]) -> dict[bytes, Value]:
        """Fetch evicted values for new segments; a checkpoint without all values becomes a gap."""
        by_location: dict[BlobLocation, set[bytes]] = {}
        for dirty in ranges:
            evicted = {digest for checkpoint in dirty.places for digest in checkpoint.gone}
            for location in dirty.sources if evicted else ():
                by_location.setdefault(location, set()).update(evicted)
        values: dict[bytes, Value] = {}
        for location, digests in by_location.items():
            try:
                values.update(await self._segments.values_at([location], digests))
            except Refusal as refusal:
                if refusal.reason is Reason.BLOB_UNAVAILABLE:
                    raise
                _log.error("evicted values cannot be read: %s", refusal.message)
        return values

    async def _move(self, recorder: Recorder, collected: CollectedRanges) -> FlushResult:
        """Move watermarks over ranges with nothing to store; postpone gaps that failed again."""

        def move(batch: UnitOfWork) -> None:
            certify.move(batch, self._tenant, recorder.plan.threads)
            gaps.postpone(batch.connection, recorder.postponed, batch.now_us)
            gaps.forget(batch.connection, collected.filled)

        if recorder.plan.threads or recorder.postponed or collected.filled:
            await self._parts.lease.transact(move)
        problem = "" if self._behind is None else await self.point(self._behind)
        size_bytes = recorder.plan.size_bytes
        return FlushResult(
            size_bytes=size_bytes, complete=collected.complete, pointer_problem=problem
        )

    async def _pack(self, work: Work) -> Pack | None:
        """Spool the certifying pack, after storing what does not fit; `None`: all was rejected."""
        assembled = None
        has_segments = any(segment.data for segment in work.built)
        if not (self._parts.settings.standalone or self._split) or not has_segments:
            assembled = await self._assemble(work)
        if assembled is None or not self._fits(assembled.members):
            await self._require_newest()
            await self._store_segments(work)
            self._split = False
            assembled = await self._assemble(work)
            if not assembled.recorder.records:
                return None
            if not self._fits(assembled.members):
                for group in group_members(assembled.leaves, self._limits):
                    work.located.update(await self._parts.runner.store(self._tenant, group))
                assembled = await self._assemble(work)
        if postponed := assembled.recorder.postponed:
            await self._parts.lease.transact(
                lambda batch: gaps.postpone(batch.connection, postponed, batch.now_us)
            )
        for member in assembled.leaves:
            self._keep_run(member)
        return await self._parts.runner.begin(
            self._tenant, assembled.members, assembled.recorder.plan
        )

    async def _assemble(self, work: Work) -> FinalPut:
        identity = (self._tenant, self._parts.database.journal_id, self._parts.database.generation)
        return await assemble(work, *identity, self._parts.blobs.predict, self._fetch_run)

    def _fits(self, members: Iterable[BlobMember]) -> bool:
        return self._limits.hold([len(member.data) for member in members])

    async def _store_segments(self, work: Work) -> None:
        """Store segments in separate puts; rejected segments leave the flush."""

        def locate(sha256: bytes, _size: int) -> BlobLocation:
            return work.located[sha256]

        whole = [(piece, segment) for segment in work.built for piece in segment.pieces]
        await self._store_groups(work, whole)
        in_parts = [segment for segment in work.built if segment.parts]
        await self._store_groups(work, [(segment.named(locate), segment) for segment in in_parts])

    async def _store_groups(
        self, work: Work, members: Iterable[tuple[BlobMember, BuiltSegment]]
    ) -> None:
        """Store members of segments in concurrent groups; raise the first failure at the end."""
        owners: dict[bytes, list[BuiltSegment]] = {}
        waiting: dict[bytes, BlobMember] = {}
        for member, segment in members:
            owners.setdefault(member.sha256, []).append(segment)
            if member.sha256 not in work.located:
                waiting[member.sha256] = member
        groups = await asyncio.to_thread(group_members, waiting.values(), self._limits)
        outcomes = await asyncio.gather(
            *(self._store_group(work, group, owners) for group in groups), return_exceptions=True
        )
        failpoint("archive.after_settled")
        for failure in [outcome for outcome in outcomes if outcome is not None]:
            raise failure

    async def _store_group(
        self,
        work: Work,
        group: Sequence[BlobMember],
        owners: Mapping[bytes, Sequence[BuiltSegment]],
    ) -> None:
        """Store a group; if it is rejected, store its halves, down to single members."""
        try:
            locations = await self._parts.runner.store(
                self._tenant, group, standalone=self._parts.settings.standalone
            )
        except Refusal as refusal:
            if refusal.reason is not Reason.BLOB_REJECTED:
                raise
            if len(group) > 1:
                half = len(group) // 2
                await self._store_group(work, group[:half], owners)
                await self._store_group(work, group[half:], owners)
                return
            for segment in owners[group[0].sha256]:
                self._leave_out(work, segment, refusal.message)
            return
        work.located.update(locations)

    def _leave_out(self, work: Work, segment: BuiltSegment, reason: str) -> None:
        """Take out a rejected segment; the checkpoints of its thread are stored alone next."""
        number = segment.dirty.thread.number
        if len(segment.places) == 1:
            self._rejected[number, segment.places[0].place] = reason
        else:
            self._lone.add(number)
        work.left_out = True
        # Rows in a range, and records about it, keep the thread's watermark from moving.
        work.built = [
            built
            for built in work.built
            if built.dirty.thread.number != number or (built.dirty.gap and built is not segment)
        ]

    def _end_pack(self, pack: Pack) -> None:
        """Take out a pack that is no longer in flight, unless `forget` has done so meanwhile."""
        if pack in self._packs:
            self._packs.remove(pack)

    async def _finish(self, pack: Pack, *, complete: bool) -> FlushResult:
        attributes = self._about(pack.plan.checkpoints)
        with tracer.start_as_current_span(
            "archive.flush", attributes=attributes, links=self._calls
        ):
            try:
                catalog = await self._parts.runner.finish(pack, self._require_newest)
            except Refusal as refusal:
                if refusal.reason is not Reason.BLOB_REJECTED:
                    raise
                await self._parts.runner.abandon(pack)
                self._end_pack(pack)
                if not any(member.kind in _SEGMENTS for member in pack.members):
                    raise
                self._split = True
                return FlushResult()
        self._end_pack(pack)
        self._newest = catalog
        if catalog is None:
            return FlushResult()
        self._lone.difference_update(thread.number for thread in pack.plan.threads)
        # If everything else is lost, this log line names the catalog to recover from.
        fields = (self._tenant, pack.plan.checkpoints, catalog.blob_id)
        _log.info("tenant %s: %d checkpoints certified, catalog %s", *fields)
        problem = await self.point(catalog)
        failpoint("archive.after_pointer")
        await self._parts.runner.discard_spooled(pack)
        seconds = (self._parts.clock_us() - pack.plan.begun_us) / 1e6
        self._parts.instruments.flushes.record(max(0.0, seconds), {"tenant": self._tenant})
        self._parts.instruments.certified.add(pack.plan.checkpoints, {"tenant": self._tenant})
        return FlushResult(pack.plan.checkpoints, pack.plan.size_bytes, complete, problem)

    async def _require_newest(self) -> None:
        """Refuse to certify in a store that does not have the newest catalog.

        The new catalog would lead to missing blobs. Where blobs expire, the catalog may be gone
        because it expired; `lifetime` then stores again what is needed.

        Raises:
            StoreLostError: The store does not have the newest catalog.
            Refusal: The store cannot be used.
        """
        if self._parts.blobs.epoch_s is not None:
            return
        if self._newest is None:
            catalog = await self._parts.database.query(partial(status.catalog, tenant=self._tenant))
            self._newest = None if catalog is None else catalog.location
        if self._newest is not None and self._newest.blob_id not in self._parts.settings.given_up:
            await require_catalog(self._parts.blobs, self._tenant, self._newest)

    async def point(self, catalog: BlobLocation) -> str:
        """Write the pointer file unless it is up to date; return the problem if the write fails."""
        if catalog.blob_id == self._pointed_to:
            return ""
        self._behind = catalog
        try:
            await asyncio.to_thread(self._parts.pointer.write, self._tenant, catalog.blob_id)
        except OSError as error:
            problem = f"the pointer file cannot be written: {error.strerror or error}"
            _log.error("%s; the newest catalog is %s", problem, catalog.blob_id)
            return problem
        self._pointed_to, self._behind = catalog.blob_id, None
        return ""

    async def _fetch_run(self, location: BlobLocation) -> bytes:
        data = self._runs.get(location.sha256)
        if data is None:
            data = await self._parts.blobs.get(location)
            self._keep_run(BlobMember(location.sha256, data))
        return data

    def _keep_run(self, member: BlobMember) -> None:
        """Cache a run that the next merges will read."""
        self._runs[member.sha256] = member.data
        self._runs.move_to_end(member.sha256)
        while sum(map(len, self._runs.values())) > _KEPT_RUN_BYTES:
            self._runs.popitem(last=False)

    def _about(self, checkpoints: int) -> dict[str, str | int]:
        return {"tuskpoint.tenant": self._tenant, "tuskpoint.checkpoints": checkpoints}


def _bounds(settings: ArchiveSettings, blobs: BlobStore) -> RangeBounds:
    """Return the bounds of a flush: where puts are bounded, two rounds of concurrent puts."""
    limits = blobs.limits
    if limits.max_members is None:
        return RangeBounds(
            _THREADS_PER_FLUSH, settings.max_pack_checkpoints, settings.max_pack_bytes
        )
    most = 2 * limits.puts_at_once * limits.max_members
    return RangeBounds(min(_THREADS_PER_FLUSH, most), most, settings.max_pack_bytes)
