"""The blob store on Walrus."""

from __future__ import annotations

import asyncio
import logging
import random as random_numbers
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from opentelemetry.metrics import MeterProvider

from ...domain.digests import DIGEST_BYTES, blob_digest
from ...domain.errors import Reason, Refusal
from ...domain.limits import MIB
from ...domain.model import BlobLocation
from ..api import Listed, Member, Progress, Receipt, StoredBlob, StoreLimits
from .aggregator import Aggregator
from .answers import Stored, is_blob_id
from .endpoints import Endpoints
from .exchange import open_client
from .failures import Failed
from .publisher import Publisher
from .quilt import Patch, identifier_problem, parse_quilt, quilt_bytes
from .recent import RecentBlobs
from .retrying import Retrying
from .settings import WalrusSettings
from .telemetry import Instruments
from .token import Tokens

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

MAX_MEMBERS = 600
"""Fewer than the 666 patches of a quilt: the index needs columns too."""

MAX_MEMBER_BYTES = 8 * MIB
"""Publishers take 10 MiB for a blob of its own."""

KIND_TAG = "tuskpoint-kind"
_LONGEST_KIND = "catalog-page"
_ANY_HASH = "0" * 64

_BACKEND = "walrus"
_WHOLE_FROM = 8
"""Members wanted of one quilt from which it is read whole."""

_WHOLE_AT_ONCE = 4
"""Quilts in memory at the same time."""

_REJECTIONS = frozenset({"forbidden_content", "refused_content", "too_large"})
_MALFORMED = "MALFORMED_REQUEST"
"""Also what publishers say of a form that is over their limit."""

_NO_LIST = frozenset({"no_quilt", "not_found", "wrong_place"})


