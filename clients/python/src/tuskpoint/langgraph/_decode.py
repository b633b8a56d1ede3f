"""LangGraph's types from answers of the contract."""

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
from .portable.channels import native

_SENDS_IN_CHANNEL_SINCE = 4

_NO_STEP = -1
"""Step of a checkpoint that LangGraph did not save: the next run starts with step 0."""

_JSON_TYPE = "json"
"""Type of values that JavaScript may write; Python's default serializer does not write it."""


def decode_config(ref: checkpoint_pb2.CheckpointRef) -> RunnableConfig:
    """Return the config that names a checkpoint: three keys, no others."""
    return _config(ref, ref.checkpoint_id)


def parent_with_sends(message: checkpoint_pb2.Checkpoint) -> checkpoint_pb2.CheckpointRef | None:
    """Return the parent if the pending sends must be fetched from the parent's writes.

    In layouts below 4 a checkpoint's sends are the parent's writes on the channel
    `__pregel_tasks`.
    """
    if message.state.schema_version >= _SENDS_IN_CHANNEL_SINCE or not message.parent_checkpoint_id:
        return None
    return checkpoint_pb2.CheckpointRef(
        thread_id=message.ref.thread_id,
        checkpoint_ns=message.ref.checkpoint_ns,
        checkpoint_id=message.parent_checkpoint_id,
    )


def decode_tuple(
    message: checkpoint_pb2.Checkpoint,
    serde: SerializerProtocol,
    sender: checkpoint_pb2.Checkpoint | None = None,
) -> CheckpointTuple:
    """Return a checkpoint as LangGraph's tuple.

    Args:
        message: The checkpoint.
        serde: The serializer of its values.
        sender: The parent whose writes have the pending sends, if `parent_with_sends` named a
            parent and the parent exists.
    """
    ref, parent_id = message.ref, message.parent_checkpoint_id
    metadata = _decode_metadata(message.metadata_json)
    if message.lineage.forked_from:
        metadata["source"], parent_id = "fork", ParentOfFork(parent_id, ref.checkpoint_id)
    checkpoint = _decode_checkpoint(message, serde)
    if sender is not None:
        _take_over_sends(checkpoint, sender, serde)
    return CheckpointTuple(
        config=_config(ref, ref.checkpoint_id),
        checkpoint=checkpoint,
        metadata=metadata,
        parent_config=_config(ref, parent_id) if parent_id else None,
        pending_writes=_decode_writes(message.writes, serde),
    )


class ParentOfFork(str):
    """ID of the parent of a thread's first checkpoint, which was forked from another thread.

    To replay a fork, LangGraph lists the checkpoints of its subgraphs before the parent.
    Checkpoints that were copied with the fork sort before the fork, and may sort after the parent,
    which was not copied.

    Attributes:
        fork_id: ID of the fork.
    """

    fork_id: str

    def __new__(cls, parent_id: str, fork_id: str) -> ParentOfFork:
        """Return the ID of the parent."""
        instance = super().__new__(cls, parent_id)
        instance.fork_id = fork_id
        return instance


def with_step(metadata: dict[str, Any]) -> CheckpointMetadata:
    """Return the metadata of a checkpoint with a step, to which LangGraph adds 1 in each run.

    Programs without LangGraph save no step, or save another value under that name.
    """
    step = metadata.get("step")
    result = metadata if isinstance(step, int) else {**metadata, "step": _NO_STEP}
    return cast(CheckpointMetadata, result)


def decode_history(
    channels: Sequence[str],
    histories: Iterable[checkpoint_service_pb2.DeltaChannelHistory],
    serde: SerializerProtocol,
) -> dict[str, DeltaChannelHistory]:
    """Return the history of each channel. `seed` is missing if the server has no stored value."""
    decoded: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
    for history in histories:
        entry = decoded[history.channel]
        if history.HasField("seed"):
            entry["seed"] = _decode_value(history.seed.value, serde)
        entry["writes"].extend(_decode_writes(history.writes, serde))
    return decoded


def _config(ref: checkpoint_pb2.CheckpointRef, checkpoint_id: str) -> RunnableConfig:
    """Return the config of a checkpoint in the thread and namespace of `ref`."""
    return {
        "configurable": {
            "thread_id": ref.thread_id,
            "checkpoint_ns": ref.checkpoint_ns,
            "checkpoint_id": checkpoint_id,
        }
    }


def _decode_checkpoint(message: checkpoint_pb2.Checkpoint, serde: SerializerProtocol) -> Checkpoint:
    state = message.state
    values: dict[str, Any] = {}
    versions: ChannelVersions = {}
    for channel in state.channels:
        name = channel.name
        if channel.HasField("version"):
            versions[name] = _decode_version(channel.version)
        if channel.HasField("value"):
            values[name] = _decode_value(channel.value, serde, name)
    updated = list(state.updated_channels.names) if state.HasField("updated_channels") else None
    checkpoint: Checkpoint = {
        "v": state.schema_version,
        "id": message.ref.checkpoint_id,
        "ts": state.ts,
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {
            node: {name: _decode_version(version) for name, version in seen.channels.items()}
            for node, seen in state.versions_seen.items()
        },
        "updated_channels": updated,
    }
    extras = {name: _decode_value(value, serde) for name, value in state.extras.items()}
    return cast(Checkpoint, {**extras, **checkpoint}) if extras else checkpoint


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
    # Decoded first: for bytes, `json.loads` guesses the encoding, which the contract fixes.
    return with_step(json.loads(raw.decode("utf-8", "surrogatepass")) if raw else {})


def _decode_writes(
    writes: Iterable[value_pb2.PendingWrite], serde: SerializerProtocol
) -> list[PendingWrite]:
    return [
        (write.task_id, write.channel, _decode_value(write.value, serde, write.channel))
        for write in writes
    ]


def _decode_value(value: value_pb2.Value, serde: SerializerProtocol, channel: str = "") -> Any:
    kind = value.type
    decoded = serde.loads_typed((kind, value.data))
    return native(channel, decoded) if kind == _JSON_TYPE else decoded


def _decode_version(version: value_pb2.Version) -> str | int | float:
    # LangGraph's versions are texts, so the code checks for text first. A version without a kind is
    # 0.0.
    return version.text or cast(
        str | int | float, getattr(version, version.WhichOneof("kind") or "number")
    )
