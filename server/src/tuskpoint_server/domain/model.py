"""What the rooms hand to one another: identities, values, checkpoints, drafts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum

Version = str | int | float
"""Version of a channel. The type is part of the value and survives storage."""


class Durability(IntEnum):
    """How safe a change is; greater is safer. Numbers are those of the contract."""

    JOURNALED = 1
    CERTIFIED = 2


class View(IntEnum):
    """How much of a checkpoint a read returns. Numbers are those of the contract."""

    ENTRY = 1
    FULL = 2
    JSON = 3


class Source(IntEnum):
    """Where a read may take its bytes from. Numbers are those of the contract."""

    ANY = 1
    BLOB = 2


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """Identity of a checkpoint inside a tenant."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str

    def __str__(self) -> str:
        """Return "thread:checkpoint", the spelling of lineage references."""
        return f"{self.thread_id}:{self.checkpoint_id}"


@dataclass(frozen=True, slots=True)
class Value:
    """An opaque value: the name of its encoding, and the bytes."""

    type: str
    data: bytes


class _Evicted(Value):
    """The value of which there is nothing here."""

    __slots__ = ()

    def __init__(self) -> None:
        """Leave the fields of `Value` unset."""

    def __getattribute__(self, name: str) -> object:
        if name in ("type", "data"):
            raise LookupError("the value was evicted: it is only in its checkpoint's segments")
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return "EVICTED"


EVICTED: Value = _Evicted()
"""Stands where the journal gave a value up; whoever looks into it gets a `LookupError`.

`domain.state` tells where it stands and puts the values back.
"""


class Reference(Enum):
    """Content of a channel that a save does not carry."""

    INHERIT = "inherit"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class ChannelDraft:
    """A channel as a save describes it.

    Attributes:
        name: Name of the channel.
        version: Its version, or `None` if the framework gave it none.
        content: The value itself, the 32-byte digest of a stored one, or a `Reference`.
        digest: Digest of `content` if it is a `Value`; computed once, on arrival.
    """

    name: str
    version: Version | None
    content: Value | bytes | Reference
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel as it is stored.

    Attributes:
        name: Name of the channel.
        version: Its version, or `None`.
        digest: Digest of the content; `None` if the channel is empty.
        size: Bytes of content.
        value: The content, if the read asked for it and the channel is not empty.
    """

    name: str
    version: Version | None
    digest: bytes | None
    size: int = 0
    value: Value | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """A pending write. `idx` below 0 marks the special channels (last write wins)."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Value
    digest: bytes


def write_order(write: Write) -> tuple[str, str, int]:
    """Sort key of pending writes: (task_path, task_id, idx) by code point."""
    return (write.task_path, write.task_id, write.idx)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata of a checkpoint: the exact bytes, and what the service reads of them.

    Attributes:
        raw: The JSON object as it was sent; never re-serialized.
        run_id: `run_id` if it is a string, else empty.
        root_id: `parents[""]`, the root checkpoint that a subgraph's checkpoint is tied
            to, else empty.
    """

    raw: bytes = b"{}"
    run_id: str = ""
    root_id: str = ""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a checkpoint came from besides its parent; "thread:checkpoint" or empty."""

    forked_from: str = ""
    rolled_back_from: str = ""
    adopted_from: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """State of an agent.

    Attributes:
        frame: Serialized `tuskpoint.v1.CheckpointState` without its channels: what only
            the framework understands (`versions_seen`, `ts`, ...).
        channels: The channels, in the order of the save.
    """

    frame: bytes
    channels: tuple[Channel, ...]


@dataclass(frozen=True, slots=True)
class CheckpointDraft:
    """A checkpoint to be saved.

    Attributes:
        key: Its identity; an empty `checkpoint_id` asks for a minted one.
        parent_id: Checkpoint that it follows in its namespace, or empty.
        frame: As `State.frame`.
        channels: The channels.
        delta_channels: Channels rebuilt from writes.
        metadata: Parsed metadata.
        label: Name, or empty.
        summary: One sentence, or empty.
        agent_id: Agent that drives the thread; empty leaves the thread's as it is.
        writes: Pending writes saved with it.
        expected_head: Required greatest ID of the namespace; `None` does not ask.
        vector: Vector that search finds it by, packed; empty leaves it as it is.
        searchable: Whether search finds the thread's checkpoints from now on; `None`
            leaves it as it is.
    """

    key: CheckpointKey
    parent_id: str
    frame: bytes
    channels: tuple[ChannelDraft, ...]
    delta_channels: tuple[str, ...] = ()
    metadata: Metadata = field(default_factory=Metadata)
    label: str = ""
    summary: str = ""
    agent_id: str = ""
    writes: tuple[Write, ...] = ()
    expected_head: str | None = None
    vector: bytes = b""
    searchable: bool | None = None


