"""Reading what is audited: every piece is looked at once, and its hash compared."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from .formats.segments import MAX_FIELDS, MAX_SEGMENT, MIB
from .formats.stored import Location, Malformed, read_part_list
from .sources import Fetched, Missing, Source, TooLong, Unreadable
from .verdicts import BlobFinding, Verdict

_T = TypeVar("_T")

READS_AT_ONCE = 16
SILENT_AT_MOST = 5
"""After so many blobs in a row of which the source said nothing, it is not asked."""

MEMBER_BYTES = 64 * MIB
"""Longest stored bytes that are read at once; what this service writes is an eighth of it."""

_THREAD_ABOVE_BYTES = 256 * 1024
_SLACK_BYTES = MIB
"""What is longer than recorded is read so much further, so that its hash can be reported."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is read and unpacked, in bytes, and parsed. What is larger fails.

    The defaults are those of docs/storage.md.

    Attributes:
        segment: A segment, unpacked; in parts it may be stored with as many.
        fields: Fields of a segment, those of nested messages included.
        records: Records that are kept at once.
    """

    segment: int = MAX_SEGMENT
    fields: int = MAX_FIELDS
    records: int = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an audit is.

    Attributes:
        done: Steps that are done: runs, segments of threads.
        total: Steps that are known of; it grows while the audit finds out.
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


@dataclass(frozen=True, slots=True)
class Whole:
    """Bytes that may lie in parts.

    Attributes:
        data: What the parts make; `None` if something is wrong.
        findings: What was found of every piece.
        reason: What is wrong that no finding says, for people; else empty.
    """

    data: bytes | None
    findings: tuple[BlobFinding, ...]
    reason: str = ""


class Reader:
    """Reads pieces from a source, some at a time, and counts the steps of an audit.

    Args:
        source: Where they are read.
        bounds: How much is read.
        on_progress: Called after every step.

    Attributes:
        source: Where they are read.
        bounds: How much is read.
        alone: Held by what is large, so that one such thing is in memory.
    """

    def __init__(
        self,
        source: Source,
        bounds: Bounds,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> None:
        self.source = source
        self.bounds = bounds
        self.alone = asyncio.Lock()
        self._on_progress = on_progress
        self._places = asyncio.Semaphore(READS_AT_ONCE)
        self._silent = 0
        self._done = 0
        self._total = 0

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

    async def read(self, role: str, location: Location, max_bytes: int = MEMBER_BYTES) -> Piece:
        """Read stored bytes and compare them with what leads to them.

        Args:
            role: What they are.
            location: Where they lie; without a hash they are `TRUSTED` at best.
            max_bytes: Longest that they can be.
        """
        if location.size_bytes is not None:
            max_bytes = min(max_bytes, location.size_bytes + _SLACK_BYTES)
        async with self._places:
            if self._silent >= SILENT_AT_MOST:
                reason = "it was not asked for: the source had stopped answering"
                return _without(role, location, Verdict.UNREADABLE, reason)
            try:
                fetched = await self.source.fetch(location, max_bytes)
            except Unreadable as error:
                self._silent += 1
                return _without(role, location, Verdict.UNREADABLE, str(error))
            except Missing:
                piece = _without(role, location, Verdict.MISSING, "the source does not have it")
            except TooLong as error:
                piece = _without(role, location, Verdict.FAIL, str(error))
            else:
                piece = judged(role, location, fetched)
            self._silent = 0
            return piece

    async def read_whole(self, role: str, piece: Piece, max_bytes: int) -> Whole:
        """Join the parts of something if what was read is a list of them.

        Args:
            role: What they make.
            piece: What was read.
            max_bytes: Longest that it can be.
        """
        finding = replace(piece.finding, role=role)
        if piece.data is None:
            return Whole(None, (finding,))
        try:
            listed = read_part_list(piece.data, finding.blob_id, max_bytes)
        except Malformed as error:
            return Whole(None, (replace(finding, role="parts"),), f"its list of parts: {error}")
        if listed is None:
            return Whole(piece.data, (finding,))
        sha256, parts = listed
        pieces = [await self.read("part", part) for part in parts]
        findings = (replace(finding, role="parts"), *(one.finding for one in pieces))
        if any(one.data is None for one in pieces):
            return Whole(None, findings)
        data = b"".join(one.data or b"" for one in pieces)
        actual = await apart(len(data), lambda: hashlib.sha256(data).hexdigest())
        if actual != sha256:
            reason = f"its parts make SHA-256 {actual} where their list says {sha256}"
            return Whole(None, findings, reason)
        return Whole(data, findings)


async def apart(size: int, work: Callable[[], _T]) -> _T:
    """Do work on so many bytes; if they are many, in a thread."""
    return work() if size <= _THREAD_ABOVE_BYTES else await asyncio.to_thread(work)


def _without(role: str, location: Location, verdict: Verdict, reason: str) -> Piece:
    at = (location.blob_id, location.identifier, location.sha256)
    return Piece(None, BlobFinding(role, *at, "", 0, verdict, reason))


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
    at = (location.blob_id, location.identifier, location.sha256)
    finding = BlobFinding(role, *at, fetched.sha256, size, verdict, reason)
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
