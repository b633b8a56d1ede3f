"""One flush: collect what waits, build packs of it, and see it certified.

A flush that fits one put is one pack. Where more waits, the envelopes are stored first, in
packs beside one another, then the manifests (with the catalog, if those fit), and last the
catalog: whatever refers to stored bytes is built once it is known where they lie.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..blobs.api import BlobStore, Member
from ..domain.digests import blob_digest
from ..domain.errors import Refusal
from ..domain.failpoints import failpoint
from ..domain.manifest import SEGMENT_RECORDS
from ..domain.model import BlobLocation, CheckpointKey
from ..domain.parts import KIND as PART_LIST
from ..journal import archive_collect, archive_dirty
from ..journal.archive_collect import Collected
from ..journal.archive_dirty import NOTHING, Aside, Bounds, DirtyCheckpoint, Unbuildable
from ..journal.archive_plan import PackKind, PackPlan, PlannedEnvelope
from .building import (
    ENVELOPE,
    BuiltManifest,
    BuiltPack,
    build,
    build_catalog,
    build_manifests,
    planned_checkpoint,
)
from .encoding import EncodedCheckpoint, encode_all
from .packing import (
    PartLists,
    checkpoints_grouped,
    cut_larger,
    fits,
    grouped,
    part_lists,
    room_beside_catalog,
)
from .packs import Elsewhere, Pack, PackRunner
from .pointer import Pointer
from .ports import ArchiveJournal
from .settings import ArchiveSettings
from .telemetry import Instruments, tracer

_log = logging.getLogger(__name__)

_RETRY_ASIDE_US = 600_000_000
"""After this time what was set aside is tried again: its cause may have gone."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """Outcome of a flush.

    Attributes:
        certified: Checkpoints that became certified, with their revisions.
        certified_bytes: Bytes of values and writes that no longer wait.
        catalog: The newest catalog, or `None` if nothing was ever certified.
        complete: Nothing that was journaled before the flush began is left but what was
            set aside.
        pointer_problem: Why the pointer file is behind, for people; else empty.
        aside: Checkpoints that cannot be stored as they stand.
    """

    certified: Mapping[CheckpointKey, int]
    certified_bytes: int
    catalog: BlobLocation | None
    complete: bool
    pointer_problem: str = ""
    aside: Aside = field(default_factory=dict)


class Flush:
    """Flushes of one tenant, one at a time.

    Args:
        tenant: The tenant.
        journal: Where what waits is read.
        blobs: The store, for its limits and predicted locations.
        runner: Moves packs.
        pointer: Told of the newest catalog.
        settings: Settings.
        instruments: What is measured.
        clock_us: Microseconds since the epoch.
    """

    def __init__(
        self,
        tenant: str,
        journal: ArchiveJournal,
        blobs: BlobStore,
        runner: PackRunner,
        pointer: Pointer,
        settings: ArchiveSettings,
        instruments: Instruments,
        clock_us: Callable[[], int],
    ) -> None:
        self._tenant = tenant
        self._journal = journal
        self._blobs = blobs
        self._limits = blobs.limits
        self._runner = runner
        self._pointer = pointer
        self._instruments = instruments
        self._clock_us = clock_us
        self._bounds = _bounds(settings, blobs)
        self._stored = replace(
            self._bounds, max_members=0, passed_over=self._bounds.max_checkpoints
        )
        self._aside: Aside = NOTHING
        self._retry_us = 0
        self._most: int | None = None
        self._suspects: Sequence[DirtyCheckpoint] = ()
        self._waiting: list[Pack] = []
        self._loose: dict[bytes, BlobLocation] = {}
        self._pointed_to = ""

    def take_up(self, pack: Pack) -> None:
        """Finish this pack of an earlier run before anything new is collected."""
        self._waiting.append(pack)

    def retry_aside(self) -> None:
        """Try again to make envelopes of what was set aside."""
        self._aside = NOTHING

    async def once(self, on_collect: Callable[[], None]) -> Flushed:
        """Certify once: what is on its way, else what waits.

        Args:
            on_collect: Called right before the snapshot is taken.

        Raises:
            Refusal: Of the blob store or the journal; the next call goes on from there.
        """
        if self._clock_us() > self._retry_us:
            self.retry_aside()
        await self._settle()
        if self._waiting:
            return await self._finish(self._waiting[0], complete=False)
        on_collect()
        # Before the snapshot: what changes after it is newer than what it holds.
        now_us = self._clock_us()
        collected = await self._collect(self._limited())
        pack = None if collected.crowded else await self._final_pack(collected, now_us)
        if pack is None and (collected.crowded or not collected.empty):
            await self._store_envelopes()
            on_collect()
            now_us = self._clock_us()
            # What has come meanwhile waits: beside it this might not fit either.
            collected = await self._collect(self._stored)
            pack = await self._final_pack(collected, now_us)
        if pack is None:
            catalog = collected.catalog.location if collected.catalog else None
            problem = await self._point(catalog) if catalog else ""
            return Flushed({}, 0, catalog, collected.complete, problem, self._aside)
        return await self._finish(pack, complete=collected.complete)

    async def _collect(self, bounds: Bounds) -> Collected:
        aside = self._aside
        collected = await self._journal.query(
            lambda connection: archive_collect.collect(connection, self._tenant, bounds, aside)
        )
        self._aside = collected.aside
        self._set_aside(collected.unbuildable)
        return collected

    def _limited(self) -> Bounds:
        """Return how much is stored at once: less after a rejection, to find what it is of."""
        if self._most is None:
            return self._bounds
        return replace(self._bounds, max_checkpoints=self._most)

    def _rejected(self, pack: Pack, refusal: BaseException) -> None:
        """Store less the next time; what is rejected all by itself is set aside."""
        suspects = [one for one in pack.plan.checkpoints if one.envelopes] or self._suspects
        if len(suspects) == 1:
            [one] = suspects
            self._set_aside([Unbuildable(one.key, one.revision, str(refusal))])
        if suspects:
            self._most = max(1, len(suspects) // 2)

    def _accepted(self) -> None:
        """Store more again."""
        if self._most is not None:
            more = 2 * self._most
            self._most = more if more < self._bounds.max_checkpoints else None

    async def _encode(self, checkpoints: Sequence[DirtyCheckpoint]) -> list[EncodedCheckpoint]:
        encoded = await asyncio.to_thread(encode_all, checkpoints)
        self._set_aside(encoded.unbuildable)
        return encoded.checkpoints

    def _set_aside(self, unbuildable: Sequence[Unbuildable]) -> None:
        """Leave checkpoints alone of which no envelope can be made; all others go on."""
        for one in unbuildable:
            _log.error("tenant %s: %s is set aside: %s", self._tenant, one.key, one.problem)
        if unbuildable:
            self._aside = {**self._aside, **{one.key: one for one in unbuildable}}
            self._retry_us = self._clock_us() + _RETRY_ASIDE_US

    # --- the final pack ----------------------------------------------------------------

    async def _final_pack(self, collected: Collected, now_us: int) -> Pack | None:
        """Spool the pack that certifies.

        Returns:
            `None` if there is nothing to tell, or if envelopes have to be stored before.
        """
        failpoint("archive.after_collect")
        with tracer.start_as_current_span("archive.pack", attributes=self._about(collected)):
            encoded = await self._encode(collected.checkpoints)
            collected = replace(collected, checkpoints=tuple(item.checkpoint for item in encoded))
            if collected.empty:
                return None
            built = await asyncio.to_thread(build, collected, encoded, self._blobs.predict, now_us)
            if self._fits_one_put(encoded, built):
                return await self._begin_final(built)
            if any(item.envelopes for item in encoded):
                return None
            manifests, elsewhere = await self._store_manifests(collected)
            built = await asyncio.to_thread(
                build_catalog, collected, manifests, {}, self._blobs.predict, now_us
            )
            return await self._begin_final(built, elsewhere)

    def _fits_one_put(self, encoded: Sequence[EncodedCheckpoint], built: BuiltPack) -> bool:
        largest = self._limits.max_member_bytes
        if largest is not None and any(item.largest > largest for item in encoded):
            return False
        return fits(built.members, self._limits)

    async def _begin_final(self, built: BuiltPack, elsewhere: Elsewhere | None = None) -> Pack:
        pack = await self._runner.begin(
            self._tenant, PackKind.FINAL, built.members, built.plan, elsewhere
        )
        self._waiting.append(pack)
        return pack

    async def _store_manifests(
        self, collected: Collected
    ) -> tuple[list[BuiltManifest], dict[bytes, tuple[BlobLocation, bytes]]]:
        """Store segments ahead of the catalog; those of a thread in one pack."""
        manifests = await asyncio.to_thread(build_manifests, collected, {}, self._blobs.predict)
        units = [built.members for built in manifests if built.members]
        apart = [unit for unit in units if not self._lie_together(unit)]
        locations = await self._store_loose(apart)
        elsewhere = {
            member.sha256: (locations[member.sha256], member.data)
            for unit in units
            for member in unit
        }
        return [_placed(built, locations) for built in manifests], elsewhere

    def _lie_together(self, unit: Sequence[Member]) -> bool:
        """Tell whether segments are stored, and in one blob: they refer to "this quilt"."""
        found = [self._loose.get(member.sha256) for member in unit]
        return None not in found and len({one.blob_id for one in found if one}) == 1

    async def _finish(self, pack: Pack, *, complete: bool) -> Flushed:
        with tracer.start_as_current_span("archive.flush", attributes=self._about(pack.plan)):
            try:
                certified = await self._runner.finish(pack)
            except Refusal as refusal:
                if pack.abandoned:
                    self._waiting.remove(pack)
                    self._rejected(pack, refusal)
                raise
        self._waiting.remove(pack)
        self._accepted()
        self._loose.clear()
        if certified is None:
            return Flushed({}, 0, None, complete=False)
        catalog = _catalog_location(pack)
        # Whoever has lost everything else finds the way back with this line.
        _log.info(
            "tenant %s: %d checkpoints certified, catalog %s",
            self._tenant,
            len(certified),
            catalog.blob_id,
        )
        problem = await self._point(catalog)
        failpoint("archive.after_pointer")
        await self._runner.discard_spooled(pack)
        seconds = (self._clock_us() - pack.plan.collected_us) / 1e6
        self._instruments.flushed(self._tenant, max(0.0, seconds), len(certified))
        return Flushed(
            {planned.key: planned.revision for planned in certified},
            sum(planned.dirty_bytes for planned in certified),
            catalog,
            complete=complete,
            pointer_problem=problem,
            aside=self._aside,
        )

    # --- packs before it ---------------------------------------------------------------

    async def _store_envelopes(self) -> None:
        """Store envelopes that wait, in as many packs as they take."""
        aside, bounds = self._aside, self._limited()
        filled = await self._journal.query(
            lambda connection: archive_dirty.collect_envelopes(
                connection, self._tenant, bounds, aside
            )
        )
        self._set_aside(filled.unbuildable)
        now_us = self._clock_us()
        encoded = await self._encode(filled.checkpoints)
        self._suspects = [item.checkpoint for item in encoded]
        parts = await self._store_parts(encoded)
        self._suspects = ()
        for group in await asyncio.to_thread(checkpoints_grouped, encoded, self._limits):
            members, plan = await asyncio.to_thread(_envelope_pack, group, parts, now_us)
            pack = await self._runner.begin(self._tenant, PackKind.ENVELOPES, members, plan)
            self._waiting.append(pack)
        await self._settle()

    async def _store_parts(self, encoded: Sequence[EncodedCheckpoint]) -> PartLists:
        """Store the parts of envelopes that are larger than a member may be."""
        largest = self._limits.max_member_bytes
        if largest is None:
            return {}
        cuts = await asyncio.to_thread(cut_larger, encoded, largest)
        pieces = {
            member.sha256: [member]
            for one in cuts.values()
            for member in one.parts
            if member.sha256 not in self._loose
        }
        locations = await self._store_loose(list(pieces.values()))
        return await asyncio.to_thread(part_lists, cuts, locations)

    async def _store_loose(self, units: Sequence[Sequence[Member]]) -> dict[bytes, BlobLocation]:
        """Store members that others refer to, those of a unit together; return where all lie."""
        for members in await asyncio.to_thread(grouped, units, self._limits):
            plan = PackPlan(self._clock_us())
            pack = await self._runner.begin(self._tenant, PackKind.LOOSE, members, plan)
            self._waiting.append(pack)
        await self._settle()
        return self._loose

    async def _settle(self) -> None:
        """Settle every pack on its way that is not final, beside one another.

        Raises:
            Refusal: Of the first that could not be; it and others stay on their way.
        """
        packs = [pack for pack in self._waiting if pack.kind is not PackKind.FINAL]
        outcomes = await asyncio.gather(
            *(self._runner.settle(pack) for pack in packs), return_exceptions=True
        )
        problems = []
        for pack, outcome in zip(packs, outcomes, strict=True):
            if outcome is not None:
                problems.append(outcome)
                if pack.abandoned:
                    self._waiting.remove(pack)
                    self._rejected(pack, outcome)
                continue
            self._waiting.remove(pack)
            self._accepted()
            if pack.kind is PackKind.LOOSE:
                self._loose.update((location.sha256, location) for location in pack.locations)
        if problems:
            raise problems[0]

    def _about(self, content: Collected | PackPlan) -> dict[str, str | int]:
        return {
            "tuskpoint.tenant": self._tenant,
            "tuskpoint.checkpoints": len(content.checkpoints),
        }

    async def _point(self, catalog: BlobLocation) -> str:
        """Write the pointer file unless it is up to date; say what kept it from being written."""
        if catalog.blob_id == self._pointed_to:
            return ""
        try:
            await asyncio.to_thread(self._pointer.write, self._tenant, catalog.blob_id)
        except OSError as error:
            problem = f"the pointer file cannot be written: {error.strerror or error}"
            _log.error("%s; the newest catalog is %s", problem, catalog.blob_id)
            return problem
        self._pointed_to = catalog.blob_id
        return ""


def _bounds(settings: ArchiveSettings, blobs: BlobStore) -> Bounds:
    """Return what a flush takes: where puts are bounded, as many as run in two rounds."""
    limits = blobs.limits
    if limits.max_members is None:
        return Bounds(settings.max_pack_checkpoints, settings.max_pack_bytes)
    return Bounds(
        max_checkpoints=2 * limits.puts_at_once * limits.max_members,
        max_bytes=settings.max_pack_bytes,
        max_members=0 if settings.apart else room_beside_catalog(limits.max_members),
        max_member_bytes=limits.max_member_bytes,
        max_records=SEGMENT_RECORDS * max(1, limits.max_members // 2),
        max_record_bytes=limits.max_put_bytes and limits.max_put_bytes * 3 // 4,
    )


def _envelope_pack(
    group: Sequence[EncodedCheckpoint], parts: PartLists, now_us: int
) -> tuple[list[Member], PackPlan]:
    """Return the members of a pack of envelopes, and what storing them records."""
    members: dict[bytes, Member] = {}
    planned = []
    for item in group:
        envelopes = []
        for data in item.envelopes:
            listed = parts.get(blob_digest(data))
            stored = listed.data if listed else data
            sha256 = blob_digest(stored)
            members[sha256] = Member(sha256, stored, PART_LIST if listed else ENVELOPE)
            envelopes.append(
                PlannedEnvelope(sha256, item.checkpoint.revision, listed.parts if listed else ())
            )
        planned.append(planned_checkpoint(item.checkpoint, envelopes))
    return list(members.values()), PackPlan(now_us, checkpoints=tuple(planned))


def _placed(built: BuiltManifest, locations: Mapping[bytes, BlobLocation]) -> BuiltManifest:
    """Return a manifest's move with the place where its head lies."""
    head = built.head
    if head is None or head.location.sha256 not in locations:
        return built
    return replace(built, head=replace(head, location=locations[head.location.sha256]))


def _catalog_location(pack: Pack) -> BlobLocation:
    catalog = pack.plan.catalog
    if catalog is None:
        raise ValueError(f"pack {pack.pack_id} has no catalog")
    return next(location for location in pack.locations if location.sha256 == catalog.sha256)
