"""Finds the needed members of blobs, and stores them elsewhere or again.

Readable members, also from the local cache, are copied byte for byte into dense packs. The content
of other members is stored again if the journal has it. Content that neither has is lost: it becomes
a gap, with a record.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from ...blobs.api import BlobMember, BlobStore
from ...core.errors import Reason, Refusal
from ...core.limits import MIB
from ...core.model import BlobLocation
from ...journal.database.database import Database
from ...journal.database.thread_rows import ThreadRow
from ...journal.database.unit_of_work import UnitOfWork
from ..flush.assembling import Chores
from ..flush.flusher import TenantFlusher
from ..flush.one_flush import ArchiveParts
from ..flush.packs import group_members
from ..formats.catalogs import read_threads
from ..formats.manifests import Manifest, fold
from ..formats.records import CheckpointRecord, GapRecord, MemberRecord, Record
from ..formats.segments import SegmentValue
from ..formats.stored_json import Kind
from ..read.read import DAMAGE, Segments, read_each, recorded_places, slice_items
from ..rows import gaps, lifetimes, pinned_bundles, recorded, restore_values, status
from ..rows.lifetimes import DueBlob, HeldMember
from ..rows.plan import PlannedGap
from ..rows.recorded import ReadRecords
from ..rows.restore_values import AffectedCheckpoint
from ..rows.stored import stored_value


@dataclass(frozen=True, slots=True)
class SurveyedBlob:
    """Blob and its members."""

    blob: DueBlob
    alive: tuple[HeldMember, ...]  # needed members, except the newest catalog
    dead: tuple[HeldMember, ...]
    holds_catalog: bool  # whether the blob contains the newest catalog
    staying: tuple[HeldMember, ...] = ()  # needed members that stay while the others are moved

    @property
    def is_needed(self) -> bool:
        """Whether a member of the blob is needed."""
        return bool(self.alive) or self.holds_catalog

    @property
    def alive_bytes(self) -> int:
        """Bytes of the needed members."""
        return sum(member.location.size for member in self.alive)

    @property
    def is_member(self) -> bool:
        """Whether the blob itself is a member: a holder of its ID may know only that ID."""
        return any(not member.location.identifier for member in self.alive)

    @property
    def is_sparse(self) -> bool:
        """Whether less than half of the blob is needed, or it has bytes of deleted threads."""
        size = max(
            self.blob.size_bytes,
            self.alive_bytes + sum(member.location.size for member in self.dead),
        )
        return 2 * self.alive_bytes < size or any(member.ended for member in self.dead)

    @property
    def of_ended(self) -> set[bytes]:
        """Segments in the blob that belong to deleted threads and that other threads need."""
        return {member.owner for member in self.alive if member.ended}

    def without_ended(self) -> SurveyedBlob:
        """Return the blob with the segments of deleted threads marked as staying."""
        return replace(
            self,
            alive=tuple(member for member in self.alive if not member.ended),
            staying=tuple(member for member in self.alive if member.ended),
        )


@dataclass(frozen=True, slots=True)
class Survey:
    """Result of a survey of some blobs of a tenant."""

    blobs: Sequence[SurveyedBlob]
    users: Mapping[bytes, set[str]]  # threads that may need a segment, by its hash
    manifests: Mapping[str, Manifest]  # stored manifests of these threads


async def survey(
    database: Database, blobs: BlobStore, tenant: str, due: Sequence[DueBlob]
) -> Survey:
    """Return the needed members of some blobs; a cache may be in front of the store.

    The survey reads all records of the tenant, so that no member is dropped that recovery would
    read.
    """
    facts, known = await database.query(
        lambda connection: (
            lifetimes.facts(connection, tenant, [blob.blob_id for blob in due]),
            status.catalog(connection, tenant),
        )
    )
    places = recorded_places(database, tenant)

    async def fetch(location: BlobLocation) -> bytes:
        [place] = await places([location])
        return await blobs.get(place)

    names = set().union(*facts.users.values())
    needed = set(facts.needed)
    manifests: dict[str, Manifest] = {}
    if known is not None:
        async for thread_id, records in read_threads(known.catalog.runs, fetch):
            if thread_id in names:
                manifests[thread_id] = manifest = fold(thread_id, records)
                needed |= manifest.needed(later=True)
    catalog = known.location.sha256 if known is not None else b""
    surveyed = []
    for blob in due:
        alive, dead, holds_catalog = [], [], False
        for member in facts.held[blob.blob_id]:
            if member.location.sha256 == catalog:
                holds_catalog = True
            elif member.kind is Kind.RUN or member.location.sha256 in needed:
                alive.append(member)
            else:
                dead.append(member)
        surveyed.append(SurveyedBlob(blob, tuple(alive), tuple(dead), holds_catalog))
    return Survey(surveyed, facts.users, manifests)


_log = logging.getLogger(__name__)

_THREADS_AT_ONCE = 256
_BATCH_CHECKPOINTS = 64
_BATCH_BYTES = 8 * MIB
_MOVED_BLOBS, _MOVED_BYTES = 256, 32 * MIB


@dataclass(slots=True)
class Round:
    """Outcome of a check for due blobs."""

    renewed: int = 0  # number of renewed blobs
    failed: int = 0  # number of blobs whose renewal failed
    gone: int = 0  # failed blobs that the store no longer has
    more: bool = False  # whether another round follows at once
    stored_again: int = 0  # checkpoints that wait for a flush
    lost: int = 0  # checkpoints whose only copy cannot be read
    bundles_lost: int = 0  # bundles of hand-offs that are lost
    waits: bool = False  # the journal can accept no more now; the rest follows later


@dataclass(eq=False)
class Repair:
    """Stores needed members again, for all tenants. A cache may be in front of the store."""

    _parts: ArchiveParts
    _blobs: BlobStore
    _reported: set[tuple[str, str, str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._segments = Segments(self._blobs, 0, recorded_places(self._parts.database))

    async def rebuild(self, flusher: TenantFlusher) -> None:
        """Certify a catalog whose records come from the journal alone.

        The caller holds the flusher's turn.
        """
        tenant = flusher.tenant
        read = partial(
            recorded.records,
            tenant=tenant,
            generation=self._parts.database.generation,
            most=_THREADS_AT_ONCE,
        )
        journal_records = page = await self._parts.database.query(partial(read, after=""))
        while page.last:
            page = await self._parts.database.query(partial(read, after=page.last))
            journal_records.records.extend(page.records)
            journal_records.gaps.extend(page.gaps)
            journal_records.unopened.update(page.unopened)
            journal_records.put_back.update(page.put_back)
        await self._compare_put_back(journal_records)
        runs = await self._parts.database.query(partial(lifetimes.runs, tenant=tenant))
        chores = Chores(journal_records.records, dropped=runs, anew=True, gaps=journal_records.gaps)
        await flusher.flush.record(chores)
        if journal_records.unopened:
            self._parts.instruments.damaged_keys.add(
                len(journal_records.unopened), {"tenant": tenant}
            )
        _log.error(
            "tenant %s: the newest catalog names runs that cannot be read; it was replaced by one "
            "with %d records from the journal",
            tenant,
            len(journal_records.records),
        )

    async def _compare_put_back(self, journal_records: ReadRecords) -> None:
        """Replace the record of a checkpoint by a gap if its segment has another state.

        An older row that was put back has a valid MAC, so only the segment tells that the row is
        older.
        """
        members = [record for record in journal_records.records if isinstance(record, MemberRecord)]
        places = {(member.thread_id, member.sha256): member.location for member in members}
        for index, record in enumerate(journal_records.records):
            number = journal_records.put_back.get(record.thread_id)
            if number is None or not isinstance(record, CheckpointRecord):
                continue
            try:
                [stored] = await self._segments.read([places[record.thread_id, record.segment]])
            except Refusal as refusal:
                if refusal.reason not in DAMAGE:
                    raise
                continue  # a recovery reports the damaged segment
            held_ns = record.checkpoint_ns if record.held_ns is None else record.held_ns
            row = stored.checkpoints.get((held_ns, record.checkpoint_id))
            if row is not None and hashlib.sha256(row.state).digest() == record.state_sha256:
                continue
            problem = f"the journal has another state of it than segment {record.segment.hex()}"
            place = (record.checkpoint_ns, record.checkpoint_id)
            position = (record.thread_id, record.incarnation, record.generation, record.seq)
            journal_records.records[index] = GapRecord(*position, problem, *place)
            journal_records.gaps.append(PlannedGap(number, *place, record.seq, problem, 0))

    async def move(
        self, flusher: TenantFlusher, report: Survey, chosen: Sequence[SurveyedBlob], done: Round
    ) -> dict[bytes, Refusal]:
        """Store the needed members of blobs in dense packs, and record their new locations.

        An unreadable member becomes a gap, and its content is stored again if possible; unneeded
        members are forgotten. Returns, by hash, why members could not be read. The caller holds the
        flusher's turn.
        """
        lost: dict[bytes, Refusal] = {}
        for batch in slice_items(chosen, lambda blob: blob.alive_bytes, _MOVED_BYTES, _MOVED_BLOBS):
            lost_now, segments = await self._move(flusher, report, batch)
            lost |= lost_now
            await self.store_again(flusher, segments, done)
        return lost

    async def _move(
        self, flusher: TenantFlusher, report: Survey, blobs: Sequence[SurveyedBlob]
    ) -> tuple[dict[bytes, Refusal], set[bytes]]:
        tenant = flusher.tenant
        members = [member for blob in blobs for member in blob.alive]
        contents = await read_each(self._blobs, [member.location for member in members])
        read: list[BlobMember] = []
        refusals: dict[bytes, Refusal] = {}
        for member, data in zip(members, contents, strict=True):
            if isinstance(data, Refusal):
                refusals[member.location.sha256] = data
            else:
                read.append(BlobMember(member.location.sha256, data, member.kind.value))
        places: dict[bytes, BlobLocation] = {}
        for group in self._groups(read):
            places.update(await self._parts.runner.store(tenant, group))
        reasons = {
            member.owner: refusals[member.location.sha256].message
            for member in members
            if member.location.sha256 in refusals and member.kind is not Kind.RUN
        }
        known_gaps = await self._parts.database.query(partial(gaps.lost_hashes, tenant=tenant))
        new_reasons = {
            owner: reason for owner, reason in reasons.items() if owner not in known_gaps
        }
        records = [*_record_moves(report, blobs, places), *self._gaps(report, new_reasons)]
        if places or records or any(blob.holds_catalog for blob in blobs):
            runs = [member for member in read if member.kind == Kind.RUN.value]
            await flusher.flush.record(Chores(records, moved=places), runs)
        flusher.flush_soon()
        dead = [member.location.sha256 for blob in blobs for member in blob.dead]

        def note(batch: UnitOfWork) -> None:
            for sha256, reason in reasons.items():
                for user in restore_values.users(batch.connection, tenant, [sha256])[:1]:
                    gaps.record_lost(
                        batch.connection, tenant, user.number, sha256, reason, batch.now_us
                    )
            lifetimes.drop(batch, tenant, dead)

        await self._parts.lease.transact(note)
        return refusals, set(reasons)

    def _groups(self, members: Sequence[BlobMember]) -> Iterator[list[BlobMember]]:
        """Distribute members over puts; where a put costs nothing, separate the runs.

        Runs are merged away long before the segments that they name become unneeded.
        """
        limits = self._blobs.limits
        kinds: Sequence[Sequence[BlobMember]] = [members]
        if limits.max_members is None:
            is_run = [member.kind == Kind.RUN.value for member in members]
            kinds = [
                [member for member, run in zip(members, is_run, strict=True) if run == wants_runs]
                for wants_runs in (True, False)
            ]
        return chain.from_iterable(group_members(batch, limits) for batch in kinds)

    def _gaps(self, report: Survey, reasons: Mapping[bytes, str]) -> Iterable[Record]:
        """Yield records of lost members, one for each thread that may need the member."""
        for owner, reason in reasons.items():
            for thread_id in report.users.get(owner, ()):
                if (manifest := report.manifests.get(thread_id)) is not None:
                    position = (
                        thread_id,
                        manifest.incarnation,
                        self._parts.database.generation,
                        manifest.seq,
                    )
                    yield GapRecord(*position, reason, segment=owner)

    async def lose_bundles(self, tenant: str, blob_id: str) -> int:
        """Forget the bundles of hand-offs in a lost blob; return the number of bundles."""
        lost = await self._parts.lease.transact(
            lambda batch: pinned_bundles.drop_lost(batch.connection, tenant, blob_id)
        )
        for bundle in lost:
            _log.error(
                "LOST: the bundle of a hand-off of checkpoint '%s' in namespace '%s' of thread "
                "'%s' of tenant %s was only in blob %s, which is lost; hand it off again",
                bundle.key.checkpoint_id,
                bundle.key.checkpoint_ns,
                bundle.key.thread_id,
                tenant,
                blob_id,
            )
        return len(lost)

    async def store_again(
        self, flusher: TenantFlusher, segments: Collection[bytes], done: Round
    ) -> None:
        """Let the next flush store again the checkpoints that need segments; stop when full."""
        if not segments:
            return
        database, tenant = self._parts.database, flusher.tenant
        needed: dict[int, set[bytes]] = {}
        segments = await database.query(
            partial(restore_values.naming_segments, tenant=tenant, segments=segments)
        )
        for user in await database.query(
            partial(restore_values.users, tenant=tenant, segments=segments)
        ):
            needing, digests = await database.query(
                partial(restore_values.find_affected, user=user, segments=segments)
            )
            needed.setdefault(user.family, set()).update(digests)
            for batch in slice_items(
                needing, lambda checkpoint: checkpoint.size_bytes, _BATCH_BYTES, _BATCH_CHECKPOINTS
            ):
                if flusher.backlog.size_bytes >= self._parts.settings.soft_limit_bytes:
                    done.waits = True
                    return
                restored = [
                    (checkpoint, await self._restored(user, checkpoint, done))
                    for checkpoint in batch
                ]
                readable = [
                    (checkpoint, values) for checkpoint, values in restored if values is not None
                ]
                count = await self._parts.lease.transact(
                    partial(restore_values.store_again, user=user, chosen=readable)
                )
                if count:
                    done.stored_again += count
                    self._parts.instruments.stored_again.add(count)
                    await flusher.count_backlog()
                    flusher.flush_soon()

        def forget(batch: UnitOfWork) -> None:
            for family, digests in needed.items():
                restore_values.forget_unneeded(batch.connection, family, segments, digests)

        if needed:
            await self._parts.lease.transact(forget)

    async def _restored(
        self, user: ThreadRow, checkpoint: AffectedCheckpoint, done: Round
    ) -> dict[bytes, SegmentValue] | None:
        """Return the evicted values of a checkpoint; `None` if they cannot be read at present."""
        digests = {*checkpoint.evicted, *(write.digest for write in checkpoint.evicted_writes)}
        try:
            values = await self._segments.values_at(checkpoint.sources, digests)
            missing = digests - values.keys()
            if missing:
                raise Refusal(
                    Reason.BLOB_MALFORMED,
                    blob_id=checkpoint.sources[0].blob_id if checkpoint.sources else "",
                    problem=f"nothing holds value {min(missing).hex()}",
                )
        except Refusal as refusal:
            # refusals about the segment's key
            if refusal.reason not in (*DAMAGE, Reason.JOURNAL_DAMAGED):
                done.waits = True
                return None
            name = (user.tenant, user.thread_id, *checkpoint.place)
            if name not in self._reported:
                self._reported.add(name)
                done.lost += 1
                self._parts.instruments.losses.add(1)
                _log.error(
                    "LOST: checkpoint '%s' in namespace '%s' of thread '%s' of tenant %s: "
                    "its values were evicted, and cannot be read from the blob store: %s",
                    checkpoint.place[1],
                    checkpoint.place[0],
                    user.thread_id,
                    user.tenant,
                    refusal.message,
                )
            return None
        return {digest: stored_value(digest, value) for digest, value in values.items()}


def _record_moves(
    report: Survey, blobs: Sequence[SurveyedBlob], places: Mapping[bytes, BlobLocation]
) -> Iterable[Record]:
    """Return the current locations of all members of blobs, if some members were moved.

    Records that say "this quilt" become wrong when their run is moved.
    """
    for member in [member for blob in blobs for member in (*blob.alive, *blob.staying) if places]:
        sha256 = member.location.sha256
        for thread_id in report.users.get(member.owner, ()):
            manifest = report.manifests.get(thread_id)
            record = manifest.members.get(sha256) if manifest is not None else None
            if record is not None:
                place = places.get(sha256, record.location)
                yield replace(record, location=record.location.moved(place))