class WalrusStore:
    """A `BlobStore` on Walrus publishers and aggregators.

    A pack becomes a quilt in which each member is named by its SHA-256 in hex. Blobs
    are permanent. Nothing here is kept on disk.

    Args:
        settings: What was chosen.
        clock: Monotonic time in seconds.
        now: Time in seconds since the Unix epoch.
        sleep: Waits for some seconds.
        random: Returns a number from 0 to 1.
        provider: Where to measure; the global provider if none is given.
    """

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
        self._settings = settings
        self._client = open_client(settings)
        self._recent = RecentBlobs(clock)
        self._wholes = asyncio.Semaphore(_WHOLE_AT_ONCE)
        instruments = Instruments(provider)

        def note(failed: Failed) -> None:
            instruments.retry(failed)
            _log.info("another attempt follows: %s", failed.problem)

        retrying = Retrying(clock, sleep, random, note)
        self._publisher = Publisher(
            settings,
            self._client,
            Endpoints(settings.publishers, clock),
            retrying,
            Tokens(settings, now),
            instruments,
            clock,
        )
        self._aggregator = Aggregator(
            settings,
            self._client,
            Endpoints(settings.aggregators, clock),
            retrying,
            self._recent,
            instruments,
            clock,
        )

    @property
    def backend(self) -> str:
        """Kind of store."""
        return _BACKEND

    @property
    def limits(self) -> StoreLimits:
        """What one put may hold."""
        return StoreLimits(
            max_members=MAX_MEMBERS,
            max_put_bytes=self._settings.max_put_bytes,
            max_member_bytes=MAX_MEMBER_BYTES,
            puts_at_once=self._settings.puts_at_once,
            measure=_measure,
        )

    @property
    def epoch_s(self) -> float:
        """Length of an epoch in seconds."""
        return self._settings.epoch_s

    def predict(self, sha256: bytes, size: int) -> BlobLocation:
        """Return the location in "this quilt": only a put tells the ID of the quilt."""
        return BlobLocation(sha256, size, "", sha256.hex())

    async def put(self, members: Sequence[Member], *, apart: bool = False) -> Receipt:
        """Store a pack as one quilt, or each member as a blob of its own.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`, the members may or may not be stored;
                `BLOB_REJECTED`.
            ValueError: The members are more than a quilt of this store holds.
        """
        unique = _unique(members)
        if not unique:
            return Receipt(())
        if apart:
            return await self._put_apart(members, unique)
        sizes = [len(member.data) for member in unique]
        if not self.limits.hold(sizes):
            raise ValueError(f"{len(sizes)} members of {sum(sizes)} bytes are over the limits")
        patches = [
            Patch(member.sha256.hex(), {KIND_TAG: member.kind} if member.kind else {}, member.data)
            for member in unique
        ]
        blob = await self._put_quilt(patches)
        return Receipt(
            tuple(
                BlobLocation(member.sha256, len(member.data), blob.blob_id, member.sha256.hex())
                for member in members
            ),
            (blob,),
        )

    async def get(self, location: BlobLocation, *, progress: Progress | None = None) -> bytes:
        """Return the bytes at a location, after checking their SHA-256.

        Raises:
            Refusal: `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`, or `BLOB_HASH_MISMATCH` with
                both hashes.
        """
        if not is_blob_id(location.blob_id) or (
            location.identifier and identifier_problem(location.identifier)
        ):
            raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=location.blob_id or location.sha256.hex())
        try:
            return await self._aggregator.read(location, progress)
        except Failed as failed:
            raise _refusal(failed, location.blob_id, location.sha256) from failed

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        """Return the bytes at many locations, in order, each after checking its SHA-256.

        Quilts of which much is wanted are read whole; what that does not prove is read
        by itself.

        Raises:
            Refusal: As for `get`, of one that could not be read.
        """
        wanted: dict[str, set[bytes]] = {}
        for location in locations:
            if location.identifier == location.sha256.hex() and is_blob_id(location.blob_id):
                wanted.setdefault(location.blob_id, set()).add(location.sha256)
        wholes = [blob_id for blob_id, hashes in wanted.items() if len(hashes) >= _WHOLE_FROM]
        found = await _together(self._read_whole(blob_id, wanted[blob_id]) for blob_id in wholes)
        proven = {
            (blob_id, sha256): data
            for blob_id, members in zip(wholes, found, strict=True)
            for sha256, data in members.items()
        }
        left = {
            location for location in locations if (location.blob_id, location.sha256) not in proven
        }
        singles = list(left)
        read = dict(
            zip(singles, await _together(self.get(single) for single in singles), strict=True)
        )
        return [
            read[location] if location in left else proven[location.blob_id, location.sha256]
            for location in locations
        ]

    async def list_blob(self, blob_id: str) -> Sequence[Listed]:
        """Return what a quilt holds that is named by a SHA-256; of another blob, itself.

        Raises:
            Refusal: `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`.
        """
        _require_id(blob_id)
        try:
            names = await self._aggregator.list_quilt(blob_id)
        except Failed as failed:
            if failed.rule.name not in _NO_LIST:
                raise _refusal(failed, blob_id) from failed
        else:
            return _listed(blob_id, ((name.identifier, name.tags) for name in names))
        raw = await self._read_raw(blob_id)
        patches = await asyncio.to_thread(_parsed, raw)
        if patches is None:
            return [Listed(BlobLocation(await asyncio.to_thread(blob_digest, raw), 0, blob_id), "")]
        return _listed(blob_id, ((patch.identifier, patch.tags) for patch in patches))

    async def renew(self, blob_id: str) -> Receipt:
        """Store a blob or quilt once more, so that it lasts as long as a new one.

        Raises:
            Refusal: As for `get` and `put`; `BLOB_MALFORMED` if a member is not named by
                its SHA-256 or the bytes read make another blob.
        """
        _require_id(blob_id)
        patches, raw = await self._content(blob_id)
        if patches is None:
            return await self._renew_blob(blob_id, raw)
        members = await _together(self._proven(blob_id, patch) for patch in patches)
        blob = await self._put_quilt(members)
        return Receipt(
            tuple(
                BlobLocation(
                    bytes.fromhex(member.identifier),
                    len(member.data),
                    blob.blob_id,
                    member.identifier,
                )
                for member in members
            ),
            (blob,),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    # --- putting -----------------------------------------------------------------------

    async def _put_quilt(self, patches: Sequence[Patch]) -> StoredBlob:
        self._require_publisher()
        try:
            stored = await self._publisher.put_quilt(patches)
        except Failed as failed:
            raise _not_stored(failed) from failed
        return self._noted(stored, sum(len(patch.data) for patch in patches))

    async def _put_apart(self, members: Sequence[Member], unique: Sequence[Member]) -> Receipt:
        # All are waited for, so that what is on its way is not paid for twice.
        outcomes = await asyncio.gather(
            *(self._put_blob(member.data) for member in unique), return_exceptions=True
        )
        blobs: list[StoredBlob] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            blobs.append(outcome)
        ids = {member.sha256: blob.blob_id for member, blob in zip(unique, blobs, strict=True)}
        return Receipt(
            tuple(
                BlobLocation(member.sha256, len(member.data), ids[member.sha256])
                for member in members
            ),
            tuple(blobs),
        )

    async def _put_blob(self, data: bytes) -> StoredBlob:
        self._require_publisher()
        try:
            stored = await self._publisher.put_blob(data)
        except Failed as failed:
            raise _not_stored(failed) from failed
        return self._noted(stored, len(data))

    def _noted(self, stored: Stored, size_bytes: int) -> StoredBlob:
        self._recent.add(stored.blob_id)
        return StoredBlob(
            blob_id=stored.blob_id,
            object_id=stored.object_id,
            size_bytes=size_bytes,
            billed_bytes=stored.billed_bytes,
            cost=stored.cost,
            epoch=stored.epoch,
            end_epoch=stored.end_epoch,
        )

    def _require_publisher(self) -> None:
        if not self._settings.publishers:
            raise Refusal(
                Reason.BLOB_UNAVAILABLE,
                backend=_BACKEND,
                problem="no publisher is configured, so nothing can be stored; give its URL",
            )

    # --- reading -----------------------------------------------------------------------

    async def _read_whole(self, blob_id: str, wanted: set[bytes]) -> dict[bytes, bytes]:
        """Return what one read of the quilt proves; nothing if that did not work."""
        async with self._wholes:
            try:
                raw = await self._aggregator.read_raw(blob_id, patient=False)
            except Failed:
                return {}  # each member is now asked for by itself, which says what is wrong
            return await asyncio.to_thread(_prove, raw, wanted)

    async def _read_raw(self, blob_id: str) -> bytes:
        try:
            return await self._aggregator.read_raw(blob_id, patient=True)
        except Failed as failed:
            raise _refusal(failed, blob_id) from failed

    async def _content(self, blob_id: str) -> tuple[list[Patch] | None, bytes]:
        """Return the patches, unchecked and some without data; or `None` and the blob."""
        raw: bytes | None = None
        try:
            raw = await self._aggregator.read_raw(blob_id, patient=True)
        except Failed as failed:
            if failed.rule.name != "too_long":
                raise _refusal(failed, blob_id) from failed
        if raw is not None:
            patches = await asyncio.to_thread(_parsed, raw)
            if patches is not None:
                return patches, b""
        try:
            names = await self._aggregator.list_quilt(blob_id)
        except Failed as failed:
            if raw is not None and failed.rule.name in _NO_LIST:
                return None, raw
            raise _refusal(failed, blob_id) from failed
        return [Patch(name.identifier, name.tags) for name in names], b""

    async def _proven(self, blob_id: str, patch: Patch) -> Patch:
        """Return a patch whose data has the hash that it is named by."""
        if not _is_hash(patch.identifier):
            raise Refusal(
                Reason.BLOB_MALFORMED,
                blob_id=blob_id,
                problem="a member is not named by its SHA-256, so it cannot be checked",
            )
        sha256 = bytes.fromhex(patch.identifier)
        if await asyncio.to_thread(blob_digest, patch.data) == sha256:
            return patch
        data = await self.get(BlobLocation(sha256, 0, blob_id, patch.identifier))
        return Patch(patch.identifier, patch.tags, data)

    async def _renew_blob(self, blob_id: str, data: bytes) -> Receipt:
        blob = await self._put_blob(data)
        if blob.blob_id != blob_id:
            raise Refusal(
                Reason.BLOB_MALFORMED,
                blob_id=blob_id,
                problem=f"the bytes read as it make blob {blob.blob_id}",
            )
        sha256 = await asyncio.to_thread(blob_digest, data)
        return Receipt((BlobLocation(sha256, len(data), blob_id),), (blob,))


def _measure(sizes: Sequence[int]) -> int:
    """Return the size of a quilt of members of these sizes."""
    tags = {KIND_TAG: _LONGEST_KIND}
    return quilt_bytes((_ANY_HASH, tags, size) for size in sizes)


def _unique(members: Sequence[Member]) -> list[Member]:
    """Return one member for each hash, with a kind if any has one, in order of the hash."""
    unique: dict[bytes, Member] = {}
    for member in members:
        known = unique.get(member.sha256)
        if known is None or (member.kind and not known.kind):
            unique[member.sha256] = member
    return [unique[sha256] for sha256 in sorted(unique)]


def _prove(raw: bytes, wanted: set[bytes]) -> dict[bytes, bytes]:
    patches = _parsed(raw) or []
    hashed = {blob_digest(patch.data): patch.data for patch in patches}
    return {sha256: hashed[sha256] for sha256 in wanted if sha256 in hashed}


def _parsed(raw: bytes) -> list[Patch] | None:
    try:
        return parse_quilt(raw)
    except ValueError:
        return None


def _listed(blob_id: str, named: Iterable[tuple[str, Any]]) -> list[Listed]:
    return [
        Listed(
            BlobLocation(bytes.fromhex(identifier), 0, blob_id, identifier),
            tags.get(KIND_TAG, ""),
        )
        for identifier, tags in named
        if _is_hash(identifier)
    ]


def _is_hash(identifier: str) -> bool:
    return len(identifier) == 2 * DIGEST_BYTES and set(identifier) <= _HEX_DIGITS


_HEX_DIGITS = frozenset("0123456789abcdef")


def _require_id(blob_id: str) -> None:
    if not is_blob_id(blob_id):
        raise Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id)


def _refusal(failed: Failed, blob_id: str, expected: bytes = b"") -> Refusal:
    """Return what a failed read means to the caller."""
    if failed.actual:
        return Refusal(
            Reason.BLOB_HASH_MISMATCH,
            blob_id=blob_id,
            expected=expected.hex(),
            actual=failed.actual.hex(),
        )
    if failed.rule.name in ("not_found", "not_visible_yet"):
        return Refusal(Reason.BLOB_NOT_FOUND, blob_id=blob_id)
    return _unavailable(failed)


def _not_stored(failed: Failed) -> Refusal:
    """Return what a failed put means to the caller."""
    if failed.rule.name in _REJECTIONS or failed.symptom.reason == _MALFORMED:
        return Refusal(Reason.BLOB_REJECTED, backend=_BACKEND, problem=failed.problem)
    return _unavailable(failed)


def _unavailable(failed: Failed) -> Refusal:
    return Refusal(Reason.BLOB_UNAVAILABLE, backend=_BACKEND, problem=failed.problem)


async def _together(calls: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run calls at once; once one fails, cancel the others."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
