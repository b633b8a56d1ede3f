"""Auditing one thread: its manifest, then every envelope that the manifest leads to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .formats.catalogs import SNAPSHOTS, ThreadHead
from .formats.envelopes import (
    Envelope,
    StoredEnvelope,
    entry_problem,
    provenance,
    read_envelope,
)
from .formats.manifests import (
    Chain,
    Entry,
    Folded,
    ManifestHead,
    Place,
    Segment,
    fold,
    read_segment,
)
from .formats.stored import Fields, Location, Malformed, is_part_list, parse_json
from .reading import LARGE_BYTES, Bounds, Piece, Reader, Whole, all_of
from .verdicts import BlobFinding, Item, ItemKind, ThreadTotal, Verdict, worst

_BATCH = 256
"""Checkpoints of a thread that wait for their turn at once."""

_SNAPSHOT_MEMBERS = "members"


@dataclass(frozen=True, slots=True)
class ThreadFindings:
    """What was found of a thread."""

    total: ThreadTotal
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A manifest as far as it could be read."""

    chain: Chain
    item: Item

    @property
    def segments(self) -> list[Segment]:
        return self.chain.segments[::-1]


async def audit_thread(
    reader: Reader, head: ManifestHead, told: ThreadHead | None, first: Piece | None = None
) -> ThreadFindings:
    """Audit a thread.

    Args:
        reader: Reads.
        head: Where its manifest ends.
        told: What a catalog says of it, if one does.
        first: The last segment, if it was read already.
    """
    manifest = await _read_manifest(reader, head, told, first)
    folded = fold(manifest.segments)
    thread_id = manifest.item.thread_id
    is_whole = manifest.item.verdict in (Verdict.PASS, Verdict.TRUSTED)
    reader.expect(len(folded.entries) - (foreseen_checkpoints(told) if told else 0))
    items = [manifest.item]
    entries = list(folded.entries.values())
    for start in range(0, len(entries), _BATCH):
        some = entries[start : start + _BATCH]
        items += await all_of(_audit_checkpoint(reader, thread_id, entry) for entry in some)
    items += _without_envelope(thread_id, folded, manifest.item.verdict)
    if thread_id.startswith(SNAPSHOTS) and is_whole:
        items += await _audit_snapshot(reader, thread_id, folded)
    total = _total(manifest, told, items)
    return ThreadFindings(total, tuple(items))


def foreseen_checkpoints(head: ThreadHead) -> int:
    """Return how many checkpoints a thread may have: a record tells of each."""
    return (head.manifest.records or 0) if head.manifest else 0


def _total(manifest: _Manifest, told: ThreadHead | None, items: Sequence[Item]) -> ThreadTotal:
    segments = manifest.segments
    incarnation = told.incarnation if told else segments[-1].incarnation if segments else 0
    return ThreadTotal(
        thread_id=manifest.item.thread_id,
        incarnation=incarnation,
        snapshot=manifest.item.thread_id.startswith(SNAPSHOTS),
        facts={} if told is None else facts_of(told),
        segments=len(segments),
        records=sum(len(segment.records) for segment in segments),
        manifest=manifest.item.verdict,
        counts=Counter(item.verdict for item in items if item.kind is ItemKind.CHECKPOINT),
    )


def facts_of(head: ThreadHead) -> dict[str, str | int | bool]:
    """Return what a catalog says of a thread, beyond its manifest."""
    return {
        "agent_id": head.agent_id,
        "deleted_through": head.deleted_through,
        "retention_s": head.retention_s,
        "unsearchable": head.unsearchable,
    }


# --- the manifest ----------------------------------------------------------------------


async def _read_manifest(
    reader: Reader, head: ManifestHead, told: ThreadHead | None, first: Piece | None
) -> _Manifest:
    """Read a manifest from its head to its first segment, as far as it holds."""
    chain = Chain(head, (told.thread_id, told.incarnation) if told else None)
    findings: list[BlobFinding] = []
    problem = ""
    piece = first
    while chain.wanted is not None and not problem:
        wanted = chain.wanted
        number = chain.next_number
        if piece is None:
            piece = await reader.read("segment", wanted, reader.bounds.index)
        findings.append(piece.finding)
        if piece.data is None:
            problem = f"{_named(number)}: {piece.finding.reason}"
        else:
            problem = _taken(chain, piece.data, wanted)
        piece = None
        reader.step("threads")
    thread_id = told.thread_id if told else _thread_of(chain)
    return _Manifest(chain, _manifest_item(thread_id, findings, problem))


def _taken(chain: Chain, data: bytes, wanted: Location) -> str:
    """Let a chain take a segment; say what is wrong with it."""
    try:
        return chain.take(read_segment(data, wanted.blob_id))
    except Malformed as error:
        return f"{_named(chain.next_number)}: {error}"


def _named(number: int | None) -> str:
    return "the last segment" if number is None else f"segment {number}"


def _thread_of(chain: Chain) -> str:
    return chain.segments[0].thread_id if chain.segments else ""


def _manifest_item(thread_id: str, findings: Sequence[BlobFinding], problem: str) -> Item:
    verdict = worst(finding.verdict for finding in findings)
    if problem and verdict in (Verdict.PASS, Verdict.TRUSTED):
        verdict = Verdict.FAIL
    return Item(ItemKind.MANIFEST, verdict, tuple(findings), thread_id, reason=problem)


# --- checkpoints -----------------------------------------------------------------------


