"""Reads of stored bytes: each piece is read once and compared with its hash."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from .formats.sealed import is_sealed, opened, wrapped_key
from .formats.segments import MAX_FIELDS, MAX_SEGMENT, MIB
from .formats.stored import MEMBER_BYTES, Location, MalformedError, read_part_list
from .keys import NoKey, Unwrap, no_keys
from .sources import BlobMissingError, BlobTooLongError, BlobUnreadableError, FetchedBytes, Source
from .verdicts import BlobFinding, Verdict

_T = TypeVar("_T")

READS_AT_ONCE = 16
SILENT_AT_MOST = 5
"""Number of consecutive blobs without an answer after which the audit stops calling the source."""

_ROOTS = ("bundle", "catalog", "manifest")
"""Roles of members that have their wrapped key in their own header."""

_THREAD_ABOVE_BYTES = 256 * 1024
_SLACK_BYTES = MIB
"""Bytes read beyond the recorded size, so that the report can have the hash of longer data."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on data that is read, unpacked and parsed. Larger data fails. Sizes are in bytes.

    docs/storage.md defines the defaults.

    Attributes:
        segment: Bytes of an unpacked segment, and of all its stored parts.
        fields: Fields of a segment, including nested messages.
        records: Bytes of records that are kept at once.
        memory: Bytes for joining and unpacking one segment or manifest; a larger one is
            `UNREADABLE`.
    """

    segment: int = MAX_SEGMENT
    fields: int = MAX_FIELDS
    records: int = 1024 * MIB
    memory: int = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an audit.

    Attributes:
        done: Finished steps: runs, segments of threads.
        total: Known steps; the number grows during the audit.
        bytes_read: Bytes that the source has sent.
        doing: The current step, for people.
    """

    done: int
    total: int
    bytes_read: int
    doing: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Usable stored bytes or `None`, and the finding about them."""

    data: bytes | None
    finding: BlobFinding


@dataclass(frozen=True, slots=True)
class WholeBytes:
    """Bytes that may be stored in parts.

    Attributes:
        data: The joined bytes; `None` after a failure.
        findings: The finding about every piece.
        reason: A failure that is in no finding, for people; otherwise empty.
    """

    data: bytes | None
    findings: tuple[BlobFinding, ...]
    reason: str = ""


class Reader:
    """Reads pieces from a source, several at a time, and counts the steps of an audit.

    Args:
        source: The source.
        bounds: The bounds.
        on_progress: Called after each step.
        unwrap: Unwraps the keys of sealed roots; `None` if no key was given.

    Attributes:
        source: The source.
        bounds: The bounds.
        alone: Lock that allows only one large piece of data in memory at a time.
    """

    def __init__(
        self,
        source: Source,
        bounds: Bounds,
        on_progress: Callable[[Progress], object] | None = None,
        unwrap: Unwrap | None = None,
    ) -> None:
        self.source = source
        self.bounds = bounds
        self.alone = asyncio.Lock()
        self._on_progress = on_progress
        self._unwrap = unwrap
        self._places = asyncio.Semaphore(READS_AT_ONCE)
        self._silent = 0
        self._done = 0
        self._total = 0

    def expect(self, steps: int) -> None:
        """Add steps to the total."""
        self._total += steps

    def step(self, doing: str) -> None:
        """Count a finished step."""
        self._done += 1
        if self._on_progress is not None:
            total = max(self._total, self._done)
            bytes_read = self.source.traffic.bytes_read
            self._on_progress(Progress(self._done, total, bytes_read, doing))

    async def read(self, role: str, location: Location, max_bytes: int = MEMBER_BYTES) -> Piece:
        """Read stored bytes and compare them with the recorded hash.

        Args:
            role: Role of the bytes; see `BlobFinding`.
            location: Location of the bytes. Without a hash, the bytes are `TRUSTED` at best.
            max_bytes: Bound on the size of the bytes.
        """
        if location.size_bytes is not None:
            max_bytes = min(max_bytes, location.size_bytes + _SLACK_BYTES)
        async with self._places:
            if self._silent >= SILENT_AT_MOST:
                reason = "it was not asked for: the source had stopped answering"
                return _without(role, location, Verdict.UNREADABLE, reason)
            try:
                fetched = await self.source.fetch(location, max_bytes)
            except BlobUnreadableError as error:
                self._silent += 1
                return _without(role, location, Verdict.UNREADABLE, str(error))
            except BlobMissingError:
                piece = _without(role, location, Verdict.MISSING, "the source does not have it")
            except BlobTooLongError as error:
                piece = _without(role, location, Verdict.FAIL, str(error))
            else:
                piece = judged(role, location, fetched)
            self._silent = 0
            return piece

    async def read_content(self, role: str, location: Location) -> Piece:
        """Read content that is never stored in parts, and open it if it is sealed."""
        piece = await self.read(role, location)
        return await self.content(piece, location)

    async def content(self, piece: Piece, location: Location) -> Piece:
        """Open stored bytes if they are sealed.

        Args:
            piece: The bytes, and the finding about them, which gets the reason of a failure.
            location: Recorded location of the bytes, with the key of a member that is not a root.
        """
        data, finding = piece.data, piece.finding
        if data is None or not (location.key or location.sealed or is_sealed(data)):
            return piece
        try:
            key = location.key or await self._key_of_root(finding.role, data)
            content = await in_pool(len(data), lambda: opened(data, key))
        except NoKey as error:
            return Piece(None, replace(finding, verdict=Verdict.UNREADABLE, reason=str(error)))
        except MalformedError as error:
            return Piece(None, replace(finding, verdict=Verdict.FAIL, reason=str(error)))
        return Piece(content, finding)

    async def _key_of_root(self, role: str, data: bytes) -> bytes:
        """Return the key in the header of a sealed root.

        Raises:
            NoKey: The key cannot be unwrapped.
            MalformedError: The bytes are not a root, so the reference to them must have the key. Or
                the bytes are not sealed.
        """
        if not is_sealed(data):
            raise MalformedError("it is not sealed, and what leads to it says that it is")
        wrapped = wrapped_key(data)
        if role not in _ROOTS or not wrapped:
            raise MalformedError("it is sealed, and the reference to it has no key")
        return await asyncio.to_thread(self._unwrap or no_keys, wrapped)

    def too_large(self, finding: BlobFinding, size: int) -> BlobFinding:
        """Return the finding about a piece that needs more memory than the bound.

        Args:
            finding: Finding about the stored bytes of the piece.
            size: Size of the piece in bytes, joined or unpacked.
        """
        reason = (
            f"it has {size} bytes joined or unpacked, which take more memory than the "
            f"{self.bounds.memory} bytes of --memory-bytes"
        )
        return replace(finding, verdict=Verdict.UNREADABLE, reason=reason)

    async def read_whole(
        self, role: str, piece: Piece, location: Location, max_bytes: int
    ) -> WholeBytes:
        """Join parts if the piece is a list of parts, and open the whole if it is sealed.

        Args:
            role: Role of the whole.
            piece: The piece.
            location: Location of the piece.
            max_bytes: Bound on the size of the joined bytes.
        """
        finding = replace(piece.finding, role=role)
        if piece.data is None:
            return WholeBytes(None, (finding,))
        try:
            part_list = read_part_list(piece.data, finding.blob_id, max_bytes)
        except MalformedError as error:
            return WholeBytes(
                None, (replace(finding, role="parts"),), f"its list of parts: {error}"
            )
        if part_list is None:
            piece = await self.content(Piece(piece.data, finding), location)
            return WholeBytes(piece.data, (piece.finding,))
        sha256, parts = part_list
        size = sum(part.size_bytes or 0 for part in parts)  # joining needs twice this memory
        if 2 * size > self.bounds.memory:
            return WholeBytes(None, (self.too_large(replace(finding, role="parts"), size),))
        pieces: dict[Location, Piece] = {}
        for part in parts:
            if part not in pieces:
                pieces[part] = await self.read("part", part)
        findings = (
            replace(finding, role="parts"),
            *(part_piece.finding for part_piece in pieces.values()),
        )
        if any(part_piece.data is None for part_piece in pieces.values()):
            return WholeBytes(None, findings)
        data = b"".join(pieces[part].data or b"" for part in parts)
        pieces.clear()
        actual = await in_pool(len(data), lambda: hashlib.sha256(data).hexdigest())
        if actual != sha256:
            reason = f"its parts make SHA-256 {actual} where their list says {sha256}"
            return WholeBytes(None, findings, reason)
        whole = await self.content(Piece(data, finding), location)
        changed = replace(whole.finding, role="parts")
        return WholeBytes(whole.data, (changed, *findings[1:]))


async def in_pool(size: int, work: Callable[[], _T]) -> _T:
    """Run work on a number of bytes, in a thread if there are many bytes."""
    return work() if size <= _THREAD_ABOVE_BYTES else await asyncio.to_thread(work)


def _without(role: str, location: Location, verdict: Verdict, reason: str) -> Piece:
    at = (location.blob_id, location.identifier, location.sha256)
    return Piece(None, BlobFinding(role, *at, "", 0, verdict, reason))


def judged(role: str, location: Location, fetched: FetchedBytes) -> Piece:
    """Return a piece: bytes, compared with the recorded hash."""
    size = len(fetched.data)
    verdict, reason = Verdict.PASS, ""
    if not location.sha256:
        verdict = Verdict.TRUSTED
        reason = "no SHA-256 was given for it: it is trusted on the word of the source"
    elif fetched.sha256 != location.sha256:
        verdict = Verdict.FAIL
        reason = "it has another SHA-256"
    elif location.size_bytes not in (None, size):
        verdict = Verdict.FAIL
        reason = f"it has {size} bytes where {location.size_bytes} were recorded"
    at = (location.blob_id, location.identifier, location.sha256)
    finding = BlobFinding(role, *at, fetched.sha256, size, verdict, reason)
    return Piece(None if verdict is Verdict.FAIL else fetched.data, finding)


async def all_of(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Run work concurrently. After a failure or a cancellation, cancel the rest and wait for it."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
