"""Short constructors for the parts of a save."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum

import pytest

from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.api.messages.saves import take_checkpoint
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import Checkpoint, CheckpointKey, Value, Version, Write
from tuskpoint_server.core.state import fill_version
from tuskpoint_server.core.values import value_digest
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint
from tuskpoint_server.journal.database.pending_writes import StoredWrite

TENANT = "default"


class Reference(Enum):
    """A channel value that a save names by its digest and does not carry."""

    INHERIT = "inherit"
    EMPTY = "empty"


Content = bytes | Reference | Value


def key(checkpoint_id: str, thread_id: str = "t", checkpoint_ns: str = "") -> CheckpointKey:
    return CheckpointKey(thread_id, checkpoint_ns, checkpoint_id)


def value(data: bytes, kind: str = "msgpack") -> Value:
    return Value(kind, data)


def digest(data: bytes, kind: str = "msgpack") -> bytes:
    return value_digest(Value(kind, data))


def channel(name: str, content: Content, version: Version | None = 1) -> value_pb2.Channel:
    """Return a channel: bytes become inline data; `by_digest` names the value by its digest."""
    if isinstance(content, bytes):
        content = value(content)
    made = value_pb2.Channel(name=name)
    if version is not None:
        fill_version(made.version, version)
    if isinstance(content, Value):
        made.value.type, made.value.data = content.type, content.data
    else:
        getattr(made, content.value).SetInParent()
    return made


def by_digest(name: str, data: bytes, version: Version | None = 1) -> value_pb2.Channel:
    made = value_pb2.Channel(name=name, digest=digest(data))
    if version is not None:
        fill_version(made.version, version)
    return made


def write(
    channel_name: str, data: bytes, *, task: str = "task", idx: int = 0, path: str = ""
) -> StoredWrite:
    return write_of(Write(task, path, idx, channel_name, value(data), digest(data)))


def write_of(sent: Write) -> StoredWrite:
    """Return a write as a client sends it, not packed yet."""
    kind, data = sent.value.type, sent.value.data
    named = (sent.task_id, sent.idx, sent.task_path, sent.channel, kind, sent.digest)
    return StoredWrite(*named, len(data), 0, 0, None, data)


def as_loaded(*writes: StoredWrite) -> tuple[Write, ...]:
    """Return sent writes in the form in which a load returns them."""
    return tuple(
        Write(*named, Value(write.type, write.data or b""), write.digest)
        for write in writes
        for named in [(write.task_id, write.task_path, write.idx, write.channel)]
    )


def draft(
    checkpoint_id: str,
    parent_id: str = "",
    channels: Mapping[str, Content] | Sequence[value_pb2.Channel] = (),
    *,
    thread_id: str = "t",
    ns: str = "",
    frame: bytes = b"",
    metadata: Mapping[str, object] | None = None,
    delta: tuple[str, ...] = (),
    writes: Sequence[StoredWrite] = (),
    label: str = "",
    summary: str = "",
    agent_id: str = "",
    expected_head: str | None = None,
    continues: bool = False,
    raises_id: bool = False,
    restarts: bool = False,
    lease_id: str = "",
) -> IncomingCheckpoint:
    """Return the draft of the message of a save, without a check of its limits."""
    if isinstance(channels, Mapping):
        channels = [channel(name, content) for name, content in channels.items()]
    state = checkpoint_pb2.CheckpointState.FromString(frame)
    state.channels.extend(channels)
    if not state.delta_channels:
        state.delta_channels.extend(delta)
    request = pb.SaveCheckpointRequest(
        checkpoint=checkpoint_pb2.Checkpoint(
            ref=checkpoint_pb2.CheckpointRef(
                thread_id=thread_id, checkpoint_ns=ns, checkpoint_id=checkpoint_id
            ),
            parent_checkpoint_id=parent_id,
            state=state,
            metadata_json=json.dumps(metadata or {}).encode(),
            label=label,
            summary=summary,
        ),
        agent_id=agent_id,
        expected_head=expected_head,
        continue_latest=continues,
        raise_id=raises_id,
        restart_deleted=restarts,
        lease_id=lease_id,
    )
    sent = take_checkpoint(request, received=())
    assert sent is not None
    sent.writes = writes
    return sent


def data_of(checkpoint: Checkpoint | None) -> dict[str, bytes]:
    """Return the data of the channels that have a value."""
    assert checkpoint is not None
    assert checkpoint.state is not None
    return {c.name: c.value.data for c in checkpoint.state.channels if c.value is not None}


def written(checkpoint: Checkpoint | None) -> list[tuple[str, str, int, str, bytes]]:
    """Return a short form of the pending writes."""
    assert checkpoint is not None
    return [(w.task_path, w.task_id, w.idx, w.channel, w.value.data) for w in checkpoint.writes]


async def refused(call: Awaitable[object], reason: Reason) -> Refusal:
    """Await a call that must be refused with a given reason."""
    with pytest.raises(Refusal) as caught:
        await call
    assert caught.value.reason is reason
    return caught.value