async def _audit_checkpoint(reader: Reader, thread_id: str, entry: Entry) -> Item:
    async with reader.turns:
        if sum(at.size_bytes or 0 for at in entry.envelopes) > LARGE_BYTES:
            async with reader.alone:
                item = await _judged(reader, thread_id, entry, await _pieces(reader, entry))
        else:
            pieces = await _pieces(reader, entry)
            if any(piece.data is not None and is_part_list(piece.data) for piece in pieces):
                async with reader.alone:
                    item = await _judged(reader, thread_id, entry, pieces)
            else:
                item = await _judged(reader, thread_id, entry, pieces)
    reader.step("threads")
    return item


async def _pieces(reader: Reader, entry: Entry) -> list[Piece]:
    """Read what lies where the envelopes of a checkpoint are said to lie."""
    bound = reader.bounds.envelope
    return [
        await reader.read(role, at, bound)
        for role, at in zip(_roles(entry), entry.envelopes, strict=True)
    ]


def _roles(entry: Entry) -> tuple[str, ...]:
    return ("envelope", *("addendum" for _ in entry.addenda))


async def _judged(reader: Reader, thread_id: str, entry: Entry, pieces: Sequence[Piece]) -> Item:
    wholes = [
        await reader.read_whole(role, at, reader.bounds.envelope, first=piece)
        for role, at, piece in zip(_roles(entry), entry.envelopes, pieces, strict=True)
    ]
    item = Item(
        ItemKind.CHECKPOINT,
        worst(whole.verdict for whole in wholes),
        tuple(finding for whole in wholes for finding in whole.findings),
        thread_id,
        *entry.place,
        reason=next((reason for whole in wholes if (reason := _reason(whole))), ""),
    )
    if item.verdict is Verdict.PASS:
        item = await _with_content(reader, item, entry, wholes)
    if entry.hidden and item.verdict is Verdict.PASS:
        notes = (*item.notes, "hidden: kept for the delta channels of others")
        item = replace(item, verdict=Verdict.RETRACTED, notes=notes)
    return item


async def _with_content(reader: Reader, item: Item, entry: Entry, wholes: Sequence[Whole]) -> Item:
    """Judge what envelopes hold that have the right hashes."""
    size = sum(len(whole.data or b"") for whole in wholes)
    try:
        stored = await reader.apart(size, lambda: _opened(wholes, reader.bounds))
    except Malformed as error:
        return replace(item, verdict=Verdict.FAIL, reason=str(error))
    problem = entry_problem(item.thread_id, entry, stored)
    if problem:
        return replace(item, verdict=Verdict.FAIL, reason=problem)
    note = provenance(item.thread_id, entry, stored[0].envelope)
    return replace(item, notes=(note,)) if note else item


def _opened(wholes: Sequence[Whole], bounds: Bounds) -> list[StoredEnvelope]:
    return [
        StoredEnvelope(
            read_envelope(whole.data or b"", bounds.envelope, bounds.fields), whole.names
        )
        for whole in wholes
    ]


def _reason(whole: Whole) -> str:
    if whole.reason:
        return whole.reason
    return next((f"{one.role}: {one.reason}" for one in whole.findings if one.reason), "")


def _without_envelope(thread_id: str, folded: Folded, chain: Verdict) -> list[Item]:
    """Return items of checkpoints of which no envelope is known."""
    items = [
        Item(ItemKind.CHECKPOINT, Verdict.RETRACTED, (), thread_id, *place)
        for place in folded.retracted
    ]
    broken = "the record that says where its envelope lies is in a segment that was not read"
    verdict, reason = (chain, broken)
    if chain in (Verdict.PASS, Verdict.TRUSTED):
        verdict, reason = Verdict.FAIL, "records tell of it and none says where its envelope lies"
    items += [
        Item(ItemKind.CHECKPOINT, verdict, (), thread_id, *place, reason=reason)
        for place in folded.rootless
    ]
    return items


# --- snapshots -------------------------------------------------------------------------


async def _audit_snapshot(reader: Reader, thread_id: str, folded: Folded) -> list[Item]:
    """Look whether what a snapshot says that it captured is there."""
    place = ("", thread_id.removeprefix(SNAPSHOTS))
    entry = folded.entries.get(place)
    if entry is None:
        if place in folded.retracted:
            return []
        reason = "the checkpoint that describes the snapshot is missing from its manifest"
        return [Item(ItemKind.CHECKPOINT, Verdict.FAIL, (), thread_id, *place, reason=reason)]
    whole = await reader.read_whole("envelope", entry.envelope, reader.bounds.envelope)
    if whole.data is None:
        return []  # its own item says so
    try:
        bounds = reader.bounds
        described = read_envelope(whole.data, bounds.envelope, bounds.fields, (_SNAPSHOT_MEMBERS,))
        members = _members(described)
    except Malformed as error:
        reason = f"it describes no snapshot: {error}"
        return [Item(ItemKind.CHECKPOINT, Verdict.FAIL, (), thread_id, *place, reason=reason)]
    missing = [place for place in members if place not in folded.entries]
    reason = "the snapshot says that it captured it, and its manifest does not have it"
    return [
        Item(ItemKind.CHECKPOINT, Verdict.FAIL, (), thread_id, *place, reason=reason)
        for place in missing
    ]


def _members(described: Envelope) -> list[Place]:
    try:
        members = parse_json(described.values.get(_SNAPSHOT_MEMBERS, b""))
        if not isinstance(members, list):
            raise Malformed("it is no list")
        return [
            (str(number), Fields(one).text("checkpoint_id")) for number, one in enumerate(members)
        ]
    except Malformed as error:
        reason = f"channel '{_SNAPSHOT_MEMBERS}' is not a list of checkpoints: {error}"
        raise Malformed(reason) from None
