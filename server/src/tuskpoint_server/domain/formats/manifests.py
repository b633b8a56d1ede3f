"""From the records of a thread to its manifest, and manifests as they are stored.

Of two records about the same thing the one with the greater (generation, `seq`) counts, on
equality the one of the later run. A removal beats what is not above it; the end of an
incarnation beats all of it and of lower ones. Which runs hold the records makes no other
difference, so merged runs fold to the same manifest as unmerged ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeVar

from ..errors import malformed
from ..model import BlobLocation
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
    encode_record,
    read_record,
    settle,
)
from .stored_json import FORMAT_VERSION, Fields, Kind, dump

Key = tuple[str, str]
"""Namespace and ID of a checkpoint."""

_REMOVAL = RemovalRecord.kind
_END = EndRecord.kind
_OF_CHECKPOINTS = (CheckpointRecord.kind, WritesRecord.kind, GapRecord.kind)


AnyFact = TypeVar("AnyFact", bound=Record | Line)
"""What folding looks at: a record, or one that is not read any further."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A stored checkpoint."""

    record: CheckpointRecord  # what counts of it
    # which segments hold its pending writes, in the order of the log. Of two writes with the same
    # task and `idx` the greater (generation, `seq`) counts.
    writes: tuple[WritesRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that records say of one thread."""

    thread_id: str
    incarnation: int  # its newest incarnation of which something is stored, or which ended
    ended: bool  # that incarnation was deleted; nothing but `deleted_through` is known of it
    deleted_through: str  # greatest checkpoint ID of all ended incarnations, or empty
    records: tuple[Record, ...]  # every record that counts, in the order of the log
    entries: Mapping[Key, ManifestEntry]  # the stored checkpoints, in the order of the log
    # where the segments and parts lie that the thread needs, by SHA-256
    members: Mapping[bytes, MemberRecord]
    gaps: tuple[GapRecord, ...] = ()  # what cannot be read from the blob store
    pins: tuple[PinRecord, ...] = ()  # bundles that were handed off
    # agent and settings; `None`: no agent, and every setting as it is at first
    setting: SettingRecord | None = None
    # checkpoints that are known to have been removed and not saved again. A merge with the oldest
    # run forgets them.
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
        """Return where the segment lies that a record or a segment names, if it is known."""
        found = self.members.get(sha256)
        return None if found is None else found.location

    def needed(self) -> set[bytes]:
        """Return the SHA-256 of every member that the stored checkpoints and pins need."""
        waiting = [pin.segment for pin in self.pins]
        for entry in self.entries.values():
            waiting.append(entry.record.segment)
            waiting.extend(writes.segment for writes in entry.writes)
        found: set[bytes] = set()
        while waiting:
            sha256 = waiting.pop()
            if sha256 not in found:
                found.add(sha256)
                member = self.members.get(sha256)
                waiting.extend(member.needs if member else ())
        return found


def live(facts: Iterable[AnyFact]) -> list[AnyFact]:
    """Return the facts about one thread that count beside these, whatever others there are.

    Removals and the like are among them, because other runs may hold what they take away.

    Args:
        facts: The facts; those of an older run first.
    """
    newest: dict[Identity, AnyFact] = {}
    end: AnyFact | None = None
    incarnation = -1
    for fact in facts:
        identity = fact.identity
        if identity[0] == _END:
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
        return _unremoved(newest)
    if end.incarnation >= incarnation:
        return [end]
    return [end, *_unremoved(newest)]


def _unremoved(newest: Mapping[Identity, AnyFact]) -> list[AnyFact]:
    kept = []
    for identity, fact in newest.items():
        if identity[0] in _OF_CHECKPOINTS:
            removal = newest.get((_REMOVAL, identity[1], identity[2]))
            if removal is not None and removal.rank >= fact.rank:
                continue
        kept.append(fact)
    return kept


def fold(thread_id: str, records: Iterable[Record]) -> Manifest:
    """Return the manifest of a thread from all its records.

    They may come in any order; only of two with the same rank about the same thing, that of
    the older run comes first.
    """
    facts = live(records)
    ends = [fact for fact in facts if isinstance(fact, EndRecord)]
    counting = sorted((fact for fact in facts if not fact.passing), key=_place)
    newest = max((record.incarnation for record in counting), default=0)
    return Manifest(
        thread_id=thread_id,
        incarnation=newest,
        ended=bool(ends) and ends[0].incarnation == newest,
        deleted_through=ends[0].deleted_through if ends else "",
        records=tuple(counting),
        entries=_entries(counting),
        members={one.location.sha256: one for one in counting if isinstance(one, MemberRecord)},
        gaps=tuple(one for one in counting if isinstance(one, GapRecord)),
        pins=tuple(one for one in counting if isinstance(one, PinRecord)),
        setting=next((one for one in counting if isinstance(one, SettingRecord)), None),
        removed=_removed(facts),
    )


def _place(record: Record) -> tuple[int, Rank, tuple[str, ...]]:
    spelled = tuple(part.hex() if isinstance(part, bytes) else part for part in record.identity)
    return (record.incarnation, record.rank, spelled)


def _entries(records: Iterable[Record]) -> dict[Key, ManifestEntry]:
    """Writes of a checkpoint that no record names wait for it: it may be a gap."""
    found: dict[Key, CheckpointRecord] = {}
    writes: dict[Key, list[WritesRecord]] = {}
    for record in records:
        if isinstance(record, CheckpointRecord):
            found[(record.checkpoint_ns, record.checkpoint_id)] = record
        elif isinstance(record, WritesRecord):
            key = (record.checkpoint_ns, record.checkpoint_id)
            writes.setdefault(key, []).append(record)
    return {key: ManifestEntry(record, tuple(writes.get(key, ()))) for key, record in found.items()}


def _removed(facts: Iterable[Record]) -> frozenset[Key]:
    removed: set[Key] = set()
    saved: set[Key] = set()
    for fact in facts:
        if isinstance(fact, RemovalRecord):
            removed.add((fact.checkpoint_ns, fact.checkpoint_id))
        elif isinstance(fact, CheckpointRecord):
            saved.add((fact.checkpoint_ns, fact.checkpoint_id))
    return frozenset(removed - saved)


_RECORDS = b'"records":[]'


def encode_manifest(manifest: Manifest, tenant: str) -> bytes:
    """Return the stored bytes: every record that counts, in the order of the log.

    The members of the manifest name the blobs that they lie in.
    """
    head = dump(
        {
            "format_version": FORMAT_VERSION,
            "kind": Kind.MANIFEST.value,
            "records": [],
            "tenant": tenant,
            "thread_id": manifest.thread_id,
        }
    )
    # The first place: what precedes it holds no text of a caller.
    before, _, after = head.partition(_RECORDS)
    records = b",".join(encode_record(record) for record in manifest.records)
    return b"".join((before, _RECORDS[:-1], records, b"]", after))


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Return what stored bytes hold."""
    fields = Fields.document(data, name, Kind.MANIFEST)
    fields.text("tenant")
    thread_id = fields.name("thread_id")
    records = [settle(read_record(record), name) for record in fields.children("records")]
    if any(record.thread_id != thread_id for record in records):
        raise malformed(name, f"it is of thread '{thread_id}' and has records of others")
    return fold(thread_id, records)
