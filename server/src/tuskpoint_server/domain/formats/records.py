"""Records: what the manifests of threads are made of, one JSON object each.

Every record is about one thread and carries its place in the log: incarnation, generation
and `seq`. What several records say of the same thing is decided by `folding`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from ..model import BlobLocation, Lineage
from .fields import Fields, JsonObject, dump
from .members import Kind, location_json, settled

NO_LINEAGE = Lineage()

Identity = tuple[str | bytes, ...]
"""What a record is about, within an incarnation of a thread."""

Rank = tuple[int, int]
"""Generation and `seq`: of two records about the same thing the greater one counts."""

_CHECKPOINT, _WRITES, _REMOVAL, _END = "checkpoint", "writes", "removal", "end"
_GAP, _SETTING, _PIN = "gap", "setting", "pin"
_MEMBER, _RELEASE, _MOVED = "member", "release", "moved"


@dataclass(frozen=True, slots=True)
class Record:
    """What all records have.

    Attributes:
        thread_id: The thread.
        incarnation: Its incarnation.
        generation: Generation of the log.
        seq: The change that the record tells of.
    """

    kind: ClassVar[str]

    thread_id: str
    incarnation: int
    generation: int
    seq: int

    @property
    def rank(self) -> Rank:
        """Where in the log of its incarnation it stands."""
        return (self.generation, self.seq)

    @property
    def identity(self) -> Identity:
        """What it is about."""
        raise NotImplementedError

    @property
    def passing(self) -> bool:
        """Whether it only takes away what older runs say, and says nothing without them."""
        return False


@dataclass(frozen=True, slots=True)
class CheckpointRecord(Record):
    """A checkpoint is stored; replaces what was said of it, but not of its writes.

    Attributes:
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint.
        parent_id: Its parent, or empty.
        created_us: Time of the first save.
        segment: SHA-256 of the segment that holds it.
        state_sha256: SHA-256 over the exact stored bytes of its state.
        label: Name, or empty.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
        held_ns: Of a copy that a segment of another thread holds: its namespace there.
    """

    kind = _CHECKPOINT

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str
    created_us: int
    segment: bytes
    state_sha256: bytes
    label: str = ""
    summary: str = ""
    lineage: Lineage = NO_LINEAGE
    held_ns: str | None = None

    @property
    def identity(self) -> Identity:
        """The checkpoint."""
        return (_CHECKPOINT, self.checkpoint_ns, self.checkpoint_id)


@dataclass(frozen=True, slots=True)
class WritesRecord(Record):
    """A segment holds pending writes of a checkpoint; `seq` is their greatest.

    Attributes:
        checkpoint_ns: Namespace of the checkpoint.
        checkpoint_id: The checkpoint.
        segment: SHA-256 of the segment; all writes of the checkpoint in it count.
        held_ns: Of a copy that a segment of another thread holds: its namespace there.
    """

    kind = _WRITES

    checkpoint_ns: str
    checkpoint_id: str
    segment: bytes
    held_ns: str | None = None

    @property
    def identity(self) -> Identity:
        """The writes of this checkpoint in this segment."""
        return (_WRITES, self.checkpoint_ns, self.checkpoint_id, self.segment)


@dataclass(frozen=True, slots=True)
class RemovalRecord(Record):
    """A checkpoint was removed, with its writes and gaps up to this change."""

    kind = _REMOVAL

    checkpoint_ns: str
    checkpoint_id: str

    @property
    def identity(self) -> Identity:
        """The removal of this checkpoint."""
        return (_REMOVAL, self.checkpoint_ns, self.checkpoint_id)

    @property
    def passing(self) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, slots=True)
class EndRecord(Record):
    """The incarnation was deleted, and with it all that is said of it and of lower ones.

    Attributes:
        deleted_through: Greatest checkpoint ID of all ended incarnations, or empty.
    """

    kind = _END

    deleted_through: str

    @property
    def identity(self) -> Identity:
        """The end of the incarnation."""
        return (_END,)


@dataclass(frozen=True, slots=True)
class GapRecord(Record):
    """Something of the log cannot be read from the blob store.

    Attributes:
        reason: Why, for people. Empty: it can be read again.
        checkpoint_ns: Namespace of the checkpoint; empty if a segment is concerned.
        checkpoint_id: The checkpoint that is not stored as it was at `seq`; empty if a
            segment is concerned.
        segment: SHA-256 of a lost segment, or empty.
    """

    kind = _GAP

    reason: str
    checkpoint_ns: str = ""
    checkpoint_id: str = ""
    segment: bytes = b""

    @property
    def identity(self) -> Identity:
        """The gap at this checkpoint or segment."""
        return (_GAP, self.checkpoint_ns, self.checkpoint_id, self.segment)

    @property
    def passing(self) -> bool:
        """If it says that nothing is missing."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class SettingRecord(Record):
    """Agent and settings of the thread's incarnation.

    Attributes:
        agent_id: Agent that drives the thread, or empty.
        retention_s: Seconds without a change after which it is deleted; 0: never.
        unsearchable: Search does not find its checkpoints.
    """

    kind = _SETTING

    agent_id: str
    retention_s: int
    unsearchable: bool

    @property
    def identity(self) -> Identity:
        """The settings of the incarnation."""
        return (_SETTING,)


