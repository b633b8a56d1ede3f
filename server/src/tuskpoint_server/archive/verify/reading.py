"""Reading what is verified: what cannot be read is kept apart from what can."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...blobs.api import BlobStore
from ...domain.errors import Reason, Refusal
from ...domain.formats.folding import Manifest
from ...domain.formats.members import settled
from ...domain.limits import MIB
from ...domain.model import BlobLocation
from ...journal.archiving import located
from ...journal.database.database import Database
from ..read.segments import Segments, Stored

KEPT_BYTES = 48 * MIB
"""Stored bytes of the segments that are kept decoded."""

READS_AT_ONCE = 16
"""Blobs that are read beside one another once a batch has failed."""

_DAMAGE = (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND, Reason.BLOB_MALFORMED)


def is_damage(refusal: Refusal) -> bool:
    """Return whether a refused read says something of what is stored."""
    return refusal.reason in _DAMAGE


class Unreadable(Exception):
    """Stored bytes that cannot be read.

    Attributes:
        location: Where they should be.
        refusal: What is wrong.
    """

    def __init__(self, location: BlobLocation, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.location = location
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with stored bytes; fields as in `Verdict`."""

    location: BlobLocation | None
    actual_sha256: bytes
    detail: str


def damage_of(location: BlobLocation, refusal: Refusal) -> Damage:
    """Return what a refused read says of stored bytes."""
    actual = b""
    if refusal.reason is Reason.BLOB_HASH_MISMATCH:
        actual = bytes.fromhex(refusal.metadata["actual"])
    elif refusal.reason is Reason.BLOB_MALFORMED:
        actual = location.sha256
    return Damage(location, actual, refusal.message)


class VerifiedSegments(Segments):
    """Segments of a tenant, read from the blob store itself.

    What is unreadable raises `Unreadable`, and is not read again before `forget`.

    Args:
        database: Knows where they lie.
        tenant: The tenant.
        blobs: The blob store itself, no cache.

    Attributes:
        manifest: Says where segments lie that the journal does not know; `None`: nothing does.
    """

    def __init__(self, database: Database, tenant: str, blobs: BlobStore) -> None:
        super().__init__(blobs, KEPT_BYTES)
        self._database = database
        self._tenant = tenant
        self._store = blobs
        self._unreadable: dict[bytes, Unreadable] = {}
        self._fetched: dict[bytes, bytes] = {}
        self.manifest: Manifest | None = None

    def forget(self) -> None:
        """Forget what could not be read: it may lie elsewhere now."""
        self._unreadable.clear()
        self._fetched.clear()

    def kept(self, location: BlobLocation) -> Stored | None:
        """Return a segment that was read and is still kept."""
        found = self._kept.get(location.sha256)
        return None if found is None else found[0]

    async def load(self, locations: Sequence[BlobLocation]) -> None:
        """Fetch segments, many at a time, and keep them; what is unreadable is passed over.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
        """
        try:
            await self.read(locations)
        except Unreadable:
            pass
        except Refusal as refusal:
            if not is_damage(refusal):
                raise
        else:
            return
        for location in locations:
            with suppress(Unreadable):
                await self._load_one(location)
        self._fetched.clear()

    async def load_named(self, segments: Iterable[Stored]) -> None:
        """Fetch the segments that some name, as `load` does."""
        wanted = {
            member.location.sha256: settled(member.location, one.location.blob_id)
            for one in segments
            for member in one.segment.members
        }
        if wanted:
            await self.load(list(wanted.values()))

    async def fetch(self, locations: Sequence[BlobLocation]) -> Sequence[bytes]:
        """Return the stored bytes at locations, in order.

        Raises:
            Unreadable: The first that cannot be read.
            Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
        """
        wanted = [
            one
            for one in locations
            if one.sha256 not in self._unreadable and one.sha256 not in self._fetched
        ]
        if wanted:
            await self._fetch(wanted)
        for one in locations:
            if one.sha256 in self._unreadable:
                raise self._unreadable[one.sha256]
        found = [self._fetched[one.sha256] for one in locations]
        for one in locations:
            self._fetched.pop(one.sha256, None)
        return found

    async def _fetch(self, wanted: Sequence[BlobLocation]) -> None:
        places = await self._placed(wanted)
        try:
            stored = await self._store.get_many(places)
        except Refusal as refusal:
            if not is_damage(refusal):
                raise
            await self._fetch_each(wanted, places)
            return
        for hint, data in zip(wanted, stored, strict=True):
            self._fetched[hint.sha256] = data

    async def _fetch_each(
        self, wanted: Sequence[BlobLocation], places: Sequence[BlobLocation]
    ) -> None:
        turn = asyncio.Semaphore(READS_AT_ONCE)

        async def read(hint: BlobLocation, place: BlobLocation) -> None:
            async with turn:
                try:
                    self._fetched[hint.sha256] = await self._store.get(place)
                except Refusal as refusal:
                    if not is_damage(refusal):
                        raise
                    self._unreadable[hint.sha256] = Unreadable(place, refusal)

        pairs = zip(wanted, places, strict=True)
        reading = [asyncio.create_task(read(hint, place)) for hint, place in pairs]
        try:
            await asyncio.gather(*reading)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    async def _placed(self, hints: Sequence[BlobLocation]) -> list[BlobLocation]:
        """Return where bytes lie by what was recorded last, else by the hint."""
        known = await self._database.query(
            lambda connection: located.by_hash(
                connection, self._tenant, {hint.sha256 for hint in hints}
            )
        )
        return [known.get(hint.sha256) or self._elsewhere(hint) for hint in hints]

    def _elsewhere(self, hint: BlobLocation) -> BlobLocation:
        told = self.manifest.location(hint.sha256) if self.manifest is not None else None
        return told or hint

    async def _load_one(self, location: BlobLocation) -> None:
        try:
            await self.read([location])
        except Refusal as refusal:
            if not is_damage(refusal):
                raise
            self._unreadable[location.sha256] = Unreadable(location, refusal)
