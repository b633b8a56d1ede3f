"""Request of `Client.save`: parent, versions, and the values that changed. No I/O."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...v1.checkpoint_pb2 import (
    ChannelNames,
    Checkpoint,
    CheckpointRef,
    CheckpointState,
    Durability,
)
from ...v1.checkpoint_service_pb2 import SaveCheckpointRequest
from ...v1.value_pb2 import Channel, Value, Version
from ..arguments import check_given_texts, check_texts, invalid_field
from .ids import new_checkpoint_id

_STATE_LAYOUT = 4  # the layout that LangGraph 1.x writes, and reads without migration
_LEADING_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """A checkpoint that the next checkpoint may follow, as far as a client knows it.

    Attributes:
        checkpoint_id: ID of the checkpoint; empty for no checkpoint.
        parent_id: ID of the checkpoint's own parent; empty if it has no parent.
        channels: Maps each channel to its version and digest.
        is_exact: Whether the service stored these versions. The service stores other versions if it
            chose another parent.
    """

    checkpoint_id: str = ""
    parent_id: str = ""
    channels: Mapping[str, tuple[Version, bytes]] = field(default_factory=dict)
    is_exact: bool = True


NOTHING = KnownCheckpoint()


class Memory:
    """The last checkpoints that a client saved, one per thread and namespace. Thread-safe.

    Args:
        size: Maximum number of entries; the least recently used one is dropped.
    """

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], KnownCheckpoint] = OrderedDict()

    def get(self, thread_id: str, checkpoint_ns: str) -> KnownCheckpoint | None:
        """Return the last checkpoint of a namespace, or `None` if it is not remembered."""
        with self._lock:
            head = self._known.get((thread_id, checkpoint_ns))
            if head is not None:
                self._known.move_to_end((thread_id, checkpoint_ns))
            return head

    def put(self, thread_id: str, checkpoint_ns: str, head: KnownCheckpoint) -> None:
        """Remember the last checkpoint of a namespace."""
        with self._lock:
            self._known[thread_id, checkpoint_ns] = head
            self._known.move_to_end((thread_id, checkpoint_ns))
            if len(self._known) > self._size:
                self._known.popitem(last=False)

    def forget(self, thread_id: str) -> None:
        """Forget all namespaces of a thread."""
        with self._lock:
            for key in [key for key in self._known if key[0] == thread_id]:
                del self._known[key]


def now() -> str:
    """Return the current time in the form of checkpoints: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat()


@dataclass(frozen=True, slots=True)
class Draft:
    """A save that a caller requested.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        values: Maps each channel to its value as JSON text.
        checkpoint_id: ID of the checkpoint; `None` generates an ID.
        parent: ID of the checkpoint to follow. `None` means `expected_head`, else the latest
            checkpoint; empty means no parent.
        expected_head: ID that the latest checkpoint must have; `None` for any ID.
        metadata_json: Metadata as JSON text.
        summary: One sentence about what happened.
        label: Name of the checkpoint.
        agent_id: Name of the agent.
        durability: The durability to wait for.
        ts: Time of the checkpoint, ISO 8601.
        vector: Vector with which search finds the checkpoint; empty for no vector.
        searchable: Whether search finds the thread; `None` for no change.
    """

    thread_id: str
    checkpoint_ns: str
    values: Mapping[str, bytes]
    checkpoint_id: str | None
    parent: str | None
    expected_head: str | None
    metadata_json: bytes
    summary: str
    label: str
    agent_id: str
    durability: Durability
    ts: str = field(default_factory=now)
    vector: Sequence[float] = ()
    searchable: bool | None = None


def check_draft(draft: Draft) -> None:
    """Check the names and texts of a draft.

    Raises:
        InvalidRequest: A name or a text cannot be sent.
    """
    check_texts(
        thread_id=draft.thread_id,
        checkpoint_ns=draft.checkpoint_ns,
        summary=draft.summary,
        label=draft.label,
        agent_id=draft.agent_id,
    )
    check_given_texts(
        checkpoint_id=draft.checkpoint_id,
        parent=draft.parent,
        expected_head=draft.expected_head,
    )


