"""Blob store on Walrus."""

from __future__ import annotations

import asyncio
import random as random_numbers
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from opentelemetry.metrics import MeterProvider

from ...core.errors import Reason, Refusal, malformed_bytes
from ...core.limits import MIB
from ...core.model import BlobLocation, StoredBlob
from ...core.values import blob_digest
from ..api import (
    BlobMember,
    ListedMember,
    Progress,
    PutReceipt,
    StoreLimits,
    digest_of,
    gather_all,
    member_hash,
    unique_members,
)
from .client import WalrusClient
from .failures import AttemptFailedError
from .quilt import Patch, is_identifier, parse_quilt, quilt_bytes
from .settings import WalrusSettings

MAX_MEMBERS = 600  # fewer than the 666 patches of a quilt: the index also needs columns

MAX_MEMBER_BYTES = 8 * MIB  # below the 10 MiB that publishers accept for a standalone blob

KIND_TAG = "tuskpoint-kind"
_LONGEST_KIND = "catalog-page"
_ANY_HASH = "0" * 64

_WHOLE_FROM = 8  # wanted members of one quilt from which the quilt is read whole
_WHOLE_AT_ONCE = 4  # quilts in memory at once

_REJECTIONS = frozenset({"forbidden_content", "refused_content", "too_large"})
_MALFORMED = "MALFORMED_REQUEST"  # reason that publishers also send for a form above their limit
_NO_LIST = frozenset({"no_quilt", "not_found", "wrong_place"})


