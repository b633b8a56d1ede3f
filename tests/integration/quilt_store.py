"""A blob store in memory that packs members into quilts, as Walrus does."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence

from tuskpoint_server.blobs.api import (
    Listed,
    Member,
    Progress,
    Receipt,
    StoredBlob,
    StoreLimits,
)
from tuskpoint_server.blobs.verified import verified
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import BlobLocation

LIMITS = StoreLimits(max_members=12, max_put_bytes=60_000, max_member_bytes=8_000, puts_at_once=3)


class QuiltStore:
    """Only storing tells where bytes lie; a put has limits."""

    def __init__(self, limits: StoreLimits = LIMITS) -> None:
        self._limits = limits
        self.blobs: dict[str, dict[str, tuple[bytes, str]]] = {}
        self.puts: list[int] = []
        self.most_at_once = 0
        self._running = 0
        self.refuse: Callable[[Sequence[Member]], bool] = lambda _: False
        self.reject: Callable[[Sequence[Member]], bool] = lambda _: False

    @property
    def backend(self) -> str:
        return "quilts"

    @property
    def limits(self) -> StoreLimits:
        return self._limits

    @property
    def epoch_s(self) -> float | None:
        return None

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        return BlobLocation(sha256, size, "", sha256.hex())

    async def put(self, members: Sequence[Member], *, apart: bool = False) -> Receipt:
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        try:
            await asyncio.sleep(0)
            return self._put(members, apart=apart)
        finally:
            self._running -= 1

    def _put(self, members: Sequence[Member], *, apart: bool) -> Receipt:
        limits = self._limits
        assert len({member.sha256 for member in members}) == len(members)
        assert limits.max_members is None or len(members) <= limits.max_members
        sizes = [len(member.data) for member in members]
        assert limits.max_put_bytes is None or sum(sizes) <= limits.max_put_bytes
        cut = [len(member.data) for member in members if member.kind in ("envelope", "part")]
        assert limits.max_member_bytes is None or max(cut, default=0) <= limits.max_member_bytes
        if self.refuse(members):
            raise Refusal(Reason.BLOB_UNAVAILABLE, backend="quilts", problem="as told")
        if self.reject(members):
            raise Refusal(Reason.BLOB_REJECTED, backend="quilts", problem="as told")
        quilts = [[member] for member in members] if apart else [members]
        locations: list[BlobLocation] = []
        for quilt in quilts:
            names = sorted(member.sha256 for member in quilt)
            blob_id = hashlib.sha256(b"quilt" + b"".join(names)).hexdigest()
            self.puts.append(len(quilt))
            patches = self.blobs.setdefault(blob_id, {})
            for member in quilt:
                identifier = "" if apart else member.sha256.hex()
                patches[identifier] = (member.data, member.kind)
                locations.append(BlobLocation(member.sha256, len(member.data), blob_id, identifier))
        return Receipt(
            tuple(locations),
            tuple(StoredBlob(blob_id) for blob_id in {x.blob_id for x in locations}),
        )

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        try:
            data, _ = self.blobs[location.blob_id][location.identifier]
        except KeyError:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=location.blob_id) from None
        return verified(data, location)

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        return [await self.get(location) for location in locations]

    async def list_blob(self, blob_id: str) -> Sequence[Listed]:
        return [
            Listed(
                BlobLocation(hashlib.sha256(data).digest(), len(data), blob_id, identifier), kind
            )
            for identifier, (data, kind) in self.blobs[blob_id].items()
        ]

    async def renew(self, blob_id: str) -> Receipt:
        listed = await self.list_blob(blob_id)
        return Receipt(tuple(one.location for one in listed), (StoredBlob(blob_id),))

    async def close(self) -> None:
        return None