@dataclass(frozen=True, slots=True)
class PinRecord(Record):
    """A checkpoint was handed off; its bundle is kept as long as the thread lives.

    Attributes:
        segment: SHA-256 of the bundle.
        checkpoint_ns: Namespace of the checkpoint.
        checkpoint_id: The checkpoint.
    """

    kind = _PIN

    segment: bytes
    checkpoint_ns: str
    checkpoint_id: str

    @property
    def identity(self) -> Identity:
        """The bundle."""
        return (_PIN, self.segment)


@dataclass(frozen=True, slots=True)
class MemberRecord(Record):
    """Where stored bytes lie that the thread needs.

    Attributes:
        location: Their hash, size and place. An empty `blob_id` means: in the same quilt as
            the run.
        holds: `SEGMENT`, `PARTS` or `PART`.
        needs: SHA-256 of other members that cannot be missed where this one is needed: those
            that a segment names, or the parts of a list besides.
        first_seq: Of a segment of the thread itself the range that it holds, else 0.
        last_seq: As `first_seq`.
    """

    kind = _MEMBER

    location: BlobLocation
    holds: Kind = Kind.SEGMENT
    needs: tuple[bytes, ...] = ()
    first_seq: int = 0
    last_seq: int = 0

    @property
    def identity(self) -> Identity:
        """The member."""
        return (_MEMBER, self.location.sha256)


@dataclass(frozen=True, slots=True)
class ReleaseRecord(Record):
    """The thread does not need a member; takes its `MemberRecord` away."""

    kind = _RELEASE

    sha256: bytes

    @property
    def identity(self) -> Identity:
        """The member."""
        return (_MEMBER, self.sha256)

    @property
    def passing(self) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, slots=True)
class MovedRecord(Record):
    """What the thread needs of a segment is in another one now.

    Attributes:
        segment: SHA-256 of the segment that records and other segments name.
        replacement: SHA-256 of the one to read in its place.
    """

    kind = _MOVED

    segment: bytes
    replacement: bytes

    @property
    def identity(self) -> Identity:
        """The segment that was replaced."""
        return (_MOVED, self.segment)


# --- stored forms ----------------------------------------------------------------------


def encode_record(record: Record) -> bytes:
    """Return the stored bytes: canonical JSON, without a line end.

    Raises:
        ValueError: A text is no Unicode.
    """
    content: JsonObject = {
        "kind": record.kind,
        "thread_id": record.thread_id,
        "incarnation": record.incarnation,
        "generation": record.generation,
        "seq": record.seq,
    }
    _ADD[record.kind](record, content)
    return dump(content)


