"""Builds the journal's rows of a thread from its records and segments."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...archive.flush.building import segment_facts
from ...archive.formats.manifests import Key, Manifest
from ...archive.formats.records import CheckpointRecord, MemberRecord, WritesRecord
from ...archive.formats.segment_reading import whole_value
from ...archive.formats.stored_json import Kind
from ...archive.read.read import StoredSegment
from ...archive.rows import stored as rows
from ...archive.rows.plan import StoredMember
from ...core import items
from ...core.errors import Refusal, malformed_bytes
from ...core.model import BlobLocation, Value
from ...core.threads import judge_state, keeps_records
from ...journal.database.pending_writes import StoredWrite
from ...journal.values.contents import referred_digests
from ...journal.values.segment_refs import ForeignSegments, encode_held
from ..inbox import offers
from .recovered_rows import RecoveredRows, RecoveredValue, ThreadEnd


class ThreadReader:
    """Reads the segments of a thread in any order; see `begin_thread` for the arguments."""

    def __init__(self, manifest: Manifest, seq: int, *, unrecorded: bool) -> None:
        self.manifest = manifest
        self.seq = seq
        self._unrecorded = unrecorded
        self.segments = _segments(manifest)  # `None`: the location is not known
        self.known_lost = {gap.segment for gap in manifest.gaps if gap.segment}
        self.lost: dict[Key, None] = {}  # unreadable checkpoints
        self.lost_segments: dict[bytes, str] = {}  # unreadable segments, and the reasons
        self._seqs: dict[Key, int] = {}
        self._size = 0
        self._checkpoints: dict[bytes, list[CheckpointRecord]] = defaultdict(list)
        self._writes: dict[bytes, list[WritesRecord]] = defaultdict(list)
        for number, (place, entry) in enumerate(manifest.entries.items(), 1):
            self._seqs[place] = seq + number if unrecorded else entry.record.seq
            self._checkpoints[entry.record.segment].append(entry.record)
            for writes in entry.writes:
                self._writes[writes.segment].append(writes)
        self._heads = set(dict(sorted(manifest.entries)).items())
        self._needs: dict[Key, set[bytes]] = {}
        self._held: dict[bytes, RecoveredValue] = {}
        self._whole: set[bytes] = set()  # values whose segment has the whole value, or its keyframe
        self._ranks: dict[tuple[Key, str, int], tuple[bool, int, int]] = {}
        self._pending: dict[tuple[str, int], tuple[str, str, int]] = {}

    def lose(self, sha256: bytes, reason: str) -> list[str]:
        """Mark a segment as unreadable; return the checkpoints that are left out."""
        self.lost_segments[sha256] = reason
        places = [_place(record) for record in self._checkpoints.get(sha256, ())]
        self.lost.update(dict.fromkeys(places))
        write_places = [_place(writes) for writes in self._writes.get(sha256, ())]
        return [
            *map(self.named, places),
            *("writes of " + self.named(place) for place in write_places),
        ]

    def named(self, place: Key) -> str:
        """Return the name of a checkpoint for people."""
        suffix = f" in namespace '{place[0]}'" if place[0] else ""
        return f"checkpoint '{place[1]}' of thread '{self.manifest.thread_id}'{suffix}"

    def take(self, stored: StoredSegment) -> RecoveredRows:
        """Return the thread's rows in a segment.

        Raises:
            Refusal: `BLOB_MALFORMED`: the segment's content differs from the records.
        """
        segment, manifest, sha256 = stored.segment, self.manifest, stored.location.sha256
        log = (segment.thread_id, segment.incarnation)
        is_own = log == (manifest.thread_id, manifest.incarnation)
        members = self._members(stored, own=is_own and not self._unrecorded)
        for digest, value in stored.values.items():
            is_whole = not value.keyframe or value.keyframe in stored.values
            if digest not in self._held or (is_whole and digest not in self._whole):
                seq = members[0].last_seq or self.seq
                entry = RecoveredValue(digest, value.type, value.size, 0, None, seq, sha256)
                self._held[digest] = entry
            if is_whole:
                self._whole.add(digest)
        return RecoveredRows(
            manifest.thread_id,
            members,
            [self._checkpoint(record, stored) for record in self._checkpoints.get(sha256, ())],
            [
                write
                for record in self._writes.get(sha256, ())
                for write in self._new_writes(record, stored, own=is_own)
            ],
        )

    def incomplete(self) -> list[tuple[Key, bytes]]:
        """Return checkpoints that need a value that no segment has, with the value."""
        return [
            (place, missing_digest)
            for place, digests in self._needs.items()
            if place not in self.lost
            and (
                missing_digest := next(
                    (digest for digest in digests if digest not in self._held), None
                )
            )
        ]

    def head_values(self) -> dict[Key, dict[BlobLocation, list[bytes]]]:
        """Return the locations of the values of each namespace's latest checkpoint."""
        by_place: dict[Key, dict[BlobLocation, list[bytes]]] = {}
        for place in sorted(self._heads - self.lost.keys()):
            by_location: dict[BlobLocation, list[bytes]] = defaultdict(list)
            for digest in self._needs[place]:
                location = self.segments[self._held[digest].segment]
                if location is not None:
                    by_location[location].append(digest)
            by_place[place] = by_location
        return by_place

    def head_bytes(self, place: Key) -> int:
        """Return the bytes of a latest checkpoint's values that are not kept yet."""
        return sum(
            self._held[digest].size for digest in self._needs[place] if not self.keeps(digest)
        )

    def keeps(self, digest: bytes) -> bool:
        """Return whether a value is kept."""
        return self._held[digest].data is not None

    def keep(self, values: Mapping[bytes, Value]) -> None:
        """Keep packed values of a latest checkpoint."""
        for digest, value in values.items():
            entry = self._held[digest]
            self._held[digest] = RecoveredValue(*rows.stored_value(digest, value)[:5], *entry[-2:])

    def end(self) -> ThreadEnd:
        """Return the rows that complete the thread."""
        manifest = self.manifest
        places = [place for place in manifest.entries if place not in self.lost]
        rooted = [] if keeps_records(manifest.thread_id) else places
        root_id = max((name for checkpoint_ns, name in rooted if not checkpoint_ns), default="")
        digests = sorted({digest for place in places for digest in self._needs[place]})
        pinned = {pin.segment for pin in manifest.pins}
        bundles: list[StoredMember] = []
        for record in (manifest.members[sha256] for sha256 in pinned if sha256 in manifest.members):
            parts = b"".join(record.needs)
            bundles.append(StoredMember(record.location, record.holds, parts=parts))
            bundles += _parts(manifest.members, record.needs)
        return ThreadEnd(
            manifest=manifest,
            count=len(places),
            added_bytes=self._size + sum(self._held[digest].size for digest in digests),
            head_id=root_id,
            # Records have writes only for checkpoints that were the head when they were stored.
            state=judge_state(self._pending.values() if ("", root_id) in self._heads else ()),
            values=[self._held[digest] for digest in digests],
            used=[
                sha256 for sha256 in self.segments if sha256 not in {*self.lost_segments, *pinned}
            ],
            bundles=bundles,
            lost=list(self.lost),
            lost_segments=self.lost_segments,
        )

    def _members(self, stored: StoredSegment, *, own: bool) -> list[StoredMember]:
        """Return a segment and its parts; `own`: the segment has the log of this thread."""
        segment, members = stored.segment, self.manifest.members
        record = members[stored.location.sha256]
        parts = _parts(members, record.needs)
        needs, digests, patched = segment_facts(segment)
        ranged = own and record.last_seq > 0
        row = StoredMember(
            record.location,
            record.holds,
            incarnation=segment.incarnation if own else None,
            first_seq=record.first_seq if ranged else None,
            last_seq=record.last_seq if ranged else None,
            needs=b"".join(needs),
            parts=b"".join(part.location.sha256 for part in parts),
            digests=digests,
            patched=patched,
        )
        return [row, *parts]

    def _checkpoint(self, record: CheckpointRecord, stored: StoredSegment) -> rows.StoredCheckpoint:
        place, name = _place(record), stored.location.blob_id
        row = stored.checkpoints.get(_held_place(record))
        if row is None:
            raise malformed_bytes(name, f"it does not hold checkpoint '{record.checkpoint_id}'")
        if hashlib.sha256(row.state).digest() != record.state_sha256:
            raise malformed_bytes(
                name, f"it has another state of checkpoint '{record.checkpoint_id}'"
            )
        self._needs[place] = referred_digests(row.state, row.delta_base)
        self._size += len(row.state) + len(row.metadata)
        recorded = row._replace(
            checkpoint_ns=record.checkpoint_ns,
            seq=self._seqs[place],
            parent_id=record.parent_id,
            created_us=record.created_us,
            label=record.label,
            summary=record.summary,
            lineage=record.lineage,
        )
        try:
            checkpoint = rows.of_segment(recorded, "metadata")
            if items.keeps_items(self.manifest.thread_id) and not place[0]:
                items.check(checkpoint.known.metadata)
            elif offers.keeps_offers(self.manifest.thread_id):
                offers.decode(self.manifest.thread_id, place[1], checkpoint.known.metadata)
        except (Refusal, ValueError) as problem:
            raise malformed_bytes(name, str(problem)) from None
        writes, seq = self.manifest.entries[place].writes, recorded.seq
        if not self._unrecorded:
            seq = max(seq, *(write.seq for write in writes), 0)
        write_segments = dict.fromkeys(write.segment for write in writes)
        segments = tuple(dict.fromkeys([record.segment, *write_segments]))
        state_only = bool(write_segments) and record.segment not in write_segments
        checkpoint.held = encode_held(ForeignSegments(seq, segments, state_only))
        return checkpoint

    def _new_writes(
        self, record: WritesRecord, stored: StoredSegment, *, own: bool
    ) -> Iterator[tuple[Key, StoredWrite]]:
        """Yield the effective writes of a record; writes of heads keep their values."""
        place = _place(record)
        is_head = place in self._heads
        # A write that was recorded again in a later generation, or copied, has the record's number.
        as_numbered = own and stored.segment.generation == record.generation
        for write in stored.writes.get(_held_place(record), ()):
            rank = (own, stored.segment.generation, write.seq)
            slot = (place, write.task_id, write.idx)
            if slot in self._ranks and self._ranks[slot] >= rank:
                continue
            self._ranks[slot] = rank
            seq = write.seq if as_numbered else record.seq
            if self._unrecorded:
                seq = self._seqs[place]
            self._size += len(write.data)
            if is_head:
                whole_value(write, None, stored.location.blob_id)
            if is_head and not place[0]:
                self._pending[write.task_id, write.idx] = (write.task_id, write.channel, seq)
            data = write.data if is_head else None
            yield place, rows.of_written(write, seq, write.encoding, data)


def _segments(manifest: Manifest) -> dict[bytes, BlobLocation | None]:
    """Return the locations of the segments that the checkpoints of a manifest need."""
    parts = {member.sha256 for member in manifest.members.values() if member.holds is Kind.PART}
    hashes = replace(manifest, pins=()).needed() - parts
    return {sha256: manifest.location(sha256) for sha256 in sorted(hashes)}


def _place(record: CheckpointRecord | WritesRecord) -> Key:
    return (record.checkpoint_ns, record.checkpoint_id)


def _held_place(record: CheckpointRecord | WritesRecord) -> Key:
    held_ns = record.checkpoint_ns if record.held_ns is None else record.held_ns
    return (held_ns, record.checkpoint_id)


def _parts(members: Mapping[bytes, MemberRecord], hashes: Iterable[bytes]) -> list[StoredMember]:
    records = [record for sha256 in hashes if (record := members.get(sha256)) is not None]
    return [
        StoredMember(record.location, Kind.PART) for record in records if record.holds is Kind.PART
    ]
