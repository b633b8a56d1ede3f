"""A blob store in memory that fails in every way a store over a network does."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.simulation.crashes import Life
from tuskpoint_server.blobs.api import (
    Listed,
    Member,
    Progress,
    Receipt,
    StoredBlob,
    StoreLimits,
)
from tuskpoint_server.blobs.verified import verified
from tuskpoint_server.domain.digests import blob_digest
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import BlobLocation

EPOCH_S = 14 * 24 * 3600.0
EPOCHS = 3


@dataclass(frozen=True)
class Shape:
    """What kind of store it is.

    Attributes:
        name: "directory" or "walrus".
        limits: What a put may hold.
        epochs: Epochs that a blob lasts; `None`: for ever.
    """

    name: str
    limits: StoreLimits
    epochs: int | None = None

    @property
    def quilts(self) -> bool:
        """Only storing tells where bytes lie."""
        return self.name == "walrus"


DIRECTORY = Shape("directory", StoreLimits())
WALRUS = Shape("walrus", StoreLimits(12, 8192, 6000, 2), epochs=EPOCHS)


@dataclass
class StoreFaults:
    """How likely each fault is at each call."""

    refuses: float = 0.0
    """Nothing is stored, and the caller is told so."""
    lies: float = 0.0
    """All is stored, and the caller is told that it is not."""
    dawdles: float = 0.0
    """It takes minutes."""
    hides: float = 0.0
    """It is not found for a while after the put."""
    corrupts: float = 0.0
    """A read returns other bytes, or fewer."""
    unreadable: float = 0.0
    """A read fails."""


@dataclass
class Blob:
    """A stored blob: the bytes and the kind of each patch, by identifier."""

    patches: dict[str, tuple[bytes, str]]
    visible_at: float
    end_epoch: int | None


@dataclass
class Vault:
    """What the store holds; survives every crash of the server.

    Attributes:
        now_s: Virtual time.
        blobs: By ID.
        outage: Times between which nothing works.
    """

    shape: Shape
    now_s: Callable[[], float]
    blobs: dict[str, Blob] = field(default_factory=dict)
    outage: tuple[float, float] = (0.0, 0.0)

    def bytes_at(self, location: BlobLocation) -> bytes:
        """Return what lies at a location, without any fault.

        Raises:
            KeyError: Nothing does, or nothing any more.
        """
        blob = self.blobs[location.blob_id]
        if blob.end_epoch is not None and blob.end_epoch * EPOCH_S <= self.now_s():
            raise KeyError(location.blob_id)
        return blob.patches[location.identifier][0]


class FaultyStore:
    """`blobs.api.BlobStore` over a vault, for one life of the server."""

    def __init__(self, vault: Vault, life: Life, faults: StoreFaults, rng: random.Random) -> None:
        self.vault = vault
        self._life = life
        self.faults = faults
        self._rng = rng
        self._running = 0
        self.before_put: Callable[[Sequence[Member]], None] = lambda members: None

    @property
    def backend(self) -> str:
        return "simulated"

    @property
    def limits(self) -> StoreLimits:
        return self.vault.shape.limits

    @property
    def epoch_s(self) -> float | None:
        return None if self.vault.shape.epochs is None else EPOCH_S

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        if self.vault.shape.quilts:
            return BlobLocation(sha256, size, "", sha256.hex())
        return BlobLocation(sha256, size, _name(b"blob", sha256))

    async def put(self, members: Sequence[Member], *, apart: bool = False) -> Receipt:
        self._life.check()
        self.before_put(members)
        self._check_limits(members, apart=apart)
        self._running += 1
        try:
            if self._running > self.limits.puts_at_once:
                raise AssertionError(f"{self._running} puts at once")
            await self._travel(self.faults.refuses)
            self._life.point("store.before_put")
            receipt = self._keep(members, apart=apart)
            self._life.point("store.after_put")
            await self._travel(self.faults.lies)
            return receipt
        finally:
            self._running -= 1

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        await self._travel(self.faults.unreadable)
        return self._read(location)

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        await self._travel(self.faults.unreadable)
        return [self._read(location) for location in locations]

    async def list_blob(self, blob_id: str) -> Sequence[Listed]:
        await self._travel(self.faults.unreadable)
        return [
            Listed(self._located(blob_id, identifier, data, size=0), kind)
            for identifier, (data, kind) in self._blob(blob_id).patches.items()
        ]

    async def renew(self, blob_id: str) -> Receipt:
        await self._travel(self.faults.refuses)
        blob = self._blob(blob_id)
        blob.end_epoch = self._end_epoch()
        self._life.point("store.after_renewal")
        await self._travel(self.faults.lies)
        locations = [
            self._located(blob_id, identifier, data)
            for identifier, (data, _) in blob.patches.items()
        ]
        return Receipt(tuple(locations), (self._about(blob_id, blob),))

    async def close(self) -> None:
        pass

    # --- inside -----------------------------------------------------------------------

    def _check_limits(self, members: Sequence[Member], *, apart: bool) -> None:
        limits = self.limits
        sizes = [len(member.data) for member in members]
        if len({member.sha256 for member in members}) != len(members):
            raise AssertionError("a put names a member twice")
        if any(blob_digest(member.data) != member.sha256 for member in members):
            raise AssertionError("a put holds a member with another hash than its own")
        if limits.max_member_bytes is not None and max(sizes) > limits.max_member_bytes:
            raise AssertionError(f"a put holds a member of {max(sizes)} bytes")
        if apart:
            return
        if limits.max_members is not None and len(sizes) > limits.max_members:
            raise AssertionError(f"a put holds {len(sizes)} members")
        if limits.max_put_bytes is not None and sum(sizes) > limits.max_put_bytes:
            raise AssertionError(f"a put holds {sum(sizes)} bytes")

    async def _travel(self, fault: float) -> None:
        """Take time, and perhaps fail."""
        rng = self._rng
        self._life.check()
        dawdles = rng.random() < self.faults.dawdles
        seconds = rng.uniform(30, 600) if dawdles else rng.choice((0.0, 0.0, 0.2, 4.0))
        if seconds:
            await asyncio.sleep(seconds)
        self._life.check()
        begin, end = self.vault.outage
        if begin <= _now() < end or rng.random() < fault:
            raise Refusal(Reason.BLOB_UNAVAILABLE, backend=self.backend, problem="simulated")

    def _keep(self, members: Sequence[Member], *, apart: bool) -> Receipt:
        groups = [[member] for member in members]
        if self.vault.shape.quilts and not apart:
            groups = [list(members)]
        made: dict[str, Blob] = {}
        locations: dict[bytes, BlobLocation] = {}
        for group in groups:
            blob_id = self._blob_id(group, apart=apart)
            alone = apart or not self.vault.shape.quilts
            blob = self._store(
                blob_id,
                {
                    "" if alone else member.sha256.hex(): (member.data, member.kind)
                    for member in group
                },
            )
            made[blob_id] = blob
            for identifier, (data, _) in blob.patches.items():
                location = self._located(blob_id, identifier, data)
                locations[location.sha256] = location
        return Receipt(
            tuple(locations[member.sha256] for member in members),
            tuple(self._about(blob_id, blob) for blob_id, blob in made.items()),
        )

    def _blob_id(self, group: Sequence[Member], *, apart: bool) -> str:
        if apart or not self.vault.shape.quilts:
            return _name(b"blob", group[0].sha256)
        return _name(b"quilt", *sorted(member.sha256 for member in group))

    def _store(self, blob_id: str, patches: dict[str, tuple[bytes, str]]) -> Blob:
        blob = self.vault.blobs.get(blob_id)
        if blob is None or _expired(blob):
            hidden = self._rng.random() < self.faults.hides
            visible_at = _now() + (self._rng.uniform(1, 120) if hidden else 0.0)
            blob = self.vault.blobs[blob_id] = Blob(patches, visible_at, None)
        blob.end_epoch = self._end_epoch()
        return blob

    def _end_epoch(self) -> int | None:
        epochs = self.vault.shape.epochs
        return None if epochs is None else int(_now() // EPOCH_S) + epochs

    def _about(self, blob_id: str, blob: Blob) -> StoredBlob:
        size = sum(len(data) for data, _ in blob.patches.values())
        epoch = None if self.vault.shape.epochs is None else int(_now() // EPOCH_S)
        return StoredBlob(
            blob_id, size_bytes=size, billed_bytes=size, epoch=epoch, end_epoch=blob.end_epoch
        )

    def _blob(self, blob_id: str) -> Blob:
        blob = self.vault.blobs.get(blob_id)
        if blob is None or blob.visible_at > _now() or _expired(blob):
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id)
        return blob

    def _read(self, location: BlobLocation) -> bytes:
        found = self._blob(location.blob_id).patches.get(location.identifier)
        if found is None:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=location.blob_id)
        data = found[0]
        if self._rng.random() < self.faults.corrupts:
            data = self._damaged(data)
        return verified(data, location)

    def _damaged(self, data: bytes) -> bytes:
        if not data or self._rng.random() < 0.5:
            return data[: len(data) // 2]
        place = self._rng.randrange(len(data))
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    def _located(
        self, blob_id: str, identifier: str, data: bytes, size: int | None = None
    ) -> BlobLocation:
        sha256 = blob_digest(data)
        return BlobLocation(sha256, len(data) if size is None else size, blob_id, identifier)


def _expired(blob: Blob) -> bool:
    return blob.end_epoch is not None and blob.end_epoch * EPOCH_S <= _now()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _name(kind: bytes, *parts: bytes) -> str:
    digest = hashlib.sha256(kind + b"".join(parts)).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