def save_request(draft: Draft, parent: KnownCheckpoint) -> SaveCheckpointRequest:
    """Return the request that saves a draft as the successor of a checkpoint.

    A value that is equal to the parent's is sent as its digest. Without a parent or an expected
    head the draft follows the latest checkpoint. Then `parent` is the client's guess, and the
    service decides.

    Raises:
        InvalidRequest: See `next_version` and `new_checkpoint_id`.
    """
    new_version = next_version([version for version, _ in parent.channels.values()])
    channels = [_channel(name, data, parent, new_version) for name, data in draft.values.items()]
    saved_again = draft.checkpoint_id == parent.checkpoint_id
    request = SaveCheckpointRequest(
        checkpoint=Checkpoint(
            ref=CheckpointRef(
                thread_id=draft.thread_id,
                checkpoint_ns=draft.checkpoint_ns,
                checkpoint_id=draft.checkpoint_id or new_checkpoint_id(parent.checkpoint_id),
            ),
            parent_checkpoint_id=parent.parent_id if saved_again else parent.checkpoint_id,
            state=CheckpointState(
                schema_version=_STATE_LAYOUT,
                ts=draft.ts,
                channels=channels,
                updated_channels=ChannelNames(
                    names=[channel.name for channel in channels if channel.HasField("value")]
                ),
            ),
            metadata_json=draft.metadata_json,
            summary=draft.summary,
            label=draft.label,
        ),
        durability=draft.durability,
        agent_id=draft.agent_id,
        vector=draft.vector,
    )
    if draft.searchable is not None:
        request.searchable = draft.searchable
    if draft.expected_head is not None:
        request.expected_head = draft.expected_head
    elif draft.parent is None:
        request.continue_latest = True
        request.raise_id = draft.checkpoint_id is None
        if not parent.is_exact:
            # No checkpoint has this parent, so the service sets the versions.
            request.checkpoint.parent_checkpoint_id = ""
    return request


def _channel(name: str, data: bytes, parent: KnownCheckpoint, new_version: Version) -> Channel:
    digest = value_digest("json", data)
    version, parent_digest = parent.channels.get(name, (new_version, b""))
    if parent_digest == digest:
        return Channel(name=name, version=version, digest=digest)
    return Channel(
        name=name, version=new_version, digest=digest, value=Value(type="json", data=data)
    )


def put_inline(draft: Draft, request: SaveCheckpointRequest, names: Collection[str] | None) -> None:
    """Put values into a request that has their digests. Without names, put all values."""
    for channel in request.checkpoint.state.channels:
        if names is None or channel.name in names:
            channel.value.type, channel.value.data = "json", draft.values[channel.name]


def known_of(
    checkpoint_id: str, checkpoint: Checkpoint, *, is_exact: bool = True
) -> KnownCheckpoint:
    """Return what the client remembers of a checkpoint for the next save.

    Args:
        checkpoint_id: ID of the saved checkpoint.
        checkpoint: The checkpoint.
        is_exact: See `KnownCheckpoint`.
    """
    versions = {
        channel.name: (channel.version, channel.digest) for channel in checkpoint.state.channels
    }
    return KnownCheckpoint(checkpoint_id, checkpoint.parent_checkpoint_id, versions, is_exact)


def value_digest(kind: str, data: bytes) -> bytes:
    """Return the digest of a value (see `Channel.digest` in the contract)."""
    digest = hashlib.sha256(kind.encode() + b"\0")
    digest.update(data)
    return digest.digest()


def next_version(versions: Sequence[Version]) -> Version:
    """Return a version above all versions of a checkpoint, of the same kind.

    Without versions, the next version is the integer 1. The leading number of a text version is
    incremented and zero-padded to the 32 digits that LangGraph writes.

    Raises:
        InvalidRequest: The versions are of several kinds, or texts without a leading number.
    """
    kinds = {version.WhichOneof("kind") for version in versions} - {None}
    if not kinds:
        return Version(integer=1)
    if kinds == {"integer"}:
        return Version(integer=max(version.integer for version in versions) + 1)
    if kinds == {"number"}:
        return Version(number=float(int(max(version.number for version in versions)) + 1))
    newest = max(version.text for version in versions)
    number = _LEADING_NUMBER.match(newest)
    if kinds != {"text"} or number is None:
        raise invalid_field(
            "parent",
            "its channel versions cannot be incremented; continue the thread with its framework",
        )
    return Version(text=f"{int(number[0]) + 1:032}.0")
