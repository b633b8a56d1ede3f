"""A pack's way from the spool to certainty.

A pack is what one put stores. It is made in one piece and then only moved. Its state is in
the journal, its exact bytes in the spool; what a restart does in each state:

| found                              | then                                              |
|------------------------------------|---------------------------------------------------|
| spool file that no pack refers to  | it is removed; its content is collected again     |
| `LOOSE`, in any state              | it is forgotten; who needs its members makes them |
| `SPOOLED`                          | exactly those bytes are PUT (again)               |
| `STORED`                           | every member is read back                         |
| `READ_BACK`                        | as `STORED`: its blob may have ended meanwhile    |
| pack whose spool file is damaged   | it is abandoned; its content is collected again   |
| pack that the store cannot take    | the same: limits or settings have changed         |
| pack that refers to loose members  | the same, if they are not there any more          |
| certified, pointer file behind     | the pointer file is written                       |

A member that cannot be read back as it was put sends the pack back to `SPOOLED`. A pack
that the store rejects for what it is (too large, blocked) is abandoned, so that it does not
stand in the way for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..blobs.api import BlobStore, Member
from ..domain.digests import blob_digest
from ..domain.errors import Reason, Refusal
from ..domain.failpoints import failpoint
from ..domain.model import BlobLocation, StoredBlob
from ..journal import archive_blobs, archive_certify, archive_packs
from ..journal.archive_certify import Fenced
from ..journal.archive_packs import StoredPack
from ..journal.archive_plan import PackKind, PackPlan, PackState, PlannedCheckpoint
from .building import ENVELOPE
from .ports import ArchiveJournal
from .spool import Spool, SpoolDamaged

_log = logging.getLogger(__name__)

_REPAIRABLE = (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND)


Expiry = Callable[[StoredBlob], int | None]
"""Returns the time, in microseconds since the epoch, before which a blob is not gone."""

Elsewhere = Mapping[bytes, tuple[BlobLocation, bytes]]
"""Location and bytes, by hash, of members that lie in other packs."""


@dataclass(slots=True)
class Pack:
    """A pack on its way.

    Attributes:
        pack_id: Its number in the journal.
        tenant: The tenant.
        kind: What it holds.
        state: How far it has come.
        spool: Name of the file with its bytes.
        plan: What the journal records in the end.
        members: The members, in order.
        apart: Each member becomes a blob of its own.
        locations: Where the members lie, in order; known from `STORED` on.
        elsewhere: Segments that its catalog leads to and that other packs hold.
        abandoned: Nothing of it will be done any more; its content is collected again.
    """

    pack_id: int
    tenant: str
    kind: PackKind
    state: PackState
    spool: str
    plan: PackPlan
    members: Sequence[Member]
    apart: bool = False
    locations: Sequence[BlobLocation] = ()
    elsewhere: Elsewhere = field(default_factory=dict)
    abandoned: bool = False


class PackRunner:
    """Moves packs from state to state, as many at once as the store takes.

    Args:
        journal: Keeps their states.
        blobs: Where they are stored and read back; no cache in between.
        spool: Keeps their bytes.
        clock_us: Microseconds since the epoch.
        expiry: Says how long a stored blob lasts.
        apart: Store each envelope as a blob of its own.
    """

    def __init__(
        self,
        journal: ArchiveJournal,
        blobs: BlobStore,
        spool: Spool,
        clock_us: Callable[[], int],
        expiry: Expiry,
        *,
        apart: bool = False,
    ) -> None:
        self._journal = journal
        self._blobs = blobs
        self._spool = spool
        self._clock_us = clock_us
        self._expiry = expiry
        self._apart = apart
        self._gate = asyncio.Semaphore(blobs.limits.puts_at_once)
        self._doubtful: set[str] = set()

    async def begin(
        self,
        tenant: str,
        kind: PackKind,
        members: Sequence[Member],
        plan: PackPlan,
        elsewhere: Elsewhere | None = None,
    ) -> Pack:
        """Make the bytes of a new pack durable and record it.

        Raises:
            Refusal: `BLOB_UNAVAILABLE` if the spool cannot be written.
        """
        try:
            name = await asyncio.to_thread(self._spool.write, members)
        except OSError as error:
            raise Refusal(
                Reason.BLOB_UNAVAILABLE, backend="spool", problem=error.strerror or str(error)
            ) from error
        failpoint("archive.after_spool_file")
        now_us = self._clock_us()
        doubtful = tuple(self._doubtful)
        try:
            pack_id = await self._journal.transact(
                lambda connection: archive_packs.record_spooled(
                    connection, tenant, kind, name, plan, now_us, doubtful
                )
            )
        except Exception:  # if it was recorded after all, the next pack or a restart voids it
            self._doubtful.add(name)
            await asyncio.to_thread(self._spool.remove, name)
            raise
        self._doubtful.difference_update(doubtful)
        failpoint("archive.after_spooled")
        return Pack(
            pack_id=pack_id,
            tenant=tenant,
            kind=kind,
            state=PackState.SPOOLED,
            spool=name,
            plan=plan,
            members=members,
            apart=self._is_apart(kind),
            elsewhere=elsewhere or {},
        )

    def _is_apart(self, kind: PackKind) -> bool:
        # Segments of one pack refer to one another by "this quilt".
        return self._apart and kind is PackKind.ENVELOPES

    async def resume(self, stored: StoredPack) -> Pack | None:
        """Take up a pack that an earlier run left; `None` if nothing is left to do."""
        if stored.kind is PackKind.LOOSE:
            await self._abandon(stored.tenant, stored.pack_id, stored.plan, stored.spool)
            return None
        try:
            members = await asyncio.to_thread(self._spool.read, stored.spool)
        except SpoolDamaged as damage:
            _log.error("pack %d is packed anew: %s", stored.pack_id, damage)
            await self._abandon(stored.tenant, stored.pack_id, stored.plan, stored.spool)
            return None
        pack = Pack(
            pack_id=stored.pack_id,
            tenant=stored.tenant,
            kind=stored.kind,
            state=stored.state,
            spool=stored.spool,
            plan=stored.plan,
            members=members,
            apart=self._is_apart(stored.kind),
        )
        # Whether parts are still there, only reading all of them would tell.
        if _has_parts(pack.plan) or not self._can_be_stored(pack):
            _log.warning("pack %d of an earlier run is packed anew", pack.pack_id)
            await self._abandon(pack.tenant, pack.pack_id, pack.plan, pack.spool)
            return None
        if pack.state is not PackState.SPOOLED:
            hashes = [member.sha256 for member in members]
            found = await self._locations(pack.tenant, hashes)
            # Read back once more: what was stored may have ended meanwhile.
            known = all(sha256 in found for sha256 in hashes)
            pack.state = PackState.STORED if known else PackState.SPOOLED
            pack.locations = [found[sha256] for sha256 in hashes] if known else ()
        return pack

    def _can_be_stored(self, pack: Pack) -> bool:
        """Tell whether the store would take a pack that was made with limits of their own."""
        sizes = [len(member.data) for member in pack.members]
        limits = self._blobs.limits
        largest = limits.max_member_bytes
        if largest is not None and any(
            len(member.data) > largest for member in pack.members if member.kind == ENVELOPE
        ):
            return False
        if pack.apart:
            return all(limits.hold([size]) for size in sizes)
        return limits.hold(sizes)

    async def store(self, pack: Pack) -> None:
        """Put a pack and read it back; it is `READ_BACK` then.

        Raises:
            Refusal: Of the blob store or the journal; the pack stays where it is, but one
                that the store rejects is abandoned, and `abandoned` says so.
        """
        async with self._gate:
            if pack.state is PackState.SPOOLED:
                try:
                    await self._store(pack)
                except Refusal as refusal:
                    if refusal.reason is Reason.BLOB_REJECTED:
                        await self._abandon(pack.tenant, pack.pack_id, pack.plan, pack.spool)
                        pack.abandoned = True
                    raise
            if pack.state is PackState.STORED:
                await self._read_back(pack)

    async def settle(self, pack: Pack) -> None:
        """Store a pack that is not final, and record what it holds.

        Raises:
            Refusal: Of the blob store or the journal; the pack stays where it is.
        """
        await self.store(pack)
        if pack.kind is PackKind.ENVELOPES:
            await self._journal.transact(
                lambda connection: archive_packs.record_uploaded(
                    connection, pack.tenant, pack.pack_id, pack.plan
                )
            )
        else:
            await self._journal.transact(
                lambda connection: archive_packs.drop(connection, pack.pack_id)
            )
        failpoint("archive.after_settled")
        await self.discard_spooled(pack)

    async def finish(self, pack: Pack) -> tuple[PlannedCheckpoint, ...] | None:
        """Move a final pack on until it is certified.

        Returns:
            The checkpoints certified, or `None` if the pack was void and its content has
            to be collected again.

        Raises:
            Refusal: Of the blob store or the journal; the pack stays where it is.
        """
        await self.store(pack)
        return await self._certify(pack)

    async def _locations(self, tenant: str, hashes: Sequence[bytes]) -> dict[bytes, BlobLocation]:
        return await self._journal.query(
            lambda connection: archive_packs.members_at(connection, tenant, hashes)
        )

    async def _store(self, pack: Pack) -> None:
        receipt = await self._blobs.put(pack.members, apart=pack.apart)
        failpoint("archive.after_put")
        now_us = self._clock_us()

        def record(connection: Any) -> None:
            archive_packs.record_stored(connection, pack.tenant, pack.pack_id, receipt.locations)
            archive_blobs.record(connection, pack.tenant, receipt.blobs, now_us, self._expiry)

        await self._journal.transact(record)
        pack.locations = receipt.locations
        pack.state = PackState.STORED
        failpoint("archive.after_stored")

    async def _read_back(self, pack: Pack) -> None:
        try:
            found = await self._blobs.get_many(pack.locations)
            for member, location, data in zip(pack.members, pack.locations, found, strict=True):
                if data != member.data:
                    raise Refusal(
                        Reason.BLOB_HASH_MISMATCH,
                        blob_id=location.blob_id,
                        expected=member.sha256.hex(),
                        actual=blob_digest(data).hex(),
                    )
        except Refusal as refusal:
            if refusal.reason in _REPAIRABLE:
                await self._move(pack, PackState.SPOOLED)
            raise
        await self._move(pack, PackState.READ_BACK)
        failpoint("archive.after_read_back")

    async def _certify(self, pack: Pack) -> tuple[PlannedCheckpoint, ...] | None:
        try:
            members = await self._leading_to(pack)
            now_us = self._clock_us()
            certified = await self._journal.transact(
                lambda connection: archive_certify.certify(
                    connection, pack.tenant, pack.pack_id, pack.plan, members, now_us
                )
            )
        except Fenced as fenced:
            _log.warning("pack %d is void: %s", pack.pack_id, fenced)
            await self._abandon(pack.tenant, pack.pack_id, pack.plan, pack.spool)
            return None
        failpoint("archive.after_certified")
        return certified

    async def _leading_to(self, pack: Pack) -> dict[bytes, tuple[BlobLocation, bytes]]:
        """Return a final pack's members, and the segments that it finds elsewhere.

        Raises:
            Fenced: One of those is gone.
            Refusal: `BLOB_UNAVAILABLE`, or of the journal.
        """
        members = {
            member.sha256: (location, member.data)
            for member, location in zip(pack.members, pack.locations, strict=True)
        }
        members.update(pack.elsewhere)
        lacking = [
            planned.sha256
            for planned in pack.plan.manifests
            if planned.rewritten and planned.sha256 not in members
        ]
        if lacking:  # of a pack that was taken up after a restart
            found = await self._locations(pack.tenant, lacking)
            if len(found) < len(lacking):
                raise Fenced("nobody knows where a segment lies that its catalog leads to")
            locations = [found[sha256] for sha256 in lacking]
            try:
                stored = await self._blobs.get_many(locations)
            except Refusal as refusal:
                if refusal.reason in _REPAIRABLE:
                    raise Fenced(refusal.message) from refusal
                raise
            for location, data in zip(locations, stored, strict=True):
                members[location.sha256] = (location, data)
        return members

    async def discard_spooled(self, pack: Pack) -> None:
        """Remove the spool file of a certified pack."""
        await asyncio.to_thread(self._spool.remove, pack.spool)

    async def _move(self, pack: Pack, state: PackState) -> None:
        await self._journal.transact(
            lambda connection: archive_packs.record_state(connection, pack.pack_id, state)
        )
        pack.state = state

    async def _abandon(self, tenant: str, pack_id: int, plan: PackPlan, spool: str) -> None:
        await self._journal.transact(
            lambda connection: archive_packs.abandon(connection, tenant, pack_id, plan)
        )
        await asyncio.to_thread(self._spool.remove, spool)


def _has_parts(plan: PackPlan) -> bool:
    return any(envelope.parts for planned in plan.checkpoints for envelope in planned.envelopes)
