"""Reading what is verified: what cannot be read is kept apart from what can."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from ...blobs.api import BlobStore
from ...domain.errors import Reason, Refusal
from ...domain.formats.manifests import Manifest
from ...domain.formats.stored_json import settled
from ...domain.limits import MIB
from ...domain.model import BlobLocation
from ...journal.checkpoints import located
from ...journal.database.database import Database
from ..read.segments import Segments, Stored

KEPT_BYTES = 48 * MIB
"""Stored bytes of the segments that are kept decoded."""

READS_AT_ONCE = 16
"""Blobs that are read beside one another once a batch has failed."""

_DAMAGE = (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND, Reason.BLOB_MALFORMED)


class Damage(Exception):
    """Stored bytes that cannot be read, or are not what was recorded; fields as in `Verdict`."""

    def __init__(self, location: BlobLocation, actual_sha256: bytes, detail: str) -> None:
        super().__init__(detail)
        self.location = location
        self.actual_sha256 = actual_sha256
        self.detail = detail

    @property
    def mismatch(self) -> bytes:
        """Hash of the bytes that were found to have another one; empty: there are none."""
        same = self.actual_sha256 in (b"", self.location.sha256)
        return b"" if same else self.location.sha256


@contextmanager
def damage_at(location: BlobLocation) -> Iterator[None]:
    """Raise `Damage` for a refusal that says something of what is stored at a location."""
    try:
        yield
    except Refusal as refusal:
        if refusal.reason not in _DAMAGE:
            raise
        actual = b""
        if refusal.reason is Reason.BLOB_HASH_MISMATCH:
            actual = bytes.fromhex(refusal.metadata["actual"])
        elif refusal.reason is Reason.BLOB_MALFORMED:
            actual = location.sha256
        raise Damage(location, actual, refusal.message) from refusal


class VerifiedSegments(Segments):
    """Segments of a tenant, read from the blob store itself.

    What is unreadable raises `Damage`, and is not read again before `forget`.

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
        self._damaged: dict[bytes, Damage] = {}
        self._fetched: dict[bytes, bytes] = {}
        self.manifest: Manifest | None = None

    def forget(self) -> None:
        """Forget what could not be read: it may lie elsewhere now."""
        self._damaged.clear()
        self._fetched.clear()

    def kept(self, location: BlobLocation) -> Stored | None:
        """Return a segment that was read and is still kept."""
        found = self._kept.get(location.sha256)
        return None if found is None else found[0]

    async def load(self, locations: Iterable[BlobLocation]) -> None:
        """Fetch segments, many at a time, and keep them; what is unreadable is passed over.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
        """
        wanted = [one for one in locations if one.sha256 not in self._kept]
        await self._prefetch(wanted)
        for location in wanted:
            try:
                with damage_at(location):
                    await self.read([location])
            except Damage as damage:
                self._damaged[location.sha256] = damage
        self._fetched.clear()

    async def load_named(self, segments: Iterable[Stored]) -> None:
        """Fetch the segments that some name, as `load` does."""
        wanted = {
            member.location.sha256: settled(member.location, one.location.blob_id)
            for one in segments
            for member in one.segment.members
        }
        await self.load(wanted.values())

    async def fetch(self, locations: Sequence[BlobLocation]) -> Sequence[bytes]:
        """Return the stored bytes at locations, in order.

        Raises:
            Damage: The first that cannot be read.
            Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
        """
        await self._prefetch(locations)
        for one in locations:
            if one.sha256 in self._damaged:
                raise self._damaged[one.sha256]
        found = [self._fetched[one.sha256] for one in locations]
        for one in locations:
            self._fetched.pop(one.sha256, None)
        return found

    async def _prefetch(self, locations: Iterable[BlobLocation]) -> None:
        """Read what is neither read nor known to be unreadable."""
        known = self._damaged.keys() | self._fetched.keys()
        hints = {one.sha256: one for one in locations if one.sha256 not in known}
        if not hints:
            return
        places = await self._placed(hints)
        found: list[bytes | Damage] = []
        try:
            found += await self._blobs.get_many(places)
        except Refusal as refusal:
            if refusal.reason not in _DAMAGE:
                raise
            for start in range(0, len(places), READS_AT_ONCE):
                some = places[start : start + READS_AT_ONCE]
                found += await asyncio.gather(*map(self._one, some))
        for sha256, one in zip(hints, found, strict=True):
            if isinstance(one, Damage):
                self._damaged[sha256] = one
            else:
                self._fetched[sha256] = one

    async def _one(self, place: BlobLocation) -> bytes | Damage:
        try:
            with damage_at(place):
                return await self._blobs.get(place)
        except Damage as damage:
            return damage

    async def _placed(self, hints: dict[bytes, BlobLocation]) -> list[BlobLocation]:
        """Return where bytes lie by what was recorded last, else by the manifest or the hint."""
        known = await self._database.query(
            partial(located.by_hash, tenant=self._tenant, hashes=hints.keys())
        )
        named = self.manifest.location if self.manifest is not None else hints.get
        return [known.get(sha256) or named(sha256) or hint for sha256, hint in hints.items()]