class WalrusStore:
    """A `BlobStore` on Walrus publishers and aggregators.

    A pack becomes a quilt in which each member is named by its SHA-256 in hex. Blobs are permanent.
    The store keeps nothing on disk. The clock is monotonic, `now` counts from the Unix epoch, both
    in seconds; random numbers are from 0 to 1.
    """

    backend = "walrus"

    def __init__(
        self,
        settings: WalrusSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = random_numbers.random,
        provider: MeterProvider | None = None,
    ) -> None:
        self._can_put = bool(settings.publishers)
        self._client = WalrusClient(settings, clock, now, sleep, random, provider)
        self._wholes = asyncio.Semaphore(_WHOLE_AT_ONCE)
        self.epoch_s = settings.epoch_s
        self.limits = StoreLimits(
            max_members=MAX_MEMBERS,
            max_put_bytes=settings.max_put_bytes,
            max_member_bytes=MAX_MEMBER_BYTES,
            puts_at_once=settings.puts_at_once,
            measure=_measure,
        )

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        """Return the location in "this quilt": only a put tells the ID of the quilt."""
        return BlobLocation(sha256, size, "", sha256.hex())

    async def put(self, members: Sequence[BlobMember], *, standalone: bool = False) -> PutReceipt:
        """Store a pack as one quilt, or each member as a blob of its own."""
        unique = unique_members(members)
        if not unique:
            return PutReceipt(())
        if standalone:
            # Wait for all puts: a running put that is abandoned would be paid for twice.
            puts = [asyncio.ensure_future(self._put(member.data)) for member in unique]
            await asyncio.gather(*puts, return_exceptions=True)
            blobs = {member.sha256: put.result() for member, put in zip(unique, puts, strict=True)}
            places = [BlobLocation(m.sha256, len(m.data), blobs[m.sha256].blob_id) for m in members]
            return PutReceipt(tuple(places), tuple(blobs.values()))
        sizes = [len(member.data) for member in unique]
        if not self.limits.hold(sizes):
            raise ValueError(f"{len(sizes)} members of {sum(sizes)} bytes are over the limits")
        patches = [
            Patch(member.sha256.hex(), {KIND_TAG: member.kind} if member.kind else {}, member.data)
            for member in unique
        ]
        blob = await self._put(patches)
        places = [
            BlobLocation(m.sha256, len(m.data), blob.blob_id, m.sha256.hex()) for m in members
        ]
        return PutReceipt(tuple(places), (blob,))

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        """Return the bytes at a location, after checking their SHA-256."""
        with _refuse_failed_reads(location.blob_id or location.sha256.hex()):
            if location.identifier and not is_identifier(location.identifier):
                raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=location.blob_id)
            return await self._client.read(location, progress)

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        """Return the bytes at many locations, in order, each after checking its SHA-256.

        A quilt with many wanted members is read whole; a member whose hash is not in that read is
        read by itself.
        """
        quilts: dict[str, list[BlobLocation]] = {}
        unique = list(dict.fromkeys(locations))
        for location in unique:
            if location.identifier == location.sha256.hex() and digest_of(location.blob_id):
                quilts.setdefault(location.blob_id, []).append(location)
        groups = [group for group in quilts.values() if len(group) >= _WHOLE_FROM]
        proven = await gather_all(map(self._read_whole, groups))
        contents = dict(chain.from_iterable(quilt_contents.items() for quilt_contents in proven))
        singles = [location for location in unique if location not in contents]
        contents.update(zip(singles, await gather_all(map(self.get, singles)), strict=True))
        return [contents[location] for location in locations]

    async def list_blob(self, blob_id: str) -> Sequence[ListedMember]:
        """Return the members of a quilt that are named by a SHA-256, or another blob itself."""
        with _refuse_failed_reads(blob_id):
            try:
                patches = await self._client.list_quilt(blob_id)
            except AttemptFailedError as failed:
                if failed.rule.name not in _NO_LIST:
                    raise
                raw = await self._client.read_raw(blob_id, patient=True)
                parsed = await asyncio.to_thread(_parse_patches, raw)
                if parsed is None:
                    whole = await asyncio.to_thread(blob_digest, raw)
                    return [ListedMember(BlobLocation(whole, 0, blob_id), "")]
                patches = parsed
        return [
            ListedMember(
                BlobLocation(sha256, 0, blob_id, patch.identifier), patch.tags.get(KIND_TAG, "")
            )
            for patch in patches
            if (sha256 := member_hash(patch.identifier)) is not None
        ]

    async def renew(self, blob_id: str) -> PutReceipt:
        """Store a blob or quilt again, so that it lasts as long as a new one."""
        with _refuse_failed_reads(blob_id):
            content = await self._content(blob_id)
        if not isinstance(content, bytes):
            members = await gather_all(self._proven(blob_id, patch) for patch in content)
            blob = await self._put(members)
            pairs = [(patch.identifier, len(patch.data)) for patch in members]
            places = [BlobLocation(bytes.fromhex(n), size, blob.blob_id, n) for n, size in pairs]
            return PutReceipt(tuple(places), (blob,))
        blob = await self._put(content)
        if blob.blob_id != blob_id:
            raise malformed_bytes(
                blob_id, f"the bytes that were read belong to blob {blob.blob_id}"
            )
        sha256 = await asyncio.to_thread(blob_digest, content)
        return PutReceipt((BlobLocation(sha256, len(content), blob_id),), (blob,))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _put(self, content: Sequence[Patch] | bytes) -> StoredBlob:
        """Store patches as a quilt, or bytes as a blob of their own."""
        if not self._can_put:
            raise _unavailable_refusal(
                "no publisher is configured, so nothing can be stored; give its URL"
            )
        try:
            return await self._client.put(content)
        except AttemptFailedError as failed:
            if failed.rule.name in _REJECTIONS or failed.symptom.reason == _MALFORMED:
                raise Refusal(
                    Reason.BLOB_REJECTED, backend=self.backend, problem=failed.problem
                ) from failed
            raise _unavailable_refusal(failed.problem) from failed

    async def _read_whole(self, locations: Sequence[BlobLocation]) -> dict[BlobLocation, bytes]:
        """Read a quilt whole and return the members whose hashes match; none if the read fails."""

        def prove(raw: bytes) -> dict[BlobLocation, bytes]:
            hashed = {blob_digest(patch.data): patch.data for patch in _parse_patches(raw) or []}
            return {
                location: hashed[location.sha256]
                for location in locations
                if location.sha256 in hashed
            }

        async with self._wholes:
            try:
                raw = await self._client.read_raw(locations[0].blob_id, patient=False)
            except AttemptFailedError:
                return {}  # each member is then read by itself, and that read reports the reason
            return await asyncio.to_thread(prove, raw)

    async def _content(self, blob_id: str) -> list[Patch] | bytes:
        """Return the patches of a quilt, unchecked and some without data, or a blob's bytes."""
        raw: bytes | None = None
        try:
            raw = await self._client.read_raw(blob_id, patient=True)
        except AttemptFailedError as failed:
            if failed.rule.name not in ("too_long", "too_large"):
                raise
        patches = await asyncio.to_thread(_parse_patches, raw or b"")
        if patches is not None:
            return patches
        try:
            return await self._client.list_quilt(blob_id)
        except AttemptFailedError as failed:
            if raw is None or failed.rule.name not in _NO_LIST:
                raise
            return raw

    async def _proven(self, blob_id: str, patch: Patch) -> Patch:
        """Return a patch as a member if its data has the hash that names the patch."""
        sha256 = member_hash(patch.identifier)
        if sha256 is None:
            raise malformed_bytes(
                blob_id, "a member is not named by its SHA-256, so it cannot be checked"
            )
        if await asyncio.to_thread(blob_digest, patch.data) == sha256:
            return patch
        data = await self.get(BlobLocation(sha256, 0, blob_id, patch.identifier))
        return Patch(patch.identifier, patch.tags, data)


def _measure(sizes: Sequence[int]) -> int:
    """Return the size of a quilt with members of these sizes."""
    tags = {KIND_TAG: _LONGEST_KIND}
    return quilt_bytes((_ANY_HASH, tags, size) for size in sizes)


def _parse_patches(raw: bytes) -> list[Patch] | None:
    try:
        return parse_quilt(raw)
    except ValueError:
        return None


@contextmanager
def _refuse_failed_reads(blob_id: str) -> Iterator[None]:
    """Refuse an ID that no blob can have, and convert a failed read to a refusal."""
    if digest_of(blob_id) is None:
        raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id)
    try:
        yield
    except AttemptFailedError as failed:
        if failed.rule.name in ("not_found", "not_visible_yet"):
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id) from failed
        raise _unavailable_refusal(failed.problem) from failed


def _unavailable_refusal(problem: str) -> Refusal:
    return Refusal(Reason.BLOB_UNAVAILABLE, backend=WalrusStore.backend, problem=problem)
