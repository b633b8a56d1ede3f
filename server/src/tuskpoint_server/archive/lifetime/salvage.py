"""Storing what is needed of blobs elsewhere, and what cannot be read any more once again.

What can be read, from the local cache too, goes byte for byte into dense packs. Of the rest the
journal stores again what it holds. What neither has is lost: a hole, said by a record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from ...blobs.api import BlobStore, Member
from ...domain.errors import Reason, Refusal
from ...domain.formats.records import GapRecord, Record
from ...domain.formats.stored_json import Kind
from ...domain.limits import MIB
from ...domain.model import BlobLocation
from ...journal.archiving import holes, lifetimes, recorded, refill
from ...journal.archiving.lifetimes import HeldMember
from ...journal.archiving.refill import Affected, PackedValue, User, pack_values
from ...journal.database.database import Database
from ...journal.database.overlay import Batch
from ...journal.lineage import handoffs
from ..flush.assembling import Chores
from ..flush.flusher import TenantFlusher
from ..flush.packs import PackRunner, grouped
from ..read.segments import Segments, placed
from .failing import DAMAGE
from .survey import Survey, Surveyed

_log = logging.getLogger(__name__)

_THREADS_AT_ONCE = 256
_BATCH_CHECKPOINTS = 64
_BATCH_BYTES = 8 * MIB

One = TypeVar("One")


@dataclass(slots=True)
class Salvaged:
    """What became of what blobs held.

    Attributes:
        stored_again: Checkpoints that wait for a flush.
        lost: Checkpoints whose only copy cannot be read.
        bundles_lost: Bundles of hand-offs that are gone.
        waits: The journal can take no more now; the rest follows.
    """

    stored_again: int = 0
    lost: int = 0
    bundles_lost: int = 0
    waits: bool = False


class Salvage:
    """Stores again what is needed; one for all tenants.

    Args:
        database: The journal.
        blobs: The store, behind its cache.
        runner: Stores packs.
    """

    def __init__(self, database: Database, blobs: BlobStore, runner: PackRunner) -> None:
        self._database = database
        self._blobs = blobs
        self._runner = runner
        self._segments = Segments(blobs, 0, placed(database))
        self._told: set[tuple[str, str, str]] = set()

    # --- runs ----------------------------------------------------------------------------

    async def rebuild(self, flusher: TenantFlusher) -> None:
        """Certify a catalog whose records come from the journal alone.

        Args:
            flusher: The tenant's, whose turn the caller holds.

        Raises:
            Refusal: Of the blob store or the journal.
        """
        tenant, generation = flusher.tenant, self._database.generation
        found: list[Record] = []
        after, more = "", True
        while more:
            some, after = await self._database.query(
                partial(
                    recorded.records,
                    tenant=tenant,
                    generation=generation,
                    after=after,
                    most=_THREADS_AT_ONCE,
                )
            )
            found += some
            more = bool(after)
        runs = await self._database.query(partial(lifetimes.runs, tenant=tenant))
        await flusher.flush.record(Chores(found, dropped=runs, anew=True))
        _log.error(
            "tenant %s: the newest catalog named runs that cannot be read; another one replaces "
            "it, with %d records from the journal",
            tenant,
            len(found),
        )

    # --- members -------------------------------------------------------------------------

    async def move(
        self, flusher: TenantFlusher, found: Survey, chosen: Sequence[Surveyed]
    ) -> dict[bytes, Refusal]:
        """Store what is needed of some blobs in dense packs, and let the catalog say so.

        Args:
            flusher: The tenant's, whose turn the caller holds.
            found: The survey.
            chosen: Blobs of it.

        Returns:
            By hash what could not be read, and why.

        Raises:
            Refusal: Of the blob store or the journal; nothing has changed then, or a pack that
                says so is on its way.
        """
        wanted = [one for blob in chosen for one in blob.alive]
        read, lost = await self._read(wanted)
        places: dict[bytes, BlobLocation] = {}
        for group in grouped(read, self._blobs.limits):
            places.update(await self._runner.store(flusher.tenant, group))
        records: list[Record] = []
        # What records say of "this quilt" holds no more once their run is moved: of everything in
        # it they say anew where it lies.
        for one in (*wanted, *(one for blob in chosen for one in blob.staying)) if places else ():
            sha256 = one.location.sha256
            for thread_id in found.users.get(one.owner, ()):
                manifest = found.manifests.get(thread_id)
                record = manifest.members.get(sha256) if manifest is not None else None
                if record is not None:
                    records.append(replace(record, location=places.get(sha256, record.location)))
        known = await self._database.query(partial(holes.lost, tenant=flusher.tenant))
        records += self._gaps(found, [one for one in wanted if one.owner not in known], lost)
        if places or records or any(blob.holds_catalog for blob in chosen):
            runs = [member for member in read if member.kind == Kind.RUN.value]
            await flusher.flush.record(Chores(records, moved=places), runs)
        return lost

    def _gaps(
        self, found: Survey, wanted: Iterable[HeldMember], lost: Mapping[bytes, Refusal]
    ) -> Iterable[Record]:
        """Say what is lost, once for each thread that may need it."""
        generation = self._database.generation
        said: set[tuple[str, bytes]] = set()
        for one in wanted:
            refusal = lost.get(one.location.sha256)
            if refusal is None:
                continue
            for thread_id in found.users.get(one.owner, ()):
                manifest = found.manifests.get(thread_id)
                if manifest is None or (thread_id, one.owner) in said:
                    continue
                said.add((thread_id, one.owner))
                where = (thread_id, manifest.incarnation, generation, manifest.seq)
                yield GapRecord(*where, refusal.message, segment=one.owner)

    async def _read(
        self, wanted: Sequence[HeldMember]
    ) -> tuple[list[Member], dict[bytes, Refusal]]:
        """Return the members that can be read, and why the others cannot."""
        try:
            every = await self._blobs.get_many([one.location for one in wanted])
            return [_member(one, data) for one, data in zip(wanted, every, strict=True)], {}
        except Refusal as refusal:
            if refusal.reason not in DAMAGE:
                raise
        read: list[Member] = []
        lost: dict[bytes, Refusal] = {}
        for one in wanted:
            try:
                read.append(_member(one, await self._blobs.get(one.location)))
            except Refusal as refusal:
                if refusal.reason not in DAMAGE:
                    raise
                lost[one.location.sha256] = refusal
        return read, lost

    # --- what is lost --------------------------------------------------------------------

    async def lose(
        self, tenant: str, wanted: Iterable[HeldMember], lost: Mapping[bytes, Refusal]
    ) -> set[bytes]:
        """Record segments that cannot be read as holes; return their hashes."""
        reasons = {
            one.owner: lost[one.location.sha256].message
            for one in wanted
            if one.location.sha256 in lost and one.kind is not Kind.RUN
        }

        def record(batch: Batch) -> None:
            for sha256, reason in reasons.items():
                for user in refill.users(batch.connection, tenant, [sha256])[:1]:
                    holes.record_lost(
                        batch.connection, tenant, user.number, sha256, reason, batch.now_us
                    )

        if reasons:
            await self._database.transact(record)
        return set(reasons)

    async def lose_bundles(self, tenant: str, blob_id: str) -> int:
        """Give up the bundles of hand-offs that lie in a blob which is gone; return how many.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        lost = await self._database.transact(
            lambda batch: handoffs.drop_lost(batch.connection, tenant, blob_id)
        )
        for bundle in lost:
            _log.error(
                "LOST: the bundle of a hand-off of checkpoint '%s' in namespace '%s' of thread "
                "'%s' of tenant %s was only in blob %s; hand it off again",
                bundle.key.checkpoint_id,
                bundle.key.checkpoint_ns,
                bundle.key.thread_id,
                tenant,
                blob_id,
            )
        return len(lost)

    async def store_again(
        self,
        tenant: str,
        segments: Collection[bytes],
        done: Salvaged,
        room: Callable[[], bool],
    ) -> None:
        """Let every checkpoint that needs one of some segments be stored again.

        Args:
            tenant: The tenant.
            segments: The segments.
            done: What is done is counted here.
            room: Says whether the journal can take more.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        needed: dict[int, set[bytes]] = {}
        segments = await self._database.query(
            partial(refill.naming, tenant=tenant, segments=segments)
        )
        for user in await self._database.query(
            partial(refill.users, tenant=tenant, segments=segments)
        ):
            needing, digests = await self._database.query(
                partial(refill.affected, tenant=tenant, user=user, segments=segments)
            )
            needed.setdefault(user.family, set()).update(digests)
            for some in sliced(
                needing, lambda one: one.size_bytes, _BATCH_BYTES, _BATCH_CHECKPOINTS
            ):
                if not room():
                    done.waits = True
                    return
                chosen = []
                for one in some:
                    restored = await self._restored(tenant, user, one, done)
                    if restored is not None:
                        chosen.append((one, restored))
                done.stored_again += await self._database.transact(
                    partial(refill.store_again, tenant=tenant, user=user, chosen=chosen)
                )

        def forget(batch: Batch) -> None:
            for family, digests in needed.items():
                refill.forget_unneeded(batch.connection, family, segments, digests)

        if needed:
            await self._database.transact(forget)

    async def _restored(
        self, tenant: str, user: User, one: Affected, done: Salvaged
    ) -> list[PackedValue] | None:
        """Return what the journal gave up of a checkpoint; `None` if it cannot be had now."""
        wanted = {*one.evicted, *one.evicted_writes.values()}
        if not wanted:
            return []
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
            if refusal.reason in DAMAGE:
                self._lose(tenant, user, one, refusal, done)
            else:
                done.waits = True
            return None
        return pack_values(values)

    def _lose(
        self, tenant: str, user: User, one: Affected, refusal: Refusal, done: Salvaged
    ) -> None:
        checkpoint_ns, checkpoint_id = one.place
        name = (tenant, user.thread_id, f"{checkpoint_ns} {checkpoint_id}")
        if name in self._told:
            return
        self._told.add(name)
        done.lost += 1
        _log.error(
            "LOST: checkpoint '%s' in namespace '%s' of thread '%s' of tenant %s: the journal has "
            "given up values of it, and they cannot be read any more: %s",
            checkpoint_id,
            checkpoint_ns,
            user.thread_id,
            tenant,
            refusal.message,
        )


def _member(one: HeldMember, data: bytes) -> Member:
    return Member(one.location.sha256, data, one.kind.value)


def sliced(
    found: Iterable[One], size_of: Callable[[One], int], most_bytes: int, most: int
) -> Iterable[list[One]]:
    """Yield what was found in lists, each complete once it has enough bytes or is long enough."""
    some: list[One] = []
    size = 0
    for one in found:
        some.append(one)
        size += size_of(one)
        if size >= most_bytes or len(some) >= most:
            yield some
            some, size = [], 0
    if some:
        yield some
