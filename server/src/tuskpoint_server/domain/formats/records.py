"""Records: what the manifests of threads are made of, one JSON object each.

Every record is about one thread and carries its place in the log: incarnation, generation
and `seq`. `record_json` has the stored forms. What several records say of the same thing is
decided by `folding`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..model import BlobLocation, Lineage
from .members import Kind, settled

NO_LINEAGE = Lineage()

Identity = tuple[str | bytes, ...]
"""What a record is about, within an incarnation of a thread."""

Rank = tuple[int, int]
"""Generation and `seq`: of two records about the same thing the greater one counts."""


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

    kind = "checkpoint"

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
        return (self.kind, self.checkpoint_ns, self.checkpoint_id)


@dataclass(frozen=True, slots=True)
class WritesRecord(Record):
    """A segment holds pending writes of a checkpoint; `seq` is their greatest.

    Attributes:
        checkpoint_ns: Namespace of the checkpoint.
        checkpoint_id: The checkpoint.
        segment: SHA-256 of the segment; all writes of the checkpoint in it count.
        held_ns: Of a copy that a segment of another thread holds: its namespace there.
    """

    kind = "writes"

    checkpoint_ns: str
    checkpoint_id: str
    segment: bytes
    held_ns: str | None = None

    @property
    def identity(self) -> Identity:
        """The writes of this checkpoint in this segment."""
        return (self.kind, self.checkpoint_ns, self.checkpoint_id, self.segment)


@dataclass(frozen=True, slots=True)
class RemovalRecord(Record):
    """A checkpoint was removed, with its writes and gaps up to this change."""

    kind = "removal"

    checkpoint_ns: str
    checkpoint_id: str

    @property
    def identity(self) -> Identity:
        """The removal of this checkpoint."""
        return (self.kind, self.checkpoint_ns, self.checkpoint_id)

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

    kind = "end"

    deleted_through: str

    @property
    def identity(self) -> Identity:
        """The end of the incarnation."""
        return (self.kind,)


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

    kind = "gap"

    reason: str
    checkpoint_ns: str = ""
    checkpoint_id: str = ""
    segment: bytes = b""

    @property
    def identity(self) -> Identity:
        """The gap at this checkpoint or segment."""
        return (self.kind, self.checkpoint_ns, self.checkpoint_id, self.segment)

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

    kind = "setting"

    agent_id: str
    retention_s: int
    unsearchable: bool

    @property
    def identity(self) -> Identity:
        """The settings of the incarnation."""
        return (self.kind,)


@dataclass(frozen=True, slots=True)
class PinRecord(Record):
    """A checkpoint was handed off; its bundle is kept as long as the thread lives.

    Attributes:
        segment: SHA-256 of the bundle.
        checkpoint_ns: Namespace of the checkpoint.
        checkpoint_id: The checkpoint.
    """

    kind = "pin"

    segment: bytes
    checkpoint_ns: str
    checkpoint_id: str

    @property
    def identity(self) -> Identity:
        """The bundle."""
        return (self.kind, self.segment)


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

    kind = "member"

    location: BlobLocation
    holds: Kind = Kind.SEGMENT
    needs: tuple[bytes, ...] = ()
    first_seq: int = 0
    last_seq: int = 0

    @property
    def identity(self) -> Identity:
        """The member."""
        return (self.kind, self.location.sha256)


@dataclass(frozen=True, slots=True)
class ReleaseRecord(Record):
    """The thread does not need a member; takes its `MemberRecord` away."""

    kind = "release"

    sha256: bytes

    @property
    def identity(self) -> Identity:
        """The member."""
        return (MemberRecord.kind, self.sha256)

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

    kind = "moved"

    segment: bytes
    replacement: bytes

    @property
    def identity(self) -> Identity:
        """The segment that was replaced."""
        return (self.kind, self.segment)


def settle(record: Record, holder: str) -> Record:
    """Return a record with "this quilt" replaced by the blob that held the run."""
    if isinstance(record, MemberRecord):
        return replace(record, location=settled(record.location, holder))
    return record
