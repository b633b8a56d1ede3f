"""Folding the records of a thread to its manifest, and manifests in their stored form.

Of two records about the same thing the one with the greater (generation, `seq`) counts; if equal,
the one of the later run. A removal overrides what is not above it; the end of an incarnation
overrides all of it and of lower ones. Merged runs fold to the same manifest.
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
"""A record, or a line of a run that is not decoded further."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A stored checkpoint, and which segments hold its pending writes, in the order of the log.

    Of two writes with the same task and `idx` the greater (generation, `seq`) counts.
    """

    record: CheckpointRecord
    writes: tuple[WritesRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """All records of one thread that count, in the order of the log."""

    thread_id: str
    incarnation: int  # the newest one of which something is stored, or which ended
    ended: bool  # that incarnation was deleted; nothing but `deleted_through` is known of it
    deleted_through: str  # greatest checkpoint ID of all ended incarnations, or empty
    records: tuple[Record, ...]  # that count
    entries: Mapping[Key, ManifestEntry]
    members: Mapping[bytes, MemberRecord]  # the segments and parts that it needs, by SHA-256
    gaps: tuple[GapRecord, ...] = ()
    pins: tuple[PinRecord, ...] = ()
    setting: SettingRecord | None = None  # `None`: no agent, and every setting as at first
    # Checkpoints removed and not saved again. A merge with the oldest run forgets them.
    removed: AbstractSet[Key] = field(default=frozenset(), compare=False)

    @property
    def generation(self) -> int:
        """The greatest generation among its records; 0 if there are none."""
        return max((record.generation for record in self.records), default=0)

    @property
    def seq(self) -> int:
        """The greatest `seq` among its records; 0 if there are none."""
        return max((record.seq for record in self.records), default=0)

    def location(self, sha256: bytes) -> BlobLocation | None:
        """Return the location of a segment that a record or a segment names, if it is known."""
        member = self.members.get(sha256)
        return None if member is None else member.location

    def needed(self, *, later: bool = False) -> set[bytes]:
        """Return the SHA-256 of every member that the stored checkpoints and pins need.

        `later`: also what pending writes need that wait for the record of their checkpoint.
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
    """Return the facts about one thread that count, whatever other runs hold.

    Removals and ends are kept, because other runs may hold the records that they override. Of two
    facts with the same rank about the same thing, the one of the older run must come first.
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
    # Writes of a checkpoint that no record names wait for it: it may be a gap.
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
    """Return the stored bytes: every record that counts, in the order of the log."""
    records = [record_json(record) for record in manifest.records]
    content = {"records": records, "tenant": tenant, "thread_id": manifest.thread_id}
    return dump_document(Kind.MANIFEST, content)


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Decode stored bytes."""
    fields = Fields.document(data, name, Kind.MANIFEST)
    fields.text("tenant")
    thread_id = fields.name("thread_id")
    records = [read_record(record) for record in fields.children("records")]
    if any(record.thread_id != thread_id for record in records):
        raise fields.fail(f"it is of thread '{thread_id}' and has records of others")
    return fold(thread_id, records)
