"""Short ways to say what a test saves."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping

import pytest

from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import (
    ChannelDraft,
    Checkpoint,
    CheckpointDraft,
    CheckpointKey,
    Reference,
    Value,
    Version,
    Write,
)
from tuskpoint_server.domain.state import parse_metadata
from tuskpoint_server.domain.values import value_digest

TENANT = "default"
Content = bytes | Reference | Value


def key(checkpoint_id: str, thread_id: str = "t", checkpoint_ns: str = "") -> CheckpointKey:
    return CheckpointKey(thread_id, checkpoint_ns, checkpoint_id)


def value(data: bytes, kind: str = "msgpack") -> Value:
    return Value(kind, data)


def digest(data: bytes, kind: str = "msgpack") -> bytes:
    return value_digest(Value(kind, data))


def channel(name: str, content: Content, version: Version | None = 1) -> ChannelDraft:
    """Bytes are inline data; use `by_digest` for a digest."""
    if isinstance(content, bytes):
        content = value(content)
    known = value_digest(content) if isinstance(content, Value) else None
    return ChannelDraft(name, version, content, known)


def by_digest(name: str, data: bytes, version: Version | None = 1) -> ChannelDraft:
    return ChannelDraft(name, version, digest(data))


def write(
    channel_name: str, data: bytes, *, task: str = "task", idx: int = 0, path: str = ""
) -> Write:
    content = value(data)
    return Write(task, path, idx, channel_name, content, value_digest(content))


def draft(
    checkpoint_id: str,
    parent_id: str = "",
    channels: Mapping[str, Content] | tuple[ChannelDraft, ...] = (),
    *,
    thread_id: str = "t",
    ns: str = "",
    frame: bytes = b"",
    metadata: Mapping[str, object] | None = None,
    delta: tuple[str, ...] = (),
    writes: tuple[Write, ...] = (),
    label: str = "",
    summary: str = "",
    agent_id: str = "",
    expected_head: str | None = None,
) -> CheckpointDraft:
    if isinstance(channels, Mapping):
        channels = tuple(channel(name, content) for name, content in channels.items())
    return CheckpointDraft(
        key(checkpoint_id, thread_id, ns),
        parent_id,
        frame,
        channels,
        delta_channels=delta,
        metadata=parse_metadata(json.dumps(metadata or {}).encode(), "metadata_json"),
        label=label,
        summary=summary,
        agent_id=agent_id,
        writes=writes,
        expected_head=expected_head,
    )


def data_of(checkpoint: Checkpoint | None) -> dict[str, bytes]:
    """Return the data of the channels that have a value."""
    assert checkpoint is not None
    assert checkpoint.state is not None
    return {c.name: c.value.data for c in checkpoint.state.channels if c.value is not None}


def written(checkpoint: Checkpoint | None) -> list[tuple[str, str, int, str, bytes]]:
    """Return the pending writes in short."""
    assert checkpoint is not None
    return [(w.task_path, w.task_id, w.idx, w.channel, w.value.data) for w in checkpoint.writes]


async def refused(call: Awaitable[object], reason: Reason) -> Refusal:
    """Await a call that must be refused for this reason."""
    with pytest.raises(Refusal) as caught:
        await call
    assert caught.value.reason is reason
    return caught.value
