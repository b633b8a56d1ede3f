"""What of some blobs is needed, by the stored records and by the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...blobs.api import BlobStore
from ...domain.formats.catalogs import read_threads
from ...domain.formats.manifests import Manifest, fold
from ...domain.formats.stored_json import Kind
from ...domain.model import BlobLocation
from ...journal.archiving import lifetimes, status
from ...journal.archiving.lifetimes import DueBlob, HeldMember
from ...journal.database.database import Database
from ..read.segments import placed


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A blob and what it holds."""

    blob: DueBlob
    alive: tuple[HeldMember, ...]  # what is needed, but for the newest catalog
    dead: tuple[HeldMember, ...]
    holds_catalog: bool  # the newest one
    staying: tuple[HeldMember, ...] = ()  # needed, and stays while the others are moved

    @property
    def is_needed(self) -> bool:
        """Whether anything in it is."""
        return bool(self.alive) or self.holds_catalog

    @property
    def alive_bytes(self) -> int:
        """Bytes of what is needed."""
        return sum(one.location.size for one in self.alive)

    @property
    def is_member(self) -> bool:
        """Whether the blob is a member: whoever has its ID may know no more than that."""
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
    """Return what is needed of some blobs; a cache may stand before the store.

    Reads all records of the tenant, so that nothing is let go that recovery would ask for.

    Raises:
        Refusal: `BLOB_NOT_FOUND`, `BLOB_HASH_MISMATCH`, `BLOB_MALFORMED`: a live run cannot be
            read; `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
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
                needed |= manifest.needed()
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