def decode_record(line: bytes, name: str) -> Record:
    """Return what stored bytes hold.

    Args:
        line: One record.
        name: Blob ID, for the refusal.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    return read_record(Fields.parse(line, name))


def read_record(fields: Fields) -> Record:
    """Return the record in a parsed object.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    kind = fields.text("kind")
    read = _READ.get(kind)
    if read is None:
        raise fields.fail(f"record kind '{kind[:40]}' is not known")
    return read(
        fields,
        (
            fields.name("thread_id"),
            fields.number("incarnation"),
            fields.number("generation"),
            fields.number("seq"),
        ),
    )


def settle(record: Record, holder: str) -> Record:
    """Return a record with "this quilt" replaced by the blob that held the run."""
    if isinstance(record, MemberRecord):
        return replace(record, location=settled(record.location, holder))
    return record


_Place = tuple[str, int, int, int]


def _add_key(record: CheckpointRecord | WritesRecord, content: JsonObject) -> None:
    content["checkpoint_ns"] = record.checkpoint_ns
    content["checkpoint_id"] = record.checkpoint_id
    content["segment"] = record.segment.hex()
    if record.held_ns is not None:
        content["held_ns"] = record.held_ns


def _held_ns(fields: Fields) -> str | None:
    return fields.text("held_ns") if fields.has("held_ns") else None


def _add_checkpoint(record: CheckpointRecord, content: JsonObject) -> None:
    _add_key(record, content)
    content["parent_checkpoint_id"] = record.parent_id
    content["create_time_us"] = record.created_us
    content["state_sha256"] = record.state_sha256.hex()
    if record.label:
        content["label"] = record.label
    if record.summary:
        content["summary"] = record.summary
    lineage = record.lineage
    if lineage.forked_from:
        content["forked_from"] = lineage.forked_from
    if lineage.rolled_back_from:
        content["rolled_back_from"] = lineage.rolled_back_from
    if lineage.adopted_from:
        content["adopted_from"] = lineage.adopted_from


def _read_checkpoint(fields: Fields, place: _Place) -> CheckpointRecord:
    lineage = Lineage(
        fields.optional_text("forked_from"),
        fields.optional_text("rolled_back_from"),
        fields.optional_text("adopted_from"),
    )
    return CheckpointRecord(
        *place,
        checkpoint_ns=fields.text("checkpoint_ns"),
        checkpoint_id=fields.name("checkpoint_id"),
        parent_id=fields.text("parent_checkpoint_id"),
        created_us=fields.number("create_time_us"),
        segment=fields.sha256("segment"),
        state_sha256=fields.sha256("state_sha256"),
        label=fields.optional_text("label"),
        summary=fields.optional_text("summary"),
        lineage=lineage,
        held_ns=_held_ns(fields),
    )


def _add_writes(record: WritesRecord, content: JsonObject) -> None:
    _add_key(record, content)


def _read_writes(fields: Fields, place: _Place) -> WritesRecord:
    return WritesRecord(
        *place,
        checkpoint_ns=fields.text("checkpoint_ns"),
        checkpoint_id=fields.name("checkpoint_id"),
        segment=fields.sha256("segment"),
        held_ns=_held_ns(fields),
    )


def _add_removal(record: RemovalRecord, content: JsonObject) -> None:
    content["checkpoint_ns"] = record.checkpoint_ns
    content["checkpoint_id"] = record.checkpoint_id


def _read_removal(fields: Fields, place: _Place) -> RemovalRecord:
    return RemovalRecord(*place, fields.text("checkpoint_ns"), fields.name("checkpoint_id"))


def _add_end(record: EndRecord, content: JsonObject) -> None:
    content["deleted_through"] = record.deleted_through


def _read_end(fields: Fields, place: _Place) -> EndRecord:
    return EndRecord(*place, fields.text("deleted_through"))


