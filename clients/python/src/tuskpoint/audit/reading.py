"""Reading what is audited: every piece is looked at once, and its hash compared."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from .formats.stored import Location, Malformed, is_part_list, read_part_list
from .formats.wire import MAX_FIELDS
from .sources import Fetched, Missing, Source, TooLong, Unreadable
from .verdicts import BlobFinding, Verdict, worst

_T = TypeVar("_T")

MIB = 1024 * 1024
READS_AT_ONCE = 16
SILENT_AT_MOST = 5
"""After so many blobs one after another of which the source did not tell, it is not asked."""

LARGE_BYTES = MIB
"""What is larger, or lies in parts, is in memory alone."""

_THREAD_ABOVE_BYTES = 256 * 1024
_SLACK_BYTES = MIB
"""What is longer than recorded is read so much further, so that its hash can be told."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is read and unpacked, in bytes, and parsed. What is larger fails.

    The defaults are those of docs/storage.md.

    Attributes:
        index: Stored bytes of a catalog, a piece of one, a segment, or a list of parts.
        envelope: An envelope, unpacked; stored it may be as long.
        bundle: A bundle, unpacked; stored it may be 1 MiB longer.
        fields: Fields of an envelope or a bundle, those of nested messages included.
    """

    index: int = 64 * MIB
    envelope: int = 576 * MIB
    bundle: int = 1024 * MIB
    fields: int = MAX_FIELDS


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an audit is.

    Attributes:
        done: Steps that are done: pieces of the catalog, segments, checkpoints.
        total: Steps that are known of, or may be to come; it changes while the audit finds out.
        bytes_read: Bytes that the source has sent.
        doing: What is read now, for people.
    """

    done: int
    total: int
    bytes_read: int
    doing: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Stored bytes that may be used, or none, and what was found of them."""

    data: bytes | None
    finding: BlobFinding

    @property
    def verdict(self) -> Verdict:
        """The finding's verdict."""
        return self.finding.verdict


@dataclass(frozen=True, slots=True)
class Whole:
    """Bytes that may lie in parts.

    Attributes:
        data: What the parts make; `None` if something is wrong.
        names: Hashes of the bytes, and of the list of parts if there is one.
        findings: What was found of every piece.
        reason: What is wrong that no finding says, for people; else empty.
    """

    data: bytes | None
    names: frozenset[str]
    findings: tuple[BlobFinding, ...]
    reason: str = ""

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict on its pieces."""
        found = worst(finding.verdict for finding in self.findings)
        return worst((found, Verdict.FAIL)) if self.reason else found


class Reader:
    """Reads pieces from a source, some at a time, and counts the steps of an audit.

    Args:
        source: Where they are read.
        bounds: How much is read.
        on_progress: Told after every step.
        at_once: Most requests under way.

    Attributes:
        source: Where they are read.
        bounds: How much is read.
        turns: Held by each checkpoint that is audited, so that few are in memory.
        alone: Held besides by one that is large.
    """

    def __init__(
        self,
        source: Source,
        bounds: Bounds,
        on_progress: Callable[[Progress], object] | None = None,
        at_once: int = READS_AT_ONCE,
    ) -> None:
        self.source = source
        self.bounds = bounds
        self.turns = asyncio.Semaphore(2 * at_once)
        self.alone = asyncio.Lock()
        self._on_progress = on_progress
        self._places = asyncio.Semaphore(at_once)
        self._large = asyncio.Semaphore(1)
        self._silent = 0
        self._done = 0
        self._total = 0

    # --- steps ---------------------------------------------------------------------------

    def expect(self, steps: int) -> None:
        """Count steps that are to come."""
        self._total += steps

    def step(self, doing: str) -> None:
        """Count a step that is done."""
        self._done += 1
        if self._on_progress is not None:
            total = max(self._total, self._done)
            read = self.source.traffic.bytes_read
            self._on_progress(Progress(self._done, total, read, doing))

    # --- bytes ---------------------------------------------------------------------------

    async def read(self, role: str, location: Location, max_bytes: int) -> Piece:
        """Read stored bytes and compare them with what leads to them.

        Args:
            role: What they are.
            location: Where they lie; without a hash they are `TRUSTED` at best.
            max_bytes: Longest that they can be.
        """
        async with self._places:
            if self._silent >= SILENT_AT_MOST:
                reason = "it was not asked for: the source had stopped answering"
                return _without(role, location, Verdict.UNREADABLE, reason)
            if location.size_bytes is not None:
                max_bytes = min(max_bytes, location.size_bytes + _SLACK_BYTES)
            try:
                fetched = await self.source.fetch(location, max_bytes)
            except Missing:
                self._silent = 0
                return _without(role, location, Verdict.MISSING, "the source does not have it")
            except TooLong as error:
                self._silent = 0
                return _without(role, location, Verdict.FAIL, str(error))
            except Unreadable as error:
                self._silent += 1
                return _without(role, location, Verdict.UNREADABLE, str(error))
        self._silent = 0
        return judged(role, location, fetched)

    async def read_whole(
        self, role: str, location: Location, max_bytes: int, *, first: Piece | None = None
    ) -> Whole:
        """Read bytes that may lie in parts.

        Args:
            role: What they are.
            location: Where they, or the list of their parts, lie.
            max_bytes: Longest that they can be.
            first: What lies there, if it was read already.
        """
        piece = first or await self.read(role, location, max_bytes)
        names = frozenset((piece.finding.actual_sha256,))
        if piece.data is None or not is_part_list(piece.data):
            return Whole(piece.data, names, (piece.finding,))
        listing = replace(piece.finding, role="parts")
        try:
            listed = read_part_list(piece.data, location.blob_id, max_bytes)
        except Malformed as error:
            return Whole(None, names, (listing,), f"its list of parts: {error}")
        pieces = [await self.read("part", part, max_bytes) for part in listed.parts]
        findings = (listing, *(one.finding for one in pieces))
        if any(one.data is None for one in pieces):
            return Whole(None, names, findings)
        data = b"".join(one.data or b"" for one in pieces)
        actual = await self.apart(len(data), lambda: hashlib.sha256(data).hexdigest())
        if actual != listed.sha256:
            reason = f"its parts make SHA-256 {actual} where their list says {listed.sha256}"
            return Whole(None, names, findings, reason)
        return Whole(data, names | {actual}, findings)

    async def apart(self, size: int, work: Callable[[], _T]) -> _T:
        """Do work on so many bytes; if they are many, in a thread, one at a time."""
        if size <= _THREAD_ABOVE_BYTES:
            return work()
        async with self._large:
            return await asyncio.to_thread(work)


def _without(role: str, location: Location, verdict: Verdict, reason: str) -> Piece:
    return Piece(None, BlobFinding.without_bytes(role, location, verdict, reason))


def judged(role: str, location: Location, fetched: Fetched) -> Piece:
    """Return a piece: bytes, compared with what leads to them."""
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
    finding = BlobFinding(
        role,
        location.blob_id,
        location.identifier,
        location.sha256,
        fetched.sha256,
        size,
        verdict,
        reason,
    )
    return Piece(None if verdict is Verdict.FAIL else fetched.data, finding)


async def all_of(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Run work at once; if one fails, or it is cancelled, cancel the rest and wait for it."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
