"""A blob store in memory whose blobs expire, get lost, or cannot be renewed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuskpoint_server.blobs.api import (
    BlobMember,
    ListedMember,
    Progress,
    PutReceipt,
    StoreLimits,
    verify_bytes,
)
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation, StoredBlob

UNIT_BYTES = 1000
UNIT_COST = 7


@dataclass
class Quilt:
    """Members by hash, and the epoch at whose start the members are gone."""

    members: dict[bytes, BlobMember]
    end_epoch: int


class EpochStore:
    """Store each put as one quilt; equal members in equal order are the same quilt.

    Args:
        clock_us: Microseconds since the epoch.
        epoch_s: Length of an epoch.
        epochs: Epochs that a put lasts, the current one included.
        max_put_bytes: Most bytes of a put.

    Attributes:
        quilts: Stored quilts, by blob ID.
        puts: Blob IDs in the order of the puts.
        renewals: IDs of renewed blobs.
        refuse: Returns whether to refuse to store the blob with an ID.
    """

    backend = "epochs"

    def __init__(
        self,
        clock_us: Callable[[], int],
        epoch_s: float,
        epochs: int,
        max_put_bytes: int | None = None,
    ) -> None:
        self._clock_us = clock_us
        self.limits = StoreLimits(
            max_members=600,
            max_put_bytes=max_put_bytes,
            max_member_bytes=max_put_bytes,
            puts_at_once=4,
        )
        self._first_epoch = 0
        self.epoch_s: float | None = epoch_s
        self.epochs = epochs
        self.quilts: dict[str, Quilt] = {}
        self.puts: list[str] = []
        self.renewals: list[str] = []
        self.refuse: Callable[[str], bool] = lambda _: False

    @property
    def epoch(self) -> int:
        """The current epoch."""
        assert self.epoch_s is not None
        return int(self._clock_us() / 1e6 / self.epoch_s) - self._first_epoch

    def live(self) -> set[str]:
        """IDs of the blobs that have not expired."""
        return {name for name, quilt in self.quilts.items() if quilt.end_epoch > self.epoch}

    def wipe(self) -> None:
        """Lose all blobs, and restart with the first epoch."""
        self.quilts.clear()
        self._first_epoch += self.epoch

    def lose(self, blob_id: str) -> None:
        """Lose a blob."""
        del self.quilts[blob_id]

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        return BlobLocation(sha256, size, "", sha256.hex())

    async def put(self, members: Sequence[BlobMember], *, standalone: bool = False) -> PutReceipt:
        if standalone:
            receipts = [await self._put([member], standalone=True) for member in members]
            return PutReceipt(
                tuple(place for receipt in receipts for place in receipt.locations),
                tuple(blob for receipt in receipts for blob in receipt.blobs),
            )
        return await self._put(members, standalone=False)

    async def _put(self, members: Sequence[BlobMember], *, standalone: bool) -> PutReceipt:
        assert standalone or self.limits.hold([len(member.data) for member in members])
        name = hashlib.sha256(b"".join(member.sha256 for member in members)).hexdigest()[:43]
        if self.refuse(name):
            raise Refusal(Reason.BLOB_UNAVAILABLE, backend="test", problem="on purpose")
        self.puts.append(name)
        size = sum(len(member.data) for member in members)
        locations = tuple(
            BlobLocation(
                member.sha256, len(member.data), name, "" if standalone else member.sha256.hex()
            )
            for member in members
        )
        epoch, known = self.epoch, self.quilts.get(name)
        if known is not None and known.end_epoch >= epoch + self.epochs:
            stored = StoredBlob(name, size_bytes=size, end_epoch=known.end_epoch)
            return PutReceipt(locations, (stored,))
        end = epoch + self.epochs
        self.quilts[name] = Quilt({member.sha256: member for member in members}, end)
        stored = StoredBlob(name, f"o{len(self.puts)}", size, UNIT_BYTES, UNIT_COST, epoch, end)
        return PutReceipt(locations, (stored,))

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        member = self._quilt(location.blob_id).members.get(location.sha256)
        if member is None:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=location.blob_id)
        return verify_bytes(member.data, location)

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        return [await self.get(location) for location in locations]

    async def list_blob(self, blob_id: str) -> Sequence[ListedMember]:
        return [
            ListedMember(BlobLocation(sha256, 0, blob_id, sha256.hex()), member.kind)
            for sha256, member in self._quilt(blob_id).members.items()
        ]

    async def renew(self, blob_id: str) -> PutReceipt:
        members = list(self._quilt(blob_id).members.values())
        receipt = await self.put(members)
        self.renewals.append(blob_id)
        return receipt

    async def close(self) -> None:
        pass

    def _quilt(self, blob_id: str) -> Quilt:
        quilt = self.quilts.get(blob_id)
        if quilt is None or quilt.end_epoch <= self.epoch:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id)
        return quilt
