"""A blob store in memory that packs members like a quilt and fails on demand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.blobs.api import (
    BlobMember,
    BlobStore,
    ListedMember,
    Progress,
    PutReceipt,
    StoreLimits,
    verify_bytes,
)
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation, StoredBlob
from tuskpoint_server.core.values import blob_digest

Verdict = Callable[[Sequence[BlobMember]], Reason | None]
"""Function that returns the reason to refuse a put; `None` accepts the put."""


def member(data: bytes, kind: str = "") -> BlobMember:
    return BlobMember(blob_digest(data), data, kind)


def many(count: int, kind: str = "") -> list[BlobMember]:
    return [member(b"member %d" % number, kind) for number in range(count)]


THREE = (member(b"one"), member(b"two" * 1000, "segment"), member(b"", "catalog-page"))


async def put(store: BlobStore, *members: BlobMember) -> tuple[BlobLocation, ...]:
    """Store members; return their locations."""
    return (await store.put(members)).locations


async def refusal_of(call: Awaitable[object]) -> Refusal:
    """Await a call that must be refused."""
    with pytest.raises(Refusal) as refused:
        await call
    return refused.value


class MemoryStore:
    """A store in memory.

    Attributes:
        packs: Members by blob ID, in the order of the puts.
        verdict: Called at every put.
        after_put: Called after a put is stored: an error leaves the answer of the put unknown.
        on_put: Awaited before a put is stored.
        lost: Hashes that can no longer be read.
    """

    backend = "memory"
    epoch_s = None

    def __init__(self, limits: StoreLimits | None = None) -> None:
        self.limits = limits or StoreLimits()
        self.packs: dict[str, dict[bytes, BlobMember]] = {}
        self.verdict: Verdict = lambda members: None
        self.after_put: Verdict = lambda members: None
        self.on_put: Callable[[Sequence[BlobMember]], object] | None = None
        self.lost: set[bytes] = set()

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        return BlobLocation(sha256, size, "", sha256.hex())

    async def put(self, members: Sequence[BlobMember], *, standalone: bool = False) -> PutReceipt:
        if self.on_put is not None:
            hook, self.on_put = self.on_put, None
            await hook(members)  # type: ignore[misc]
        self._judge(self.verdict(members))
        if not standalone:
            assert self.limits.hold([len(member.data) for member in members])
        for member in members:
            assert blob_digest(member.data) == member.sha256
        distinct = list({member.sha256: member for member in members}.values())
        groups = [[member] for member in distinct] if standalone else [distinct]
        places: dict[bytes, BlobLocation] = {}
        blobs = []
        for group in groups:
            blob_id = blob_digest(b"".join(sorted(member.sha256 for member in group))).hex()
            self.packs[blob_id] = {member.sha256: member for member in group}
            size = sum(len(member.data) for member in group)
            blobs.append(StoredBlob(blob_id, size_bytes=size, billed_bytes=size, cost=1))
            for member in group:
                places[member.sha256] = BlobLocation(
                    member.sha256, len(member.data), blob_id, member.sha256.hex()
                )
        self._judge(self.after_put(members))
        return PutReceipt(tuple(places[member.sha256] for member in members), tuple(blobs))

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        member = self.packs.get(location.blob_id, {}).get(bytes.fromhex(location.identifier))
        if member is None or location.sha256 in self.lost:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=location.blob_id)
        if progress is not None:
            progress(len(member.data))
        return verify_bytes(member.data, location)

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        return [await self.get(location) for location in locations]

    async def list_blob(self, blob_id: str) -> Sequence[ListedMember]:
        if blob_id not in self.packs:
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id)
        return [
            ListedMember(
                BlobLocation(member.sha256, len(member.data), blob_id, member.sha256.hex()),
                member.kind,
            )
            for member in self.packs[blob_id].values()
        ]

    async def renew(self, blob_id: str) -> PutReceipt:
        return PutReceipt(tuple(listing.location for listing in await self.list_blob(blob_id)))

    async def close(self) -> None:
        return

    def members(self, kind: str) -> list[BlobMember]:
        """Return all members of a kind, in the order of the puts."""
        return [
            member
            for pack in self.packs.values()
            for member in pack.values()
            if member.kind == kind
        ]

    def _judge(self, reason: Reason | None) -> None:
        if reason is Reason.BLOB_REJECTED:
            raise Refusal(reason, backend=self.backend, problem="it is blocked")
        if reason is not None:
            raise Refusal(reason, backend=self.backend, problem="it is down")


def rejecting(store: MemoryStore, *names: str) -> None:
    """Let a store reject members with one of these checkpoints."""

    def judge(members: Sequence[BlobMember]) -> Reason | None:
        for member in members:
            if member.kind == Kind.SEGMENT:
                rows = decode_segment(member.data, "").checkpoints
                if any(row.checkpoint_id in names for row in rows):
                    return Reason.BLOB_REJECTED
        return None

    store.verdict = judge
