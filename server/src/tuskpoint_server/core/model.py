"""Types that the packages exchange: identities, values, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

ThreadName = tuple[str, str]
"""Tenant and ID of a thread."""

Version = str | int | float
"""Version of a channel. Storage keeps the type, which is part of the value."""


class Durability(IntEnum):
    """How safe a change is; greater is safer. The contract defines the numbers."""

    JOURNALED = 1
    CERTIFIED = 2


class View(IntEnum):
    """How much of a checkpoint a read returns. The contract defines the numbers."""

    ENTRY = 1
    FULL = 2
    JSON = 3
    STEP = 4

    @property
    def has_values(self) -> bool:
        """Whether the view has the values of a checkpoint and its writes."""
        return self is View.FULL or self is View.JSON


class Source(IntEnum):
    """Where a read may take its bytes from. The contract defines the numbers."""

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
    """A value that the journal does not return; the fields of `Value` are not set."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "EVICTED"


EVICTED: Value = object.__new__(AbsentValue)
"""Placeholder of a value that was evicted from the journal; `core.state` restores values."""


class HeldValue(Value):
    """Placeholder of a write's value that was not read, because the caller of a load holds it.

    A channel whose value the caller holds has no placeholder and no value.
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
    """A value whose stored bytes do not match its digest.

    `owner` is the number of the family with the value, or of the thread with the write.
    """

    digest: bytes
    actual: bytes  # digest of the stored bytes; empty if no bytes can be read
    problem: str
    owner: int
    is_write: bool = False
    keyframe: bytes | None = None  # digest of the value that the patch is based on


class DamagedValue(AbsentValue):
    """Placeholder of a damaged value in the journal."""

    __slots__ = ("damage",)
    damage: Damage

    def __init__(self, damage: Damage) -> None:
        object.__setattr__(self, "damage", damage)

    def __repr__(self) -> str:
        return f"DamagedValue({self.damage.digest.hex()})"


@dataclass(frozen=True, slots=True)
class Channel:
    """A stored channel."""

    name: str
    version: Version | None
    digest: bytes | None  # `None` if the channel is empty
    size: int = 0
    value: Value | None = None  # set if the read asked for values and the channel is not empty


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

    raw: bytes  # the JSON object, exactly as sent; never serialized again
    run_id: str  # `run_id` if it is a string, else empty
    root_id: str  # `parents[""]`: the root checkpoint to which a subgraph's checkpoint belongs


@dataclass(frozen=True, slots=True)
class Lineage:
    """Origins of a checkpoint besides its parent; "thread:checkpoint" or empty."""

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
    """Location of stored bytes, and the SHA-256 that proves them."""

    sha256: bytes  # over the exact stored bytes
    size: int
    blob_id: str = ""  # blob (or quilt) with the bytes; empty: not known yet
    identifier: str = ""  # patch inside the quilt; empty if the blob is stored alone
    # key that opens sealed bytes; empty if the bytes are not sealed, or the key is unknown here
    key: bytes = field(default=b"", compare=False, repr=False)

    def moved(self, place: BlobLocation) -> BlobLocation:
        """Return the location of the same bytes at another place."""
        return replace(self, blob_id=place.blob_id, identifier=place.identifier)


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob in the store after a put: its end and the cost of the put."""

    blob_id: str  # the blob or quilt
    object_id: str = ""  # ID for renewals and deletions by the owner; empty if the blob has none
    size_bytes: int = 0  # bytes of content sent
    billed_bytes: int = 0  # billed bytes of the put; 0 if the put was free
    cost: int = 0  # price of the put in the store's smallest coin
    epoch: int | None = None  # the store's epoch at the put; `None` if the answer does not say
    end_epoch: int | None = None  # epoch at whose start the blob expires; `None`: never


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """A checkpoint without its state."""

    key: CheckpointKey
    parent_id: str
    incarnation: int
    seq: int  # of the last change, writes included
    certified: bool  # whether the last change is certified
    created_us: int  # of its first save
    metadata: bytes
    label: str = ""
    summary: str = ""
    lineage: Lineage = NO_LINEAGE
    segments: tuple[BlobLocation, ...] = ()  # the segment of the state first
    agent_id: str = ""  # of the thread


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a task for a person."""

    interrupt_id: str
    node: str
    text: str
    answered: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a task."""

    node: str
    type: str
    message: str


MAX_TOKENS = 2**53 - 1
"""Greatest number of tokens: a double is exact up to it."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens that messages report."""

    input_tokens: int
    output_tokens: int

    def __add__(self, other: TokenUsage) -> TokenUsage:
        input_tokens = self.input_tokens + other.input_tokens
        output_tokens = self.output_tokens + other.output_tokens
        return TokenUsage(min(input_tokens, MAX_TOKENS), min(output_tokens, MAX_TOKENS))


@dataclass(frozen=True, slots=True)
class Step:
    """What the step that led to a checkpoint did, and what its tasks wait for."""

    nodes: tuple[str, ...] = ()
    changed_channels: tuple[str, ...] = ()
    next_nodes: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    failures: tuple[Failure, ...] = ()
    tokens: TokenUsage | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint."""

    entry: CheckpointEntry
    state: State | None = None  # `None` in a view without values
    writes: tuple[Write, ...] = ()  # in order; none in a view without values
    sources: tuple[BlobLocation, ...] = ()  # segments with the values that are `EVICTED`
    step: Step | None = None  # set in the `STEP` view


@dataclass(frozen=True, slots=True)
class SaveOutcome:
    """Outcome of a save of a checkpoint, of writes, or of a label."""

    key: CheckpointKey  # with the minted ID, if the server minted one
    seq: int
    incarnation: int
    early: bool = False  # writes whose checkpoint does not exist yet: its save gives another `seq`
    parent_id: str = ""  # of a checkpoint that continues from the latest
    latest: str = ""  # latest checkpoint of the namespace, if the new ID sorts below


@dataclass(frozen=True, slots=True)
class CheckpointQuery:
    """Which checkpoints to list. `None` or empty: no condition."""

    thread_id: str | None = None
    checkpoint_ns: str | None = None  # empty is the root graph
    checkpoint_id: str = ""
    before: str = ""  # only IDs below this one
    first: str = ""  # only this ID and greater IDs
    last: str = ""  # only this ID and lesser IDs
    filter: dict[str, object] = field(default_factory=dict)  # keys of metadata and their values
    label: str = ""
    replayed: bool = False  # the least ID comes first, not the greatest


@dataclass(frozen=True, slots=True)
class DeltaHistory:
    """The value, if any, and the later writes that rebuild a delta channel."""

    channel: str
    seed: Channel | None
    writes: tuple[Write, ...]  # oldest first
    sources: tuple[BlobLocation, ...] = ()  # of the evicted values
