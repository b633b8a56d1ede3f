"""One thread on its way from records and segments to rows of the journal."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...domain.compression import compress
from ...domain.errors import Refusal
from ...domain.formats.delta_base import decode_delta_base
from ...domain.formats.folding import Key, Manifest
from ...domain.formats.members import Kind
from ...domain.formats.records import CheckpointRecord, MemberRecord, Record, WritesRecord
from ...domain.formats.segments import PREFIX_BYTES, SegmentCheckpoint, SegmentValue, SegmentWrite
from ...domain.metadata import parse_metadata
from ...domain.model import BlobLocation, Value
from ...domain.state import decode_channels, delta_channels
from ...domain.stored_json import malformed
from ...journal.archiving.held import encode_held
from ...journal.checkpoints.drafts import encode_names
from ...journal.checkpoints.thread_state import judge
from ...journal.database.overlay import Known, KnownWrite
from ...journal.recovery.inserting import (
    RecoveredCheckpoint,
    RecoveredMember,
    RecoveredThread,
    RecoveredValue,
    RecoveredWrite,
    ThreadEnd,
)
from ..read.segments import Stored, checked, unpacked

_Rank = tuple[bool, int, int]


class _Held(NamedTuple):
    """A value that segments hold.

    Attributes:
        type: Its type.
        size: Its bytes, whole.
        segment: Hash of a segment that holds it.
        seq: A change in the range of that segment.
        alone: The segment holds it whole, or its keyframe too.
    """

    type: str
    size: int
    segment: bytes
    seq: int
    alone: bool


@dataclass(slots=True)
class Taken:
    """What one segment gives a thread."""

    checkpoints: list[RecoveredCheckpoint] = field(default_factory=list)
    writes: list[RecoveredWrite] = field(default_factory=list)
    members: list[RecoveredMember] = field(default_factory=list)
    size_bytes: int = 0


class ThreadReading:
    """Takes the segments of a thread in any order.

    Args:
        manifest: The thread's manifest.
        seq: The greatest number that is stored of its log.
        now_us: Time of the recovery.
        anew: No catalog records the thread.

    Attributes:
        thread: The thread's row.
        segments: Where the segments lie that its checkpoints need, by hash; `None`: nothing
            says where.
        known_lost: Segments that are recorded as lost.
        lost: Checkpoints that cannot be read.
        lost_segments: Segments that cannot be read, and why.
        count: How many checkpoints were read.
    """

    def __init__(self, manifest: Manifest, seq: int, now_us: int, *, anew: bool) -> None:
        self._manifest = manifest
        self._anew = anew
        records = sorted((one.record for one in manifest.entries.values()), key=_log_order)
        self._seqs = {
            _place(record): seq + number if anew else record.seq
            for number, record in enumerate(records, 1)
        }
        self.thread = _thread(manifest, seq, records, now_us, anew=anew)
        self.segments = _segments(manifest)
        self.known_lost = {manifest.segment(gap.segment) for gap in manifest.gaps if gap.segment}
        self.lost: dict[Key, None] = {}
        self.lost_segments: dict[bytes, str] = {}
        self.count = 0
        self._size = 0
        self._checkpoints: dict[bytes, list[CheckpointRecord]] = defaultdict(list)
        self._writes: dict[bytes, list[WritesRecord]] = defaultdict(list)
        for entry in manifest.entries.values():
            self._checkpoints[manifest.segment(entry.record.segment)].append(entry.record)
            for writes in entry.writes:
                self._writes[manifest.segment(writes.segment)].append(writes)
        latest: dict[str, str] = {}
        for checkpoint_ns, checkpoint_id in manifest.entries:
            latest[checkpoint_ns] = max(checkpoint_id, latest.get(checkpoint_ns, ""))
        self._heads = set(latest.items())
        self._needs: dict[Key, frozenset[bytes]] = {}
        self._held: dict[bytes, _Held] = {}
        self._ranks: dict[tuple[Key, str, int], _Rank] = {}
        self._pending: dict[tuple[str, int], KnownWrite] = {}

    @property
    def thread_id(self) -> str:
        """The thread."""
        return self.thread.thread_id

    def lose(self, sha256: bytes, reason: str) -> list[str]:
        """Note that a segment cannot be read; return what is left out because of it."""
        self.lost_segments[sha256] = reason
        places = [_place(record) for record in self._checkpoints.get(sha256, ())]
        self.lost.update(dict.fromkeys(places))
        written = [_place(writes) for writes in self._writes.get(sha256, ())]
        return [
            *(_named(self.thread_id, place) for place in places),
            *("writes of " + _named(self.thread_id, place) for place in written),
        ]

    def take(self, sha256: bytes, stored: Stored) -> Taken:
        """Return the rows that a segment holds of the thread.

        Raises:
            Refusal: `BLOB_MALFORMED`: it holds something else than the records say.
        """
        segment = stored.segment
        own = (segment.thread_id, segment.incarnation) == (
            self.thread_id,
            self.thread.incarnation,
        )
        taken = Taken(members=self._members(sha256, stored, own=own))
        self._note_values(sha256, stored, own=own)
        for record in self._checkpoints.get(sha256, ()):
            taken.checkpoints.append(self._checkpoint(record, stored))
        for writes in self._writes.get(sha256, ()):
            self._take_writes(writes, stored, taken, own=own)
        taken.size_bytes = sum(len(one.data or b"") + 300 for one in taken.writes) + sum(
            len(one.known.state) + len(one.known.metadata) + 500 for one in taken.checkpoints
        )
        self.count += len(taken.checkpoints)
        return taken

    def incomplete(self) -> list[tuple[Key, bytes]]:
        """Return checkpoints that need a value which no segment holds, and the value."""
        return [
            (place, missing)
            for place, digests in self._needs.items()
            if place not in self.lost
            and (missing := next((one for one in digests if one not in self._held), None))
        ]

    def head_values(self) -> dict[Key, dict[BlobLocation, list[bytes]]]:
        """Return by latest checkpoint of a namespace where its values lie."""
        found: dict[Key, dict[BlobLocation, list[bytes]]] = {}
        for place in sorted(self._heads - self.lost.keys()):
            where: dict[BlobLocation, list[bytes]] = defaultdict(list)
            for digest in self._needs[place]:
                location = self.segments[self._held[digest].segment]
                if location is not None:
                    where[location].append(digest)
            found[place] = where
        return found

    def end(self, heads: Mapping[bytes, Value]) -> ThreadEnd:
        """Return what completes the thread.

        Args:
            heads: The values of the latest checkpoints.
        """
        manifest = self._manifest
        places = [place for place in manifest.entries if place not in self.lost]
        root_id = max((name for checkpoint_ns, name in places if not checkpoint_ns), default="")
        needed = {digest for place in places for digest in self._needs[place]}
        values = [self._value(digest, heads.get(digest)) for digest in sorted(needed)]
        bundles = {pin.segment for pin in manifest.pins}
        pins = tuple(pin for pin in manifest.pins if pin.segment in manifest.members)
        return ThreadEnd(
            count=len(places),
            added_bytes=self._size + sum(self._held[digest].size for digest in needed),
            head_id=root_id,
            # What is known of writes is known of what was the head when it was stored.
            state=judge(self._pending if ("", root_id) in self._heads else {}),
            values=values,
            used=tuple(
                sha256
                for sha256 in self.segments
                if sha256 not in self.lost_segments and sha256 not in bundles
            ),
            pins=pins,
            gaps=manifest.gaps,
            lost=tuple(self.lost),
            lost_segments=self.lost_segments,
        )

    def bundles(self) -> list[RecoveredMember]:
        """Return the members of bundles that were handed off."""
        members = self._manifest.members
        found: list[RecoveredMember] = []
        for pin in self._manifest.pins:
            record = members.get(pin.segment)
            if record is not None:
                found.append(RecoveredMember(record.location, record.holds, parts=record.needs))
                found += _parts(members, record.needs)
        return found

    # --- inside ------------------------------------------------------------------------

    def _members(self, sha256: bytes, stored: Stored, *, own: bool) -> list[RecoveredMember]:
        segment, members = stored.segment, self._manifest.members
        record = members[sha256]
        parts = _parts(members, record.needs)
        here = {value.digest for value in segment.values}
        own = own and not self._anew
        ranged = own and record.last_seq > 0
        row = RecoveredMember(
            record.location,
            record.holds,
            segment.incarnation if own else None,
            record.first_seq if ranged else None,
            record.last_seq if ranged else None,
            tuple(part.location.sha256 for part in parts),
            tuple(one.location.sha256 for one in segment.members),
            _prefixes(here),
            _prefixes(
                value.digest
                for value in segment.values
                if value.keyframe and value.keyframe not in here
            ),
        )
        return [row, *parts]

    def _note_values(self, sha256: bytes, stored: Stored, *, own: bool) -> None:
        record = self._manifest.members[sha256]
        seq = record.last_seq if own and record.last_seq and not self._anew else self.thread.seq
        for digest, value in stored.values.items():
            alone = not value.keyframe or value.keyframe in stored.values
            before = self._held.get(digest)
            if before is None or (alone and not before.alone):
                self._held[digest] = _Held(value.type, value.size, sha256, seq, alone)

    def _checkpoint(self, record: CheckpointRecord, stored: Stored) -> RecoveredCheckpoint:
        place, name = _place(record), stored.location.blob_id
        row = stored.checkpoints.get(_held_place(record))
        if row is None:
            raise malformed(name, f"it does not hold checkpoint '{record.checkpoint_id}'")
        if hashlib.sha256(row.state).digest() != record.state_sha256:
            raise malformed(name, f"it has another state of checkpoint '{record.checkpoint_id}'")
        self._needs[place] = self._needed(row, name)
        try:
            metadata = parse_metadata(row.metadata, "metadata")
        except Refusal as refusal:
            raise malformed(name, str(refusal)) from None
        known = Known(
            seq=self._seqs[place],
            parent_id=record.parent_id,
            state=row.state,
            metadata=metadata.raw,
            run_id=metadata.run_id,
            root_id=metadata.root_id,
            delta_channels=encode_names(delta_channels(row.state)),
            label=record.label,
            summary=record.summary,
            created_us=record.created_us,
        )
        return RecoveredCheckpoint(
            place, known, record.lineage, row.delta_base or None, self._held_by(place)
        )

    def _held_by(self, place: Key) -> bytes:
        entry = self._manifest.entries[place]
        named = [entry.record.segment, *(writes.segment for writes in entry.writes)]
        seq = self._seqs[place]
        if not self._anew:
            seq = max(seq, *(writes.seq for writes in entry.writes), 0)
        return encode_held(seq, list(dict.fromkeys(map(self._manifest.segment, named))))

    def _needed(self, row: SegmentCheckpoint, name: str) -> frozenset[bytes]:
        digests = set()
        for channel in decode_channels(row.state):
            if channel.digest is not None:
                digests.add(channel.digest)
        for base in decode_delta_base(row.delta_base, name):
            digests.update(base.digests)
        self._size += len(row.state) + len(row.metadata)
        return frozenset(digests)

    def _take_writes(
        self, record: WritesRecord, stored: Stored, taken: Taken, *, own: bool
    ) -> None:
        place = _place(record)
        # What was recorded anew in a later generation, or copied, has the record's number.
        as_numbered = own and stored.segment.generation == record.generation
        for write in stored.writes.get(_held_place(record), ()):
            rank = (own, stored.segment.generation, write.seq)
            slot = (place, write.task_id, write.idx)
            if slot in self._ranks and self._ranks[slot] >= rank:
                continue
            self._ranks[slot] = rank
            seq = write.seq if as_numbered else record.seq
            if self._anew:
                seq = self._seqs[place]
            self._size += len(write.data)
            kept = place in self._heads
            if kept:
                _check_write(write, stored.location.blob_id)
            taken.writes.append(
                RecoveredWrite(
                    place,
                    seq,
                    write.task_id,
                    write.idx,
                    write.task_path,
                    write.channel,
                    write.type,
                    write.digest,
                    write.size,
                    write.encoding,
                    write.data if kept else None,
                )
            )
            if kept and not place[0]:
                self._pending[write.task_id, write.idx] = KnownWrite(
                    write.task_path, write.channel, write.type, write.digest, write.size, seq
                )

    def _value(self, digest: bytes, value: Value | None) -> RecoveredValue:
        held = self._held[digest]
        if value is None:
            return RecoveredValue(digest, held.type, held.size, held.seq, held.segment)
        packed = compress(value.data)
        return RecoveredValue(
            digest, value.type, len(value.data), held.seq, None, int(packed.encoding), packed.data
        )


def _segments(manifest: Manifest) -> dict[bytes, BlobLocation | None]:
    """Return where the segments lie that the checkpoints of a manifest need."""
    waiting: list[bytes] = []
    for entry in manifest.entries.values():
        waiting.append(entry.record.segment)
        waiting += (writes.segment for writes in entry.writes)
    found: dict[bytes, BlobLocation | None] = {}
    while waiting:
        sha256 = manifest.segment(waiting.pop())
        if sha256 in found:
            continue
        record = manifest.members.get(sha256)
        if record is not None and record.holds is Kind.PART:
            continue
        found[sha256] = None if record is None else record.location
        waiting += record.needs if record is not None else ()
    return found


def _thread(
    manifest: Manifest,
    seq: int,
    records: Sequence[CheckpointRecord],
    now_us: int,
    *,
    anew: bool,
) -> RecoveredThread:
    times = [record.created_us for record in records] or [now_us]
    setting = None if manifest.ended else manifest.setting
    return RecoveredThread(
        thread_id=manifest.thread_id,
        incarnation=manifest.incarnation,
        deleted=manifest.ended,
        deleted_through=manifest.deleted_through,
        seq=seq,
        agent_id=setting.agent_id if setting else "",
        retention_s=setting.retention_s if setting else 0,
        unsearchable=setting.unsearchable if setting else False,
        settings_seq=setting.seq if setting else 0,
        created_us=min(times),
        updated_us=max(times),
        anew=tuple(map(_place, records)) if anew else (),
        recorded_anew=anew,
    )


def _log_order(record: Record) -> tuple[int, int, tuple[str | bytes, ...]]:
    return (*record.rank, record.identity)


def _place(record: CheckpointRecord | WritesRecord) -> Key:
    return (record.checkpoint_ns, record.checkpoint_id)


def _held_place(record: CheckpointRecord | WritesRecord) -> Key:
    held_ns = record.checkpoint_ns if record.held_ns is None else record.held_ns
    return (held_ns, record.checkpoint_id)


def _named(thread_id: str, place: Key) -> str:
    return f"checkpoint '{place[1]}' of thread '{thread_id}' in namespace '{place[0]}'"


def _parts(members: Mapping[bytes, MemberRecord], hashes: Iterable[bytes]) -> list[RecoveredMember]:
    records = [record for sha256 in hashes if (record := members.get(sha256)) is not None]
    return [
        RecoveredMember(record.location, Kind.PART)
        for record in records
        if record.holds is Kind.PART
    ]


def _prefixes(digests: Iterable[bytes]) -> bytes:
    return b"".join(sorted({digest[:PREFIX_BYTES] for digest in digests}))


def _check_write(write: SegmentWrite, name: str) -> None:
    stored = SegmentValue(write.digest, write.type, write.size, write.encoding, write.data)
    checked(Value(write.type, unpacked(stored, None, name)), write.digest, name)
