"""Finding the needed members of blobs, and storing them elsewhere or again.

Members that can be read, also from the local cache, go byte for byte into dense packs. The journal
stores the others again if it has their content. Content that neither has is lost: a gap, with a
record.
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
from ..flush.packs import grouped
from ..formats.catalogs import read_threads
from ..formats.manifests import Manifest, fold
from ..formats.records import CheckpointRecord, GapRecord, MemberRecord, Record
from ..formats.segments import SegmentValue
from ..formats.stored_json import Kind
from ..read.read import DAMAGE, Segments, placed, read_each, sliced
from ..rows import gaps, lifetimes, pinned_bundles, recorded, restore_values, status
from ..rows.lifetimes import DueBlob, HeldMember
from ..rows.plan import PlannedGap
from ..rows.recorded import ReadRecords
from ..rows.restore_values import Affected
from ..rows.stored import stored_value


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A blob and its members."""

    blob: DueBlob
    alive: tuple[HeldMember, ...]  # needed ones, except the newest catalog
    dead: tuple[HeldMember, ...]
    holds_catalog: bool  # the newest one
    staying: tuple[HeldMember, ...] = ()  # needed, and stays while the others are moved

    @property
    def is_needed(self) -> bool:
        """Whether anything in it is."""
        return bool(self.alive) or self.holds_catalog

    @property
    def alive_bytes(self) -> int:
        """Bytes of the needed members."""
        return sum(one.location.size for one in self.alive)

    @property
    def is_member(self) -> bool:
        """Whether the blob is a member: a holder of its ID may know no more than that."""
        return any(not one.location.identifier for one in self.alive)

    @property
    def is_sparse(self) -> bool:
        """Whether less than half of it is needed, or it has bytes of deleted threads."""
        size = max(self.blob.size_bytes, self.alive_bytes + sum(m.location.size for m in self.dead))
        return 2 * self.alive_bytes < size or any(one.ended for one in self.dead)

    @property
    def of_ended(self) -> set[bytes]:
        """Segments of deleted threads in it that other threads need."""
        return {one.owner for one in self.alive if one.ended}

    def without_ended(self) -> Surveyed:
        """Return the blob with the segments of deleted threads staying in it."""
        return replace(
            self,
            alive=tuple(one for one in self.alive if not one.ended),
            staying=tuple(one for one in self.alive if one.ended),
        )


@dataclass(frozen=True, slots=True)
class Survey:
    """Some blobs of a tenant."""

    blobs: Sequence[Surveyed]
    users: Mapping[bytes, set[str]]  # by hash of a segment the threads that may need it
    manifests: Mapping[str, Manifest]  # the stored ones of these threads


async def survey(
    database: Database, blobs: BlobStore, tenant: str, due: Sequence[DueBlob]
) -> Survey:
    """Return the needed members of some blobs; a cache may be in front of the store.

    Reads all records of the tenant, so that no member is dropped that recovery would read.
    """
    found, known = await database.query(
        lambda connection: (
            lifetimes.facts(connection, tenant, [one.blob_id for one in due]),
            status.catalog(connection, tenant),
        )
    )
    places = placed(database, tenant)

    async def fetch(location: BlobLocation) -> bytes:
        [place] = await places([location])
        return await blobs.get(place)

    names = set().union(*found.users.values())
    needed = set(found.needed)
    manifests: dict[str, Manifest] = {}
    if known is not None:
        async for thread_id, records in read_threads(known.catalog.runs, fetch):
            if thread_id in names:
                manifests[thread_id] = manifest = fold(thread_id, records)
                needed |= manifest.needed(later=True)
    catalog = known.location.sha256 if known is not None else b""
    surveyed = []
    for one in due:
        alive, dead, holds_catalog = [], [], False
        for member in found.held[one.blob_id]:
            if member.location.sha256 == catalog:
                holds_catalog = True
            elif member.kind is Kind.RUN or member.location.sha256 in needed:
                alive.append(member)
            else:
                dead.append(member)
        surveyed.append(Surveyed(one, tuple(alive), tuple(dead), holds_catalog))
    return Survey(surveyed, found.users, manifests)


_log = logging.getLogger(__name__)

_THREADS_AT_ONCE = 256
_BATCH_CHECKPOINTS = 64
_BATCH_BYTES = 8 * MIB
_MOVED_BLOBS, _MOVED_BYTES = 256, 32 * MIB


@dataclass(slots=True)
class Round:
    """Outcome of a check for due blobs."""

    renewed: int = 0  # blobs
    failed: int = 0  # blobs
    gone: int = 0  # of these the store has not any more
    more: bool = False  # another round follows at once
    stored_again: int = 0  # checkpoints that wait for a flush
    lost: int = 0  # checkpoints whose only copy cannot be read
    bundles_lost: int = 0  # bundles of hand-offs that are gone
    waits: bool = False  # the journal can take no more now; the rest follows