@dataclass(frozen=True, slots=True)
class BlobLocation:
    """Where stored bytes lie, and the SHA-256 that they are trusted by.

    Attributes:
        sha256: Hash over the exact stored bytes, 32 bytes.
        size: Number of stored bytes.
        blob_id: Blob (or quilt) that holds them; empty: not known yet.
        identifier: Patch inside the quilt; empty if the blob is stored alone.
    """

    sha256: bytes
    size: int
    blob_id: str = ""
    identifier: str = ""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob in the store, as a put found it: how long it lasts and what was paid.

    Attributes:
        blob_id: The blob (or quilt).
        object_id: Identity of what its owner renews or deletes; empty if there is none.
        size_bytes: Bytes of content sent.
        billed_bytes: Bytes that the put was billed for; 0 if it was free.
        cost: Price of the put in the store's smallest coin.
        epoch: The store's epoch at the put; `None` if the answer does not tell.
        end_epoch: Epoch at whose start the blob is gone; `None` if it never is.
    """

    blob_id: str
    object_id: str = ""
    size_bytes: int = 0
    billed_bytes: int = 0
    cost: int = 0
    epoch: int | None = None
    end_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a checkpoint without its state.

    Attributes:
        key: Identity.
        parent_id: Parent, or empty.
        incarnation: Incarnation of the thread it belongs to.
        seq: Position of its last change in the thread's sequence, those of its writes included.
        certified: That change is certified.
        created_us: Time of its first save, microseconds since the epoch.
        metadata: The metadata's exact bytes.
        label: Name, or empty.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
        segments: The segments that hold it, its state's first; empty until stored.
    """

    key: CheckpointKey
    parent_id: str
    incarnation: int
    seq: int
    certified: bool
    created_us: int
    metadata: bytes
    label: str = ""
    summary: str = ""
    lineage: Lineage = Lineage()
    segments: tuple[BlobLocation, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint.

    Attributes:
        entry: What is known of it without its state.
        state: Its state; `None` in the `ENTRY` view.
        writes: Its pending writes, in order; none in the `ENTRY` view.
        sources: Segments that hold the values which stand as `EVICTED` here.
    """

    entry: Entry
    state: State | None = None
    writes: tuple[Write, ...] = ()
    sources: tuple[BlobLocation, ...] = ()


@dataclass(frozen=True, slots=True)
class Saved:
    """Outcome of a save of a checkpoint, of writes, or of a label.

    Attributes:
        key: Identity, with the minted ID if there was one.
        seq: Position of the change in the thread's sequence.
        incarnation: Incarnation of the thread.
        stored_bytes: Bytes of new content; 0 if nothing changed.
        early: The checkpoint of these writes does not exist yet; its save gives them another
            `seq`.
    """

    key: CheckpointKey
    seq: int
    incarnation: int
    stored_bytes: int = 0
    early: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointQuery:
    """Which checkpoints to list. `None` or empty means: do not ask.

    Attributes:
        thread_id: Only this thread.
        checkpoint_ns: Only this namespace; empty is the root graph.
        checkpoint_id: Only this ID.
        before: Only IDs below this one.
        filter: Metadata keys and the values they must have.
        label: Only this label.
    """

    thread_id: str | None = None
    checkpoint_ns: str | None = None
    checkpoint_id: str = ""
    before: str = ""
    filter: dict[str, object] = field(default_factory=dict)
    label: str = ""


@dataclass(frozen=True, slots=True)
class DeltaHistory:
    """What rebuilds one delta channel: a stored value, if any, and the writes since.

    Attributes:
        channel: Name of the channel.
        seed: The stored value.
        writes: The writes since, oldest first.
        sources: Segments that hold what was evicted of them.
    """

    channel: str
    seed: Channel | None
    writes: tuple[Write, ...]
    sources: tuple[BlobLocation, ...] = ()
