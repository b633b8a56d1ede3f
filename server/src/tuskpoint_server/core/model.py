"""Types that the packages exchange: identities, values, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

ThreadName = tuple[str, str]
"""Tenant and ID of a thread."""

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


class AbsentValue(Value):
    """A value that the journal cannot give: the fields of `Value` are not set."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "EVICTED"


EVICTED: Value = object.__new__(AbsentValue)
"""Placeholder of a value that was evicted from the journal; `core.state` restores values."""


class HeldValue(Value):
    """Placeholder of the value of a write that the caller of a load holds: it was not read.

    A channel whose value the caller holds has no value.
    """

    __slots__ = ("size",)
    size: int
    __hash__ = object.__hash__

    def __init__(self, size: int) -> None:
        object.__setattr__(self, "size", size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeldValue) and other.size == self.size

    def __repr__(self) -> str:
        return f"HeldValue({self.size})"


HeldDigests = frozenset[bytes]
"""Digests of values that the caller of a load holds: the load need not read them."""

NONE_HELD: HeldDigests = frozenset()


class Damage(NamedTuple):
    """A value whose stored bytes are not those of its digest.

    `owner` is the number of the family that has the value, or of the thread that has it in a write.
    """

    digest: bytes
    actual: bytes  # digest of the bytes that are stored; empty if none can be read
    problem: str
    owner: int
    is_write: bool = False
    keyframe: bytes | None = None  # digest of the value that it is a patch on


class DamagedValue(AbsentValue):
    """Placeholder of a value that is damaged in the journal."""

    __slots__ = ("damage",)
    damage: Damage

    def __init__(self, damage: Damage) -> None:
        object.__setattr__(self, "damage", damage)

    def __repr__(self) -> str:
        return f"DamagedValue({self.damage.digest.hex()})"


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel as it is stored."""

    name: str
    version: Version | None
    digest: bytes | None  # `None` if the channel is empty
    size: int = 0
    value: Value | None = None  # if the read asked for it and the channel is not empty


@dataclass(frozen=True, slots=True)
class Write:
    """A pending write. `idx` below 0 marks the special channels (last write wins)."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Value
    digest: bytes


write_order = attrgetter("task_path", "task_id", "idx")
"""Sort key of pending writes, by code point."""


class Metadata(NamedTuple):
    """Metadata of a checkpoint: the exact bytes, and the fields that the server reads."""

    raw: bytes  # the JSON object as it was sent; never re-serialized
    run_id: str  # `run_id` if it is a string, else empty
    root_id: str  # `parents[""]`: the root checkpoint that a subgraph's is tied to


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a checkpoint came from besides its parent; "thread:checkpoint" or empty."""

    forked_from: str = ""
    rolled_back_from: str = ""
    adopted_from: str = ""


NO_LINEAGE = Lineage()


@dataclass(frozen=True, slots=True)
class State:
    """State of an agent.

    The frame is the serialized `tuskpoint.v1.CheckpointState` without its channels. Only the
    framework understands its fields (`versions_seen`, `ts`, ...).
    """

    frame: bytes
    channels: tuple[Channel, ...]  # in the order of the save


@dataclass(frozen=True, slots=True)
class BlobLocation:
    """Location of stored bytes, and the SHA-256 that they are trusted by."""

    sha256: bytes  # over the exact stored bytes
    size: int
    blob_id: str = ""  # blob (or quilt) that holds them; empty: not known yet
    identifier: str = ""  # patch inside the quilt; empty if the blob is stored alone
    # opens sealed bytes; empty if they are not sealed, or if it is not known here
    key: bytes = field(default=b"", compare=False, repr=False)

    def moved(self, place: BlobLocation) -> BlobLocation:
        """Return the location of the same bytes at another place."""
        return replace(self, blob_id=place.blob_id, identifier=place.identifier)


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob in the store after a put: how long it lasts and what the put cost."""

    blob_id: str  # the blob or quilt
    object_id: str = ""  # ID that its owner renews or deletes it by; empty if there is none
    size_bytes: int = 0  # bytes of content sent
    billed_bytes: int = 0  # bytes that the put was billed for; 0 if it was free
    cost: int = 0  # price of the put in the store's smallest coin
    epoch: int | None = None  # the store's epoch at the put; `None` if the answer does not say
    end_epoch: int | None = None  # epoch at whose start the blob is gone; `None` if it never is


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """A checkpoint without its state."""

    key: CheckpointKey
    parent_id: str
    incarnation: int
    seq: int  # of its last change, those of its writes included
    certified: bool  # that change is
    created_us: int  # of its first save
    metadata: bytes
    label: str = ""
    summary: str = ""
    lineage: Lineage = NO_LINEAGE
    segments: tuple[BlobLocation, ...] = ()  # that hold it, its state's first
    agent_id: str = ""  # of the thread


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint."""

    entry: CheckpointEntry
    state: State | None = None  # `None` in the `ENTRY` view
    writes: tuple[Write, ...] = ()  # in order; none in the `ENTRY` view
    sources: tuple[BlobLocation, ...] = ()  # segments that hold the values which are `EVICTED`


@dataclass(frozen=True, slots=True)
class SaveOutcome:
    """Outcome of a save of a checkpoint, of writes, or of a label."""

    key: CheckpointKey  # with the minted ID if there was one
    seq: int
    incarnation: int
    early: bool = False  # writes whose checkpoint does not exist yet: its save gives another `seq`
    parent_id: str = ""  # of a checkpoint that continues from the latest
    latest: str = ""  # the namespace's latest checkpoint, if the new one's ID sorts below it


@dataclass(frozen=True, slots=True)
class CheckpointQuery:
    """Which checkpoints to list. `None` or empty means: do not ask."""

    thread_id: str | None = None
    checkpoint_ns: str | None = None  # empty is the root graph
    checkpoint_id: str = ""
    before: str = ""  # only IDs below this one
    first: str = ""  # only IDs from this one on
    last: str = ""  # only IDs up to this one
    filter: dict[str, object] = field(default_factory=dict)  # keys of metadata and their values
    label: str = ""
    replayed: bool = False  # the least ID comes first, not the greatest


@dataclass(frozen=True, slots=True)
class DeltaHistory:
    """The value, if any, and the later writes that rebuild one delta channel."""

    channel: str
    seed: Channel | None
    writes: tuple[Write, ...]  # oldest first
    sources: tuple[BlobLocation, ...] = ()  # of the evicted ones