def _add_gap(record: GapRecord, content: JsonObject) -> None:
    content["reason"] = record.reason
    if record.segment:
        content["segment"] = record.segment.hex()
    else:
        content["checkpoint_ns"] = record.checkpoint_ns
        content["checkpoint_id"] = record.checkpoint_id


def _read_gap(fields: Fields, place: _Place) -> GapRecord:
    reason = fields.text("reason")
    if fields.has("segment"):
        return GapRecord(*place, reason, segment=fields.sha256("segment"))
    return GapRecord(*place, reason, fields.text("checkpoint_ns"), fields.name("checkpoint_id"))


def _add_setting(record: SettingRecord, content: JsonObject) -> None:
    content["agent_id"] = record.agent_id
    content["retention_s"] = record.retention_s
    content["unsearchable"] = record.unsearchable


def _read_setting(fields: Fields, place: _Place) -> SettingRecord:
    return SettingRecord(
        *place, fields.text("agent_id"), fields.number("retention_s"), fields.flag("unsearchable")
    )


def _add_pin(record: PinRecord, content: JsonObject) -> None:
    content["segment"] = record.segment.hex()
    content["checkpoint_ns"] = record.checkpoint_ns
    content["checkpoint_id"] = record.checkpoint_id


def _read_pin(fields: Fields, place: _Place) -> PinRecord:
    return PinRecord(
        *place, fields.sha256("segment"), fields.text("checkpoint_ns"), fields.name("checkpoint_id")
    )


def _add_member(record: MemberRecord, content: JsonObject) -> None:
    content.update(location_json(record.location))
    content["holds"] = record.holds.value
    if record.needs:
        content["needs"] = [sha256.hex() for sha256 in record.needs]
    if record.last_seq:
        content["first_seq"] = record.first_seq
        content["last_seq"] = record.last_seq


_HELD = {kind.value: kind for kind in (Kind.SEGMENT, Kind.PARTS, Kind.PART)}


def _read_member(fields: Fields, place: _Place) -> MemberRecord:
    holds = _HELD.get(fields.text("holds"))
    if holds is None:
        raise fields.fail("a member holds neither a segment nor parts of one")
    return MemberRecord(
        *place,
        location=fields.location(),
        holds=holds,
        needs=fields.sha256s("needs") if fields.has("needs") else (),
        first_seq=fields.optional_number("first_seq"),
        last_seq=fields.optional_number("last_seq"),
    )


def _add_release(record: ReleaseRecord, content: JsonObject) -> None:
    content["sha256"] = record.sha256.hex()


def _read_release(fields: Fields, place: _Place) -> ReleaseRecord:
    return ReleaseRecord(*place, fields.sha256("sha256"))


def _add_moved(record: MovedRecord, content: JsonObject) -> None:
    content["segment"] = record.segment.hex()
    content["replacement"] = record.replacement.hex()


def _read_moved(fields: Fields, place: _Place) -> MovedRecord:
    return MovedRecord(*place, fields.sha256("segment"), fields.sha256("replacement"))


_ADD: dict[str, Callable[..., None]] = {
    _CHECKPOINT: _add_checkpoint,
    _WRITES: _add_writes,
    _REMOVAL: _add_removal,
    _END: _add_end,
    _GAP: _add_gap,
    _SETTING: _add_setting,
    _PIN: _add_pin,
    _MEMBER: _add_member,
    _RELEASE: _add_release,
    _MOVED: _add_moved,
}

_READ: dict[str, Callable[[Fields, _Place], Record]] = {
    _CHECKPOINT: _read_checkpoint,
    _WRITES: _read_writes,
    _REMOVAL: _read_removal,
    _END: _read_end,
    _GAP: _read_gap,
    _SETTING: _read_setting,
    _PIN: _read_pin,
    _MEMBER: _read_member,
    _RELEASE: _read_release,
    _MOVED: _read_moved,
}
