"""A blob store in memory that fails in every way a store can fail; a put is one pack."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.simulation.environment.crashes import Life
from tuskpoint_server.blobs.api import (
    BlobMember,
    ListedMember,
    Progress,
    PutReceipt,
    StoreLimits,
    blob_name,
    verify_bytes,
)
from tuskpoint_server.blobs.packed import StoredFile
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation, StoredBlob
from tuskpoint_server.core.values import blob_digest

DIRECTORY = StoreLimits()
EPOCHS = 3
"""Epochs for which a put is kept."""

INTACT_READS = 30
"""Intact reads after a corrupted read, so that an immediate second read finds the value."""

EPOCH_S = 14 * 24 * 3600.0
QUILTS = StoreLimits(max_members=12, max_put_bytes=8192, max_member_bytes=6000, puts_at_once=2)


@dataclass
class StoreFaults:
    """Probability of each fault at each call."""

    refuses: float = 0.0
    """The put stores nothing and fails: the store is down, or its disk is full."""
    rejects: float = 0.0
    """The store rejects these bytes for good."""
    lies: float = 0.0
    """The put stores everything, and reports a failure."""
    loses: float = 0.0
    """The put reports success, and stores only a part."""
    dawdles: float = 0.0
    """The call takes minutes."""
    corrupts: float = 0.0
    """A read returns other bytes, or fewer."""
    unreadable: float = 0.0
    """A read fails."""


@dataclass
class Vault:
    """The content of the store; it survives every crash of the servers.

    Attributes:
        limits: Limits of a put.
        now_s: Returns the time.
        epoch_s: Length of an epoch; `None`: blobs never expire.
        packs: Members by blob ID and hash.
        ends: Epoch at which each blob expires.
        put_s: Time of the last put of each blob.
        lost: Blob ID and hash of members that were stored, and then lost or corrupted.
        outage: Times between which every call fails.
    """

    limits: StoreLimits
    now_s: Callable[[], float] = lambda: 0.0
    epoch_s: float | None = None
    ends: dict[str, int] = field(default_factory=dict)
    put_s: dict[str, float] = field(default_factory=dict)
    packs: dict[str, dict[bytes, BlobMember]] = field(default_factory=dict)
    lost: set[tuple[str, bytes]] = field(default_factory=set)
    outage: tuple[float, float] = (0.0, 0.0)

    def keep(self, members: Sequence[BlobMember]) -> str:
        """Store a pack; return its ID."""
        blob_id = blob_name(blob_digest(b"".join(sorted(member.sha256 for member in members))))
        self.packs[blob_id] = {member.sha256: member for member in members}
        self.ends[blob_id] = self.epoch() + EPOCHS
        self.put_s[blob_id] = self.now_s()
        self.lost -= {(blob_id, sha256) for sha256 in self.packs[blob_id]}
        return blob_id

    def epoch(self) -> int:
        """Return the number of the current epoch."""
        return int(self.now_s() // self.epoch_s) if self.epoch_s is not None else 0

    def pack(self, blob_id: str) -> dict[bytes, BlobMember]:
        """Return the members of a blob; return none if the blob does not exist or has expired."""
        if self.epoch_s is not None and self.ends.get(blob_id, 0) <= self.epoch():
            return {}
        return self.packs.get(blob_id, {})

    def lose(self, blob_id: str, sha256: bytes) -> None:
        """Lose a member."""
        del self.packs[blob_id][sha256]
        self.lost.add((blob_id, sha256))

    def corrupt(self, blob_id: str, sha256: bytes) -> None:
        """Change the bytes of a member."""
        member = self.packs[blob_id][sha256]
        data = member.data[:-1] + bytes([member.data[-1] ^ 1])
        self.packs[blob_id][sha256] = BlobMember(sha256, data, member.kind)
        self.lost.add((blob_id, sha256))

    def read(self, location: BlobLocation) -> bytes:
        """Return the bytes at a location.

        Raises:
            Refusal: `BLOB_NOT_FOUND`, `BLOB_HASH_MISMATCH`.
        """
        member = self.pack(location.blob_id).get(location.sha256)
        if member is None:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=location.blob_id)
        return verify_bytes(member.data, location)


class PlainStore:
    """`BlobStore` over a vault, without any fault.

    Args:
        vault: The content of the store.
    """

    backend = "simulated"

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.limits = vault.limits
        self.epoch_s = vault.epoch_s

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        return BlobLocation(sha256, size, "", sha256.hex())

    async def put(self, members: Sequence[BlobMember], *, standalone: bool = False) -> PutReceipt:
        groups = [[member] for member in members] if standalone else [list(members)]
        if not standalone and not self.limits.hold([len(member.data) for member in members]):
            raise AssertionError("a put holds more than the store takes")
        ids = [self.vault.keep(group) for group in groups]
        places = {
            member.sha256: self._located(blob_id, member)
            for blob_id, group in zip(ids, groups, strict=True)
            for member in group
        }
        return PutReceipt(
            tuple(places[member.sha256] for member in members), tuple(map(self._about, ids))
        )

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        return self.vault.read(location)

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        return [self.vault.read(location) for location in locations]

    async def list_blob(self, blob_id: str) -> Sequence[ListedMember]:
        pack = self.vault.pack(blob_id)
        if not pack:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id)
        return [
            ListedMember(self._located(blob_id, member), member.kind) for member in pack.values()
        ]

    async def renew(self, blob_id: str) -> PutReceipt:
        places = [entry.location for entry in await self.list_blob(blob_id)]
        for place in places:
            self.vault.read(place)
        self.vault.ends[blob_id] = self.vault.epoch() + EPOCHS
        return PutReceipt(tuple(places), (self._about(blob_id),))

    async def blobs(self) -> AsyncIterator[StoredFile]:
        """Yield every blob, as a directory does."""
        for blob_id, pack in list(self.vault.packs.items()):
            size = sum(len(member.data) for member in pack.values())
            yield StoredFile(blob_id, size, self.vault.now_s() - self.vault.put_s[blob_id])

    async def remove(self, blob_id: str, *, min_age_s: float = 0.0) -> bool:
        """Remove a blob, as a directory does."""
        return self.vault.packs.pop(blob_id, None) is not None

    async def close(self) -> None:
        return

    def _about(self, blob_id: str) -> StoredBlob:
        vault = self.vault
        size = sum(len(member.data) for member in vault.packs[blob_id].values())
        ends = (vault.epoch(), vault.ends[blob_id]) if vault.epoch_s is not None else (None, None)
        return StoredBlob(blob_id, "", size, size, 1, *ends)

    def _located(self, blob_id: str, member: BlobMember) -> BlobLocation:
        return BlobLocation(member.sha256, len(member.data), blob_id, member.sha256.hex())


class FaultyStore(PlainStore):
    """A store that fails, for one life of a server.

    Attributes:
        faults: Probability of each fault.
        verdict: Decides every put: `BLOB_REJECTED` or `BLOB_UNAVAILABLE`, or `None`.
        on_put: Awaited once, before the next put is stored.
    """

    def __init__(self, vault: Vault, life: Life, faults: StoreFaults, rng: random.Random) -> None:
        super().__init__(vault)
        self._life = life
        self.faults = faults
        self._rng = rng
        self._running = 0
        self._intact = 0
        self.verdict: Callable[[Sequence[BlobMember]], Reason | None] = lambda members: None
        self.on_put: Callable[[Sequence[BlobMember]], Awaitable[None]] | None = None

    async def put(self, members: Sequence[BlobMember], *, standalone: bool = False) -> PutReceipt:
        self._life.check()
        if any(blob_digest(member.data) != member.sha256 for member in members):
            raise AssertionError("a put holds a member with another hash than its own")
        self._running += 1
        try:
            # One more for the bundle of a hand-off.
            if self._running > self.limits.puts_at_once + 1:
                raise AssertionError(f"{self._running} puts at once")
            await self._travel(self.faults.refuses)
            if self.on_put is not None:
                hook, self.on_put = self.on_put, None
                await hook(members)
            reason = self.verdict(members)
            if reason is None and self._rng.random() < self.faults.rejects:
                reason = Reason.BLOB_REJECTED
            if reason is not None:
                raise Refusal(reason, backend=self.backend, problem="simulated")
            self._life.visit("store.before_put")
            known = set(self.vault.packs)
            receipt = await super().put(members, standalone=standalone)
            fresh = receipt.locations[0].blob_id not in known
            if fresh and self._rng.random() < self.faults.loses:
                victim = receipt.locations[0]
                self.vault.packs[victim.blob_id].pop(victim.sha256)
            self._life.visit("store.after_put")
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

    async def list_blob(self, blob_id: str) -> Sequence[ListedMember]:
        await self._travel(self.faults.unreadable)
        return await super().list_blob(blob_id)

    async def renew(self, blob_id: str) -> PutReceipt:
        await self._travel(self.faults.refuses)
        return await super().renew(blob_id)

    def _read(self, location: BlobLocation) -> bytes:
        data = self.vault.read(location)
        self._intact = max(0, self._intact - 1)
        if not self._intact and self._rng.random() < self.faults.corrupts:
            self._intact = INTACT_READS
            data = data[: len(data) // 2]
        return verify_bytes(data, location)

    async def _travel(self, fault: float) -> None:
        """Take virtual time, and perhaps fail."""
        rng = self._rng
        self._life.check()
        dawdles = rng.random() < self.faults.dawdles
        seconds = rng.uniform(30, 600) if dawdles else rng.choice((0.0, 0.0, 0.2, 4.0))
        if seconds:
            await asyncio.sleep(seconds)
        self._life.check()
        begin, end = self.vault.outage
        if begin <= asyncio.get_running_loop().time() < end or rng.random() < fault:
            raise Refusal(Reason.BLOB_UNAVAILABLE, backend=self.backend, problem="simulated")