@dataclass(eq=False)
class Repair:
    """Stores needed members again, for all tenants. A cache may be in front of the store."""

    _parts: ArchiveParts
    _blobs: BlobStore
    _reported: set[tuple[str, str, str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._segments = Segments(self._blobs, 0, placed(self._parts.database))

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
        found = some = await self._parts.database.query(partial(read, after=""))
        while some.last:
            some = await self._parts.database.query(partial(read, after=some.last))
            found.records.extend(some.records)
            found.gaps.extend(some.gaps)
            found.unopened.update(some.unopened)
            found.put_back.update(some.put_back)
        await self._compare_put_back(found)
        runs = await self._parts.database.query(partial(lifetimes.runs, tenant=tenant))
        chores = Chores(found.records, dropped=runs, anew=True, gaps=found.gaps)
        await flusher.flush.record(chores)
        if found.unopened:
            self._parts.instruments.damaged_keys.add(len(found.unopened), {"tenant": tenant})
        _log.error(
            "tenant %s: the newest catalog names runs that cannot be read; it was replaced by one "
            "with %d records from the journal",
            tenant,
            len(found.records),
        )

    async def _compare_put_back(self, found: ReadRecords) -> None:
        """Replace the record of each checkpoint by a gap if its segment has another state.

        A row that was put back has its MAC, so only the segment tells that it is an older one.
        """
        members = [one for one in found.records if isinstance(one, MemberRecord)]
        places = {(one.thread_id, one.sha256): one.location for one in members}
        for index, one in enumerate(found.records):
            number = found.put_back.get(one.thread_id)
            if number is None or not isinstance(one, CheckpointRecord):
                continue
            try:
                [stored] = await self._segments.read([places[one.thread_id, one.segment]])
            except Refusal as refusal:
                if refusal.reason not in DAMAGE:
                    raise
                continue  # a recovery says so
            held_ns = one.checkpoint_ns if one.held_ns is None else one.held_ns
            row = stored.checkpoints.get((held_ns, one.checkpoint_id))
            if row is not None and hashlib.sha256(row.state).digest() == one.state_sha256:
                continue
            problem = f"the journal has another state of it than segment {one.segment.hex()}"
            place = (one.checkpoint_ns, one.checkpoint_id)
            of = (one.thread_id, one.incarnation, one.generation, one.seq)
            found.records[index] = GapRecord(*of, problem, *place)
            found.gaps.append(PlannedGap(number, *place, one.seq, problem, 0))

    async def move(
        self, flusher: TenantFlusher, found: Survey, chosen: Sequence[Surveyed], done: Round
    ) -> dict[bytes, Refusal]:
        """Store the needed members of blobs in dense packs, and record their new locations.

        An unreadable member becomes a gap, and its content is stored again if possible; unneeded
        members are forgotten. Returns by hash why members could not be read. The caller holds the
        flusher's turn.
        """
        lost: dict[bytes, Refusal] = {}
        for some in sliced(chosen, lambda blob: blob.alive_bytes, _MOVED_BYTES, _MOVED_BLOBS):
            lost_now, lacking = await self._move(flusher, found, some)
            lost |= lost_now
            await self.store_again(flusher, lacking, done)
        return lost

    async def _move(
        self, flusher: TenantFlusher, found: Survey, chosen: Sequence[Surveyed]
    ) -> tuple[dict[bytes, Refusal], set[bytes]]:
        tenant = flusher.tenant
        wanted = [one for blob in chosen for one in blob.alive]
        contents = await read_each(self._blobs, [one.location for one in wanted])
        read: list[BlobMember] = []
        lost: dict[bytes, Refusal] = {}
        for one, data in zip(wanted, contents, strict=True):
            if isinstance(data, Refusal):
                lost[one.location.sha256] = data
            else:
                read.append(BlobMember(one.location.sha256, data, one.kind.value))
        places: dict[bytes, BlobLocation] = {}
        for group in self._groups(read):
            places.update(await self._parts.runner.store(tenant, group))
        gone = {
            one.owner: lost[one.location.sha256].message
            for one in wanted
            if one.location.sha256 in lost and one.kind is not Kind.RUN
        }
        known = await self._parts.database.query(partial(gaps.lost, tenant=tenant))
        news = {owner: reason for owner, reason in gone.items() if owner not in known}
        records = [*_moved(found, chosen, places), *self._gaps(found, news)]
        if places or records or any(blob.holds_catalog for blob in chosen):
            runs = [member for member in read if member.kind == Kind.RUN.value]
            await flusher.flush.record(Chores(records, moved=places), runs)
        flusher.flush_soon()
        dead = [one.location.sha256 for blob in chosen for one in blob.dead]

        def note(batch: UnitOfWork) -> None:
            for sha256, reason in gone.items():
                for user in restore_values.users(batch.connection, tenant, [sha256])[:1]:
                    gaps.record_lost(
                        batch.connection, tenant, user.number, sha256, reason, batch.now_us
                    )
            lifetimes.drop(batch, tenant, dead)

        await self._parts.lease.transact(note)
        return lost, set(gone)

    def _groups(self, members: Sequence[BlobMember]) -> Iterator[list[BlobMember]]:
        """Distribute members over puts; where a put costs nothing, runs go beside the others.

        Runs are merged away long before the segments that they name are needed no more.
        """
        limits = self._blobs.limits
        kinds: Sequence[Sequence[BlobMember]] = [members]
        if limits.max_members is None:
            is_run = [one.kind == Kind.RUN.value for one in members]
            kinds = [
                [one for one, run in zip(members, is_run, strict=True) if run == wanted]
                for wanted in (True, False)
            ]
        return chain.from_iterable(grouped(some, limits) for some in kinds)

    def _gaps(self, found: Survey, lost: Mapping[bytes, str]) -> Iterable[Record]:
        """Record lost members, once for each thread that may need them."""
        for owner, reason in lost.items():
            for thread_id in found.users.get(owner, ()):
                if (manifest := found.manifests.get(thread_id)) is not None:
                    of = (
                        thread_id,
                        manifest.incarnation,
                        self._parts.database.generation,
                        manifest.seq,
                    )
                    yield GapRecord(*of, reason, segment=owner)

    async def lose_bundles(self, tenant: str, blob_id: str) -> int:
        """Forget the bundles of hand-offs in a blob that is gone; return how many."""
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
        """Let the next flush store again checkpoints that need some segments; stops when full."""
        if not segments:
            return
        database, tenant = self._parts.database, flusher.tenant
        needed: dict[int, set[bytes]] = {}
        segments = await database.query(
            partial(restore_values.naming, tenant=tenant, segments=segments)
        )
        for user in await database.query(
            partial(restore_values.users, tenant=tenant, segments=segments)
        ):
            needing, digests = await database.query(
                partial(restore_values.affected, user=user, segments=segments)
            )
            needed.setdefault(user.family, set()).update(digests)
            for some in sliced(
                needing, lambda one: one.size_bytes, _BATCH_BYTES, _BATCH_CHECKPOINTS
            ):
                if flusher.backlog.size_bytes >= self._parts.settings.soft_limit_bytes:
                    done.waits = True
                    return
                restored = [(one, await self._restored(user, one, done)) for one in some]
                chosen = [(one, values) for one, values in restored if values is not None]
                count = await self._parts.lease.transact(
                    partial(restore_values.store_again, user=user, chosen=chosen)
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
        self, user: ThreadRow, one: Affected, done: Round
    ) -> dict[bytes, SegmentValue] | None:
        """Return the evicted values of a checkpoint; `None` if they cannot be read now."""
        wanted = {*one.evicted, *(write.digest for write in one.evicted_writes)}
        try:
            values = await self._segments.values_at(one.sources, wanted)
            missing = wanted - values.keys()
            if missing:
                raise Refusal(
                    Reason.BLOB_MALFORMED,
                    blob_id=one.sources[0].blob_id if one.sources else "",
                    problem=f"nothing holds value {min(missing).hex()}",
                )
        except Refusal as refusal:
            if refusal.reason not in (*DAMAGE, Reason.JOURNAL_DAMAGED):  # of the segment's key
                done.waits = True
                return None
            name = (user.tenant, user.thread_id, *one.place)
            if name not in self._reported:
                self._reported.add(name)
                done.lost += 1
                self._parts.instruments.losses.add(1)
                _log.error(
                    "LOST: checkpoint '%s' in namespace '%s' of thread '%s' of tenant %s: "
                    "its values were evicted, and cannot be read from the blob store: %s",
                    one.place[1],
                    one.place[0],
                    user.thread_id,
                    user.tenant,
                    refusal.message,
                )
            return None
        return {digest: stored_value(digest, value) for digest, value in values.items()}


def _moved(
    found: Survey, chosen: Sequence[Surveyed], places: Mapping[bytes, BlobLocation]
) -> Iterable[Record]:
    """Record the current locations of all members of blobs, if some were moved.

    Records that say "this quilt" become wrong once their run is moved.
    """
    for one in [one for blob in chosen for one in (*blob.alive, *blob.staying) if places]:
        sha256 = one.location.sha256
        for thread_id in found.users.get(one.owner, ()):
            manifest = found.manifests.get(thread_id)
            record = manifest.members.get(sha256) if manifest is not None else None
            if record is not None:
                place = places.get(sha256, record.location)
                yield replace(record, location=record.location.moved(place))
