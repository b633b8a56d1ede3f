"""Folding the records of a thread to its manifest, and the stored form of manifests.

Of two records with the same subject, the record with the greater (generation, `seq`) counts; if
equal, the record of the later run. A removal overrides records that are not above it; the end of an
incarnation overrides all records of this and of lower incarnations. Merged runs fold to the same
manifest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeVar

from ...core.model import BlobLocation
from .records import (
    CheckpointRecord,
    EndRecord,
    GapRecord,
    Identity,
    Line,
    MemberRecord,
    PinRecord,
    Rank,
    Record,
    RemovalRecord,
    SettingRecord,
    WritesRecord,
    read_record,
    record_json,
)
from .stored_json import Fields, Kind, dump_document

Key = tuple[str, str]  # namespace and ID of a checkpoint
_OF_CHECKPOINTS = (CheckpointRecord.kind, WritesRecord.kind, GapRecord.kind)

AnyFact = TypeVar("AnyFact", bound=Record | Line)
"""A record, or a line of a run that is decoded no further."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """Stored checkpoint, and the segments that contain its pending writes, in the order of the log.

    Of two writes with the same task and `idx`, the write with the greater (generation, `seq`)
    counts.
    """

    record: CheckpointRecord
    writes: tuple[WritesRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """All valid records of one thread, in the order of the log."""

    thread_id: str
    incarnation: int  # newest incarnation that has stored content, or that ended
    # whether that incarnation was deleted; the manifest then only knows `deleted_through`
    ended: bool
    deleted_through: str  # greatest checkpoint ID of all ended incarnations, or empty
    records: tuple[Record, ...]  # records that count
    entries: Mapping[Key, ManifestEntry]
    members: Mapping[bytes, MemberRecord]  # segments and parts that the thread needs, by SHA-256
    gaps: tuple[GapRecord, ...] = ()
    pins: tuple[PinRecord, ...] = ()
    setting: SettingRecord | None = None  # `None`: no agent, and every setting has its default
    # Checkpoints that were removed and not saved again. A merge with the oldest run drops their
    # records.
    removed: AbstractSet[Key] = field(default=frozenset(), compare=False)

    @property
    def generation(self) -> int:
        """Greatest generation among the records; 0 without records."""
        return max((record.generation for record in self.records), default=0)

    @property
    def seq(self) -> int:
        """Greatest `seq` among the records; 0 without records."""
        return max((record.seq for record in self.records), default=0)

    def location(self, sha256: bytes) -> BlobLocation | None:
        """Return the location of a segment that a record or a segment names, if known."""
        member = self.members.get(sha256)
        return None if member is None else member.location

    def needed(self, *, later: bool = False) -> set[bytes]:
        """Return the SHA-256 of every member that the stored checkpoints and pins need.

        With `later`, include the members for pending writes whose checkpoint has no record yet.
        """
        waiting = [pin.segment for pin in self.pins]
        if later:
            waiting += [
                record.segment for record in self.records if isinstance(record, WritesRecord)
            ]
        for entry in self.entries.values():
            waiting.append(entry.record.segment)
            waiting.extend(writes.segment for writes in entry.writes)
        hashes: set[bytes] = set()
        while waiting:
            sha256 = waiting.pop()
            if sha256 not in hashes:
                hashes.add(sha256)
                member = self.members.get(sha256)
                waiting.extend(member.needs if member else ())
        return hashes


def live_facts(facts: Iterable[AnyFact]) -> list[AnyFact]:
    """Return the valid facts about one thread, whatever other runs contain.

    Removals and ends stay, because other runs may contain the records that they override. Of two
    facts with the same rank and subject, the fact of the older run must come first.
    """
    newest: dict[Identity, AnyFact] = {}
    end: AnyFact | None = None
    incarnation = -1
    for fact in facts:
        identity = fact.identity
        if identity[0] == EndRecord.kind:
            if end is None or (fact.incarnation, fact.rank) >= (end.incarnation, end.rank):
                end = fact
            continue
        if fact.incarnation < incarnation:
            continue
        if fact.incarnation > incarnation:
            incarnation = fact.incarnation
            newest.clear()
        other = newest.get(identity)
        if other is None or fact.rank >= other.rank:
            newest[identity] = fact
    if end is None:
        return _unremoved_facts(newest)
    if end.incarnation >= incarnation:
        return [end]
    return [end, *_unremoved_facts(newest)]


def _unremoved_facts(newest: Mapping[Identity, AnyFact]) -> list[AnyFact]:
    facts = []
    for identity, fact in newest.items():
        if identity[0] in _OF_CHECKPOINTS:
            removal = newest.get((RemovalRecord.kind, identity[1], identity[2]))
            if removal is not None and removal.rank >= fact.rank:
                continue
        facts.append(fact)
    return facts


def fold(thread_id: str, records: Iterable[Record]) -> Manifest:
    """Return the manifest of a thread from all its records, in the order of `live_facts`."""
    facts = live_facts(records)
    removed = {_key(fact) for fact in facts if isinstance(fact, RemovalRecord)}
    saved = {_key(fact) for fact in facts if isinstance(fact, CheckpointRecord)}
    counting = sorted((fact for fact in facts if not fact.passing), key=_place)
    # Writes whose checkpoint has no record wait for one: the checkpoint may be a gap.
    writes: defaultdict[Key, list[WritesRecord]] = defaultdict(list)
    for record in counting:
        if isinstance(record, WritesRecord):
            writes[_key(record)].append(record)
    newest = max((record.incarnation for record in counting), default=0)
    end = next((fact for fact in facts if isinstance(fact, EndRecord)), None)
    return Manifest(
        thread_id=thread_id,
        incarnation=newest,
        ended=end is not None and end.incarnation == newest,
        deleted_through=end.deleted_through if end is not None else "",
        records=tuple(counting),
        entries={
            _key(record): ManifestEntry(record, tuple(writes.get(_key(record), ())))
            for record in counting
            if isinstance(record, CheckpointRecord)
        },
        members={record.sha256: record for record in counting if isinstance(record, MemberRecord)},
        gaps=tuple(record for record in counting if isinstance(record, GapRecord)),
        pins=tuple(record for record in counting if isinstance(record, PinRecord)),
        setting=next((record for record in counting if isinstance(record, SettingRecord)), None),
        removed=frozenset(removed - saved),
    )


def _place(record: Record) -> tuple[int, Rank, tuple[str, ...]]:
    texts = tuple(part.hex() if isinstance(part, bytes) else part for part in record.identity)
    return (record.incarnation, record.rank, texts)


def _key(record: CheckpointRecord | WritesRecord | RemovalRecord) -> Key:
    return (record.checkpoint_ns, record.checkpoint_id)


def encode_manifest(manifest: Manifest, tenant: str) -> bytes:
    """Return the stored bytes of a manifest: every valid record, in the order of the log."""
    records = [record_json(record) for record in manifest.records]
    content = {"records": records, "tenant": tenant, "thread_id": manifest.thread_id}
    return dump_document(Kind.MANIFEST, content)


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Return the manifest in stored bytes."""
    fields = Fields.document(data, name, Kind.MANIFEST)
    fields.text("tenant")
    thread_id = fields.name("thread_id")
    records = [read_record(record) for record in fields.children("records")]
    if any(record.thread_id != thread_id for record in records):
        raise fields.fail(f"it is of thread '{thread_id}' and has records of others")
    return fold(thread_id, records)
