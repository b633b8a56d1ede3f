"""Reading what is verified: all of it is looked at, whatever is wrong with some."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..blobs.api import BlobStore
from ..domain.envelope import MAX_ENVELOPE_BYTES
from ..domain.errors import Reason, Refusal
from ..domain.model import BlobLocation
from ..domain.parts import decode_parts, join
from ..journal import archive_packs
from .ports import ArchiveJournal

READS_AT_ONCE = 32
"""Blobs that are read beside one another once a batch has failed."""

_DAMAGE = (Reason.BLOB_HASH_MISMATCH, Reason.BLOB_NOT_FOUND, Reason.BLOB_MALFORMED)

Found = Mapping[bytes, bytes | Refusal]
"""Hash to stored bytes, or to what is wrong with them."""


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


class VerifyingReader:
    """Reads stored bytes of a tenant and keeps what is wrong with them.

    Args:
        journal: Knows where they lie.
        tenant: The tenant.
        blobs: The blob store itself.
        on_mismatch: Called for each blob that is found to have another hash than recorded.
    """

    def __init__(
        self,
        journal: ArchiveJournal,
        tenant: str,
        blobs: BlobStore,
        on_mismatch: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._tenant = tenant
        self._blobs = blobs
        self.on_mismatch = on_mismatch

    async def placed(self, hints: Sequence[BlobLocation]) -> list[BlobLocation]:
        """Return where bytes lie by what the journal recorded last, else by the hint."""
        places = await self._journal.query(
            lambda connection: archive_packs.members_at(
                connection, self._tenant, [hint.sha256 for hint in hints]
            )
        )
        found = (places.get(hint.sha256) for hint in hints)
        return [
            place if place is not None and place.blob_id else hint
            for place, hint in zip(found, hints, strict=True)
        ]

    async def fetch(self, locations: Iterable[BlobLocation]) -> Found:
        """Return the bytes at locations, by hash, or what is wrong with them.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`.
        """
        wanted = {at.sha256: at for at in locations}
        try:
            stored = await self._blobs.get_many(list(wanted.values()))
        except Refusal as refusal:
            if refusal.reason not in _DAMAGE:
                raise
            return await self._fetch_each(wanted)
        return dict(zip(wanted, stored, strict=True))

    async def _fetch_each(self, wanted: Mapping[bytes, BlobLocation]) -> Found:
        turn = asyncio.Semaphore(READS_AT_ONCE)
        found: dict[bytes, bytes | Refusal] = {}

        async def read(location: BlobLocation) -> None:
            async with turn:
                try:
                    found[location.sha256] = await self._blobs.get(location)
                except Refusal as refusal:
                    if refusal.reason not in _DAMAGE:
                        raise
                    found[location.sha256] = refusal

        reading = [asyncio.create_task(read(location)) for location in wanted.values()]
        try:
            await asyncio.gather(*reading)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        return found

    async def joined(self, data: bytes, location: BlobLocation) -> bytes | Damage:
        """Return the envelope whose list of parts this is, or what is wrong with it.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`.
        """
        try:
            listed = decode_parts(data, location, MAX_ENVELOPE_BYTES)
            parts = await self.placed(listed.parts)
            found = await self.fetch(parts)
            pieces: list[bytes] = []
            for part in parts:
                piece = found[part.sha256]
                if isinstance(piece, Refusal):
                    return damage_of(part, piece)
                pieces.append(piece)
            return await asyncio.to_thread(join, listed, pieces, location.blob_id)
        except Refusal as refusal:
            if refusal.reason not in _DAMAGE:
                raise
            return damage_of(location, refusal)
