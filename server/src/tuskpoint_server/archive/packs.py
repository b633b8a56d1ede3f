"""A pack's way from the spool to certainty.

A pack is made in one piece and then only moved. Its state is in the journal, its exact
bytes in the spool; what a restart does in each state:

| found                              | then                                              |
|------------------------------------|---------------------------------------------------|
| spool file that no pack refers to  | it is removed; its content is collected again     |
| `SPOOLED`                          | exactly those bytes are PUT (again)               |
| `STORED`                           | every member is read back                         |
| `READ_BACK`                        | it is certified                                   |
| pack whose spool file is damaged   | it is abandoned; its content is collected again   |
| certified, pointer file behind     | the pointer file is written                       |

A member that cannot be read back as it was put sends the pack back to `SPOOLED`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..blobs.api import BlobStore, Member
from ..domain.digests import blob_digest
from ..domain.errors import Reason, Refusal
from ..domain.failpoints import failpoint
from ..domain.model import BlobLocation
from ..journal import archive_packs
from ..journal.archive_packs import Fenced, StoredPack
from ..journal.archive_plan import PackPlan, PackState, PlannedCheckpoint
from .building import BuiltPack
from .ports import ArchiveJournal
from .spool import Spool, SpoolDamaged

_log = logging.getLogger(__name__)

_READS_AT_ONCE = 16
_REPAIRABLE = (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND)


@dataclass(slots=True)
class Pack:
    """A pack on its way. `locations` are known from `STORED` on, in order of members."""

    pack_id: int
    tenant: str
    state: PackState
    spool: str
    plan: PackPlan
    members: Sequence[Member]
    locations: Sequence[BlobLocation] = ()


class PackRunner:
    """Moves packs from state to state.

    Args:
        journal: Keeps their states.
        blobs: Where they are stored and read back; no cache in between.
        spool: Keeps their bytes.
        clock_us: Microseconds since the epoch.
    """

    def __init__(
        self, journal: ArchiveJournal, blobs: BlobStore, spool: Spool, clock_us: Callable[[], int]
    ) -> None:
        self._journal = journal
        self._blobs = blobs
        self._spool = spool
        self._clock_us = clock_us
        self._doubtful: set[str] = set()

    async def begin(self, tenant: str, built: BuiltPack) -> Pack:
        """Make the bytes of a new pack durable and record it.

        Raises:
            Refusal: `BLOB_UNAVAILABLE` if the spool cannot be written.
        """
        try:
            name = await asyncio.to_thread(self._spool.write, built.members)
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
                    connection, tenant, name, built.plan, now_us, doubtful
                )
            )
        except Exception:  # if it was recorded after all, the next pack or a restart voids it
            self._doubtful.add(name)
            await asyncio.to_thread(self._spool.remove, name)
            raise
        self._doubtful.difference_update(doubtful)
        failpoint("archive.after_spooled")
        return Pack(pack_id, tenant, PackState.SPOOLED, name, built.plan, built.members)

    async def resume(self, stored: StoredPack) -> Pack | None:
        """Take up a pack that an earlier run left; `None` if it had to be abandoned."""
        try:
            members = await asyncio.to_thread(self._spool.read, stored.spool)
        except SpoolDamaged as damage:
            _log.error("pack %d is packed anew: %s", stored.pack_id, damage)
            await self._abandon(stored.tenant, stored.pack_id, stored.plan, stored.spool)
            return None
        pack = Pack(stored.pack_id, stored.tenant, stored.state, stored.spool, stored.plan, members)
        if pack.state is not PackState.SPOOLED:
            hashes = [member.sha256 for member in members]
            found = await self._journal.query(
                lambda connection: archive_packs.members_at(connection, pack.tenant, hashes)
            )
            pack.locations = [found[sha256] for sha256 in hashes]
        return pack

    async def finish(self, pack: Pack) -> tuple[PlannedCheckpoint, ...] | None:
        """Move a pack on until it is certified.

        Returns:
            The checkpoints certified, or `None` if the pack was void and its content has
            to be collected again.

        Raises:
            Refusal: Of the blob store or the journal; the pack stays where it is.
        """
        if pack.state is PackState.SPOOLED:
            await self._store(pack)
        if pack.state is PackState.STORED:
            await self._read_back(pack)
        return await self._certify(pack)

    async def _store(self, pack: Pack) -> None:
        locations = await self._blobs.put(pack.members)
        failpoint("archive.after_put")
        await self._journal.transact(
            lambda connection: archive_packs.record_stored(
                connection, pack.tenant, pack.pack_id, locations
            )
        )
        pack.locations = locations
        pack.state = PackState.STORED
        failpoint("archive.after_stored")

    async def _read_back(self, pack: Pack) -> None:
        gate = asyncio.Semaphore(_READS_AT_ONCE)

        async def check(member: Member, location: BlobLocation) -> None:
            async with gate:
                data = await self._blobs.get(location)
            if data != member.data:
                raise Refusal(
                    Reason.BLOB_HASH_MISMATCH,
                    blob_id=location.blob_id,
                    expected=member.sha256.hex(),
                    actual=blob_digest(data).hex(),
                )

        checks = [
            check(member, location)
            for member, location in zip(pack.members, pack.locations, strict=True)
        ]
        outcomes = await asyncio.gather(*checks, return_exceptions=True)
        failures = [outcome for outcome in outcomes if outcome is not None]
        if failures:
            if any(
                isinstance(failure, Refusal) and failure.reason in _REPAIRABLE
                for failure in failures
            ):
                await self._move(pack, PackState.SPOOLED)
            raise failures[0]
        await self._move(pack, PackState.READ_BACK)
        failpoint("archive.after_read_back")

    async def _certify(self, pack: Pack) -> tuple[PlannedCheckpoint, ...] | None:
        members = {
            member.sha256: (location, member.data)
            for member, location in zip(pack.members, pack.locations, strict=True)
        }
        now_us = self._clock_us()
        try:
            certified = await self._journal.transact(
                lambda connection: archive_packs.certify(
                    connection, pack.tenant, pack.pack_id, pack.plan, members, now_us
                )
            )
        except Fenced:
            _log.warning("pack %d is void: another catalog was certified first", pack.pack_id)
            await self._abandon(pack.tenant, pack.pack_id, pack.plan, pack.spool)
            return None
        failpoint("archive.after_certified")
        return certified

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
