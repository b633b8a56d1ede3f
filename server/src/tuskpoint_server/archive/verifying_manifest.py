"""Verifying a manifest: its chain, and what it says against what the journal recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from ..domain.errors import Reason, Refusal
from ..domain.manifest import ChainCheck, Folded, ManifestEntry, Segment, fold_all
from ..domain.model import BlobLocation
from ..journal.verifying import Place, RecordedCheckpoint, RecordedThread
from .verifying_blobs import VerifyingReader


@dataclass(frozen=True, slots=True)
class Chain:
    """A manifest as it was found.

    Attributes:
        folded: What it says; `None` if the chain does not hold.
        problem: What is wrong with it, for people; else empty.
        mismatch: A segment has another hash than recorded.
    """

    folded: Folded | None
    problem: str = ""
    mismatch: bool = False


async def read_chain(reader: VerifyingReader, thread_id: str, thread: RecordedThread) -> Chain:
    """Read a manifest from its recorded head to its first segment.

    Raises:
        Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
    """
    head = thread.head
    if head is None:
        return Chain(Folded({}, frozenset()))
    check = ChainCheck(head, thread_id, thread.incarnation)
    segments: list[tuple[Segment, str]] = []
    while check.wanted is not None:
        holder = check.wanted.blob_id
        [at] = await reader.placed([check.wanted])
        data = (await reader.fetch([at]))[at.sha256]
        if isinstance(data, Refusal):
            number = head.segment - len(segments)
            mismatch = data.reason is Reason.BLOB_HASH_MISMATCH
            return Chain(None, f"segment {number}: {data.message}", mismatch)
        problem = _problem(check, data)
        if problem or check.accepted is None:
            return Chain(None, problem)
        segments.append((check.accepted, holder))
    segments.reverse()
    try:
        return Chain(await asyncio.to_thread(fold_all, segments))
    except Refusal as refusal:
        return Chain(None, refusal.message)


def _problem(check: ChainCheck, data: bytes) -> str:
    try:
        return check.accept(data)
    except Refusal as refusal:
        return refusal.message


@dataclass(frozen=True, slots=True)
class Expected:
    """What journal and manifest say of a checkpoint.

    Attributes:
        place: The checkpoint.
        recorded: The journal had it.
        certified: Its current revision was certified.
        problem: In what the manifest contradicts the journal, for people; else empty.
        told: Where the manifest says that its envelope lies, if the journal had none.
    """

    place: Place
    recorded: bool = False
    certified: bool = False
    problem: str = ""
    told: BlobLocation | None = None


def expectations(thread: RecordedThread, folded: Folded | None) -> list[Expected]:
    """Return what is to be verified, by namespace and ID.

    Args:
        thread: What the journal recorded.
        folded: What the manifest says; `None` if that cannot be known.
    """
    places = set(thread.checkpoints)
    if folded is None:
        places |= thread.untold
    else:
        places |= folded.entries.keys() | folded.retracted
    return [_expected_of(place, thread, folded) for place in sorted(places)]


def _expected_of(place: Place, thread: RecordedThread, folded: Folded | None) -> Expected:
    recorded = thread.checkpoints.get(place)
    entry = folded.entries.get(place) if folded is not None else None
    if recorded is None:
        if entry is None or place in thread.untold:
            return Expected(place)
        problem = "the manifest tells of it and the journal does not know it"
        return Expected(place, problem=problem, told=entry.envelope)
    problem = "" if folded is None else _contradiction(recorded, entry)
    return Expected(place, recorded=True, certified=recorded.is_certified, problem=problem)


def _contradiction(recorded: RecordedCheckpoint, entry: ManifestEntry | None) -> str:
    """Say in what a manifest contradicts the journal, for people; empty if in nothing.

    Of what is not certified, a manifest may still tell what is taken back.
    """
    if recorded.certified_revision == 0:
        return ""
    if entry is None:
        return "it is certified and missing from the manifest"
    if entry.revision != recorded.certified_revision:
        return (
            f"the manifest tells of revision {entry.revision} and the journal certified "
            f"{recorded.certified_revision}"
        )
    told = tuple(at.sha256 for at in entry.envelopes)
    if recorded.envelopes and told != recorded.envelopes:
        return (
            f"the manifest names {_spelled(told)} where {_spelled(recorded.envelopes)} was recorded"
        )
    if not recorded.is_certified:
        return ""
    different = [
        name
        for name in ("parent_id", "label", "summary", "lineage", "created_us", "hidden")
        if getattr(entry, name) != getattr(recorded, name)
    ]
    return f"manifest and journal differ in {', '.join(different)}" if different else ""


def _spelled(hashes: Iterable[bytes]) -> str:
    return " + ".join(sha256.hex() for sha256 in hashes)
