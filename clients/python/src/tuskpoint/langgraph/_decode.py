"""From answers of the contract to what LangGraph expects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from ..v1 import checkpoint_pb2, checkpoint_service_pb2, value_pb2
from ._channels import native

_SENDS_IN_CHANNEL_SINCE = 4

_JSON_TYPE = "json"
"""The type of values that may come from JavaScript; Python's default serializer writes none."""


def decode_config(ref: checkpoint_pb2.CheckpointRef) -> RunnableConfig:
    """Return the config that names a checkpoint: three keys, no others."""
    return {
        "configurable": {
            "thread_id": ref.thread_id,
            "checkpoint_ns": ref.checkpoint_ns,
            "checkpoint_id": ref.checkpoint_id,
        }
    }


def parent_ref(message: checkpoint_pb2.Checkpoint) -> checkpoint_pb2.CheckpointRef | None:
    """Return the parent of a checkpoint, which need not exist, or `None` at the root."""
    if not message.parent_checkpoint_id:
        return None
    return checkpoint_pb2.CheckpointRef(
        thread_id=message.ref.thread_id,
        checkpoint_ns=message.ref.checkpoint_ns,
        checkpoint_id=message.parent_checkpoint_id,
    )


def parent_with_sends(message: checkpoint_pb2.Checkpoint) -> checkpoint_pb2.CheckpointRef | None:
    """Return the parent if pending sends have to be fetched from its writes.

    In layouts below 4 a checkpoint's sends are the parent's writes on the channel
    `__pregel_tasks`.
    """
    if message.state.schema_version >= _SENDS_IN_CHANNEL_SINCE:
        return None
    return parent_ref(message)


def decode_tuple(
    message: checkpoint_pb2.Checkpoint,
    serde: SerializerProtocol,
    sender: checkpoint_pb2.Checkpoint | None = None,
) -> CheckpointTuple:
    """Return a checkpoint as LangGraph knows it.

    Args:
        message: The checkpoint.
        serde: What its values are rebuilt with.
        sender: The parent whose writes hold the pending sends, if `parent_with_sends`
            named one and it exists.
    """
    parent = parent_ref(message)
    checkpoint = _decode_checkpoint(message, serde)
    if sender is not None:
        _take_over_sends(checkpoint, sender, serde)
    return CheckpointTuple(
        config=decode_config(message.ref),
        checkpoint=checkpoint,
        metadata=_decode_metadata(message.metadata_json),
        parent_config=decode_config(parent) if parent else None,
        pending_writes=_decode_writes(message.writes, serde),
    )


def decode_history(
    channels: Sequence[str],
    histories: Iterable[checkpoint_service_pb2.DeltaChannelHistory],
    serde: SerializerProtocol,
) -> dict[str, DeltaChannelHistory]:
    """Return the history of each channel; `seed` is absent where none is stored."""
    decoded: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
    for history in histories:
        entry = decoded[history.channel]
        if history.HasField("seed"):
            entry["seed"] = _decode_value(history.seed.value, serde)
        entry["writes"].extend(_decode_writes(history.writes, serde))
    return decoded


def _decode_checkpoint(message: checkpoint_pb2.Checkpoint, serde: SerializerProtocol) -> Checkpoint:
    state = message.state
    checkpoint: Checkpoint = {
        "v": state.schema_version,
        "id": message.ref.checkpoint_id,
        "ts": state.ts,
        "channel_values": {
            channel.name: _decode_value(channel.value, serde, channel.name)
            for channel in state.channels
            if channel.HasField("value")
        },
        "channel_versions": {
            channel.name: _decode_version(channel.version)
            for channel in state.channels
            if channel.HasField("version")
        },
        "versions_seen": {
            node: {name: _decode_version(version) for name, version in seen.channels.items()}
            for node, seen in state.versions_seen.items()
        },
        "updated_channels": (
            list(state.updated_channels.names) if state.HasField("updated_channels") else None
        ),
    }
    extras = {name: _decode_value(value, serde) for name, value in state.extras.items()}
    return cast(Checkpoint, {**extras, **checkpoint})


def _take_over_sends(
    checkpoint: Checkpoint, sender: checkpoint_pb2.Checkpoint, serde: SerializerProtocol
) -> None:
    sends = [
        _decode_value(write.value, serde, TASKS)
        for write in sender.writes
        if write.channel == TASKS
    ]
    if not sends:
        return
    versions: ChannelVersions = checkpoint["channel_versions"]
    checkpoint["channel_values"][TASKS] = sends
    if versions:
        versions[TASKS] = max(cast(dict[str, Any], versions).values())


def _decode_metadata(raw: bytes) -> CheckpointMetadata:
    return cast(CheckpointMetadata, json.loads(raw) if raw else {})


def _decode_writes(
    writes: Iterable[value_pb2.PendingWrite], serde: SerializerProtocol
) -> list[PendingWrite]:
    return [
        (write.task_id, write.channel, _decode_value(write.value, serde, write.channel))
        for write in writes
    ]


def _decode_value(value: value_pb2.Value, serde: SerializerProtocol, channel: str = "") -> Any:
    decoded = serde.loads_typed((value.type, value.data))
    return native(channel, decoded) if value.type == _JSON_TYPE else decoded


def _decode_version(version: value_pb2.Version) -> str | int | float:
    if version.HasField("text"):
        return version.text
    if version.HasField("integer"):
        return version.integer
    return version.number
