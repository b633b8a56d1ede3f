"""Requests of the contract from LangGraph's arguments. No I/O.

Values are serialized before these functions return, because node code may change the same objects
afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot

from .._messages.arguments import invalid_field
from .._messages.records import DurabilityName
from .._messages.requests import Keep, prunings, run_deletions
from ..v1 import checkpoint_pb2, checkpoint_service_pb2, thread_service_pb2, value_pb2
from ._decode import ParentOfFork
from ._leases import ON_BUSY_KEY
from ._summary import SUMMARY_KEY
from ._vector import VECTOR_KEY

MAX_WRITES = 4096
"""Most writes in one request; the server's `ServerLimits.max_writes` is not lower."""

_MAX_LIMIT = 2**32 - 1

_STRATEGIES: Mapping[str, Keep] = {
    "keep_latest": "latest",
    "delete": "nothing",
    "delete_all": "nothing",
}

_KNOWN_KEYS = frozenset(
    {
        "v",
        "id",
        "ts",
        "channel_values",
        "channel_versions",
        "versions_seen",
        "updated_channels",
        "pending_sends",
    }
)
"""Keys of a checkpoint that are fields in the contract."""

_SET: Mapping[str, Any] = {}
"""Argument that sets a field to an empty message."""

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def thread_id_of(config: RunnableConfig) -> str:
    """Return the thread of a config, as text.

    Raises:
        TypeError: The config is not a mapping.
        ValueError: The config has no thread.
    """
    thread_id = _configurable(config).get("thread_id")
    if thread_id is None:
        raise ValueError('the config names no thread; pass {"configurable": {"thread_id": "..."}}')
    return str(thread_id)


def _configurable(config: RunnableConfig) -> Mapping[str, Any]:
    given: object = config
    if not isinstance(given, Mapping):
        raise TypeError(
            'config must be a dict such as {"configurable": {"thread_id": "..."}}, '
            f"not {given!r:.80}"
        )
    return config.get("configurable") or {}


def thread_text(thread_id: object) -> str:
    """Return a thread ID as text; LangGraph's users may pass another type.

    Raises:
        InvalidRequest: The ID is missing or empty.
    """
    if thread_id is None:
        raise invalid_field("thread_id", "it must not be empty")
    return str(thread_id)


def checkpoint_ref(config: RunnableConfig) -> checkpoint_pb2.CheckpointRef:
    """Return the checkpoint of a config. Without an ID, that is the latest of its namespace."""
    return checkpoint_pb2.CheckpointRef(**_ref_fields(config))


def encode_value(value: Any, serde: SerializerProtocol, name: str) -> dict[str, Any]:
    """Serialize a value; return the fields of `tuskpoint.v1.Value`.

    Errors of the serializer pass through, with a note that names the channel.
    """
    try:
        kind, data = serde.dumps_typed(value)
    except Exception as error:
        error.add_note(f"TuskPoint: while serializing {name!r}")
        raise
    # A serializer may return a bytearray, which the message type does not accept.
    return {"type": kind, "data": bytes(data)}


def version_field(version: str | int | float) -> str:
    """Return the field of `tuskpoint.v1.Version` that keeps the type of a version."""
    if isinstance(version, str):
        return "text"
    return "integer" if isinstance(version, int) else "number"


def encode_checkpoint(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    serde: SerializerProtocol,
    target: checkpoint_pb2.Checkpoint,
) -> None:
    """Convert a checkpoint to a message, in which unchanged channels refer to the parent's content.

    Only channels in `new_versions`, and values without a version, are serialized. A checkpoint
    without a parent has all contents.
    """
    ref_fields = _ref_fields(config)
    parent_id = ref_fields["checkpoint_id"]
    values, versions = _with_pending_sends(checkpoint)
    ref = target.ref
    ref.thread_id = ref_fields["thread_id"]
    ref.checkpoint_ns = ref_fields["checkpoint_ns"]
    ref.checkpoint_id = checkpoint["id"]
    target.parent_checkpoint_id = parent_id
    target.metadata_json = encode_metadata(config, metadata)
    state = target.state
    _encode_frame(state, checkpoint, serde)
    state.delta_channels.extend(delta_channels(metadata, values))
    # Creating a channel with all arguments costs half as much as setting its fields one by one.
    add = state.channels.add
    for name, version in versions.items():
        version_fields = {version_field(version): version}
        if parent_id and name not in new_versions:
            add(name=name, version=version_fields, inherit=_SET)
        else:
            add(name=name, version=version_fields, **_content(name, values, serde))
    for name in values:
        if name not in versions:
            add(name=name, **_content(name, values, serde))


def inline_channels(
    message: checkpoint_pb2.Checkpoint,
    checkpoint: Checkpoint,
    serde: SerializerProtocol,
    names: Collection[str] | None,
) -> None:
    """Replace references to the parent by content, in place, for the named channels.

    `None` means all channels.
    """
    values, _ = _with_pending_sends(checkpoint)
    for channel in message.state.channels:
        if channel.HasField("inherit") and (names is None or channel.name in names):
            channel.MergeFrom(value_pb2.Channel(**_content(channel.name, values, serde)))


def encode_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> bytes:
    """Return metadata as JSON, merged with the keys that LangGraph copies from the config.

    Raises:
        TypeError: A value cannot be written as JSON.
        ValueError: A number is not finite.
    """
    merged: dict[str, Any] = dict(get_serializable_checkpoint_metadata(config, metadata))
    for ours in (SUMMARY_KEY, VECTOR_KEY, ON_BUSY_KEY):
        merged.pop(ours, None)
    return _json_bytes(merged)


def delta_channels(metadata: CheckpointMetadata, values: Mapping[str, Any]) -> list[str]:
    """Return the names of the channels that LangGraph rebuilds from writes."""
    names = dict.fromkeys(metadata.get("counters_since_delta_snapshot") or ())
    names.update(
        dict.fromkeys(name for name, value in values.items() if isinstance(value, _DeltaSnapshot))
    )
    return list(names)


def write_requests(
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    serde: SerializerProtocol,
    durability: checkpoint_pb2.Durability,
) -> list[checkpoint_service_pb2.SaveWritesRequest]:
    """Return the requests that save a task's writes; empty if there are no writes.

    Raises:
        ValueError: The config has no thread or no checkpoint.
    """
    ref = _ref_fields(config)
    if not ref["checkpoint_id"]:
        raise ValueError("writes belong to a checkpoint; the config names no checkpoint_id")
    numbered = list(enumerate(writes))
    requests = []
    for start in range(0, len(numbered), MAX_WRITES):
        request = checkpoint_service_pb2.SaveWritesRequest(ref=ref, durability=durability)
        for position, (channel, value) in numbered[start : start + MAX_WRITES]:
            request.writes.add(
                task_id=task_id,
                task_path=task_path,
                idx=WRITES_IDX_MAP.get(channel, position),
                channel=channel,
                value=encode_value(value, serde, channel),
            )
        requests.append(request)
    return requests


def list_request(
    config: RunnableConfig | None,
    filter: Mapping[str, Any] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> checkpoint_service_pb2.ListCheckpointsRequest:
    """Return the request of a listing; `limit` is `None` or above 0."""
    configurable = _configurable(config or {})
    bound = (before or {}).get("configurable", {}).get("checkpoint_id") or ""
    request = checkpoint_service_pb2.ListCheckpointsRequest(
        checkpoint_id=str(configurable.get("checkpoint_id") or ""),
        before=bound.fork_id if isinstance(bound, ParentOfFork) else str(bound),
        filter_json=_json_bytes(filter) if filter else b"",
        view=checkpoint_pb2.VIEW_FULL,
    )
    if configurable.get("thread_id") is not None:
        request.thread_id = str(configurable["thread_id"])
    if configurable.get("checkpoint_ns") is not None:
        request.checkpoint_ns = configurable["checkpoint_ns"]
    if limit is not None:
        request.limit = min(limit, _MAX_LIMIT)
    return request


def history_request(
    config: RunnableConfig, channels: Sequence[str]
) -> checkpoint_service_pb2.GetDeltaHistoryRequest:
    """Return the request for the history of channels."""
    return checkpoint_service_pb2.GetDeltaHistoryRequest(
        ref=checkpoint_ref(config), channels=dict.fromkeys(channels)
    )


def prune_requests(
    thread_ids: Sequence[str], strategy: str, safe: DurabilityName
) -> Iterator[thread_service_pb2.PruneThreadsRequest]:
    """Return the requests that prune threads.

    Raises:
        TypeError: The argument is one string, not a sequence of strings.
        ValueError: The strategy is unknown.
    """
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(_STRATEGIES)}, not {strategy!r}")
    return prunings(_several(thread_ids, "thread_ids"), _STRATEGIES[strategy], safe)


def run_requests(
    run_ids: Sequence[str], safe: DurabilityName
) -> Iterator[thread_service_pb2.DeleteRunsRequest]:
    """Return the requests that delete runs.

    Raises:
        TypeError: The argument is one string, not a sequence of strings.
    """
    return run_deletions(_several(run_ids, "run_ids"), safe)


def _several(names: Sequence[str], parameter: str) -> list[str]:
    if isinstance(names, str | bytes):
        raise TypeError(f"{parameter} must be a sequence of strings, not one string")
    return [str(name) for name in names]


def _ref_fields(config: RunnableConfig) -> dict[str, str]:
    """Return the fields of the `CheckpointRef` of a config."""
    configurable = _configurable(config)
    return {
        "thread_id": thread_id_of(config),
        "checkpoint_ns": configurable.get("checkpoint_ns") or "",
        "checkpoint_id": str(configurable.get("checkpoint_id") or ""),
    }


def _encode_frame(
    state: checkpoint_pb2.CheckpointState, checkpoint: Checkpoint, serde: SerializerProtocol
) -> None:
    state.schema_version = checkpoint["v"]
    state.ts = checkpoint["ts"]
    for node, seen in checkpoint["versions_seen"].items():
        channels = state.versions_seen[node].channels
        for name, version in seen.items():
            setattr(channels[name], version_field(version), version)
    updated = checkpoint.get("updated_channels")
    if updated is not None:
        state.updated_channels.SetInParent()
        state.updated_channels.names.extend(updated)
    for name in checkpoint.keys() - _KNOWN_KEYS:
        extra = value_pb2.Value(**encode_value(checkpoint[name], serde, name))  # type: ignore[literal-required]
        state.extras[name].CopyFrom(extra)


def _with_pending_sends(
    checkpoint: Checkpoint,
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return values and versions, with the sends of older layouts stored as in layout 4."""
    values: Mapping[str, Any] = checkpoint["channel_values"]
    versions: Mapping[str, Any] = checkpoint["channel_versions"]
    sends = checkpoint.get("pending_sends")
    if sends and TASKS not in values:
        values = {**values, TASKS: sends}
        if versions:
            versions = {**versions, TASKS: max(versions.values())}
    return values, versions


def _content(name: str, values: Mapping[str, Any], serde: SerializerProtocol) -> dict[str, Any]:
    """Return the field of `tuskpoint.v1.Channel` for the content of a channel."""
    if name in values:
        return {"value": encode_value(values[name], serde, name)}
    return {"empty": _SET}


def _json_bytes(value: Mapping[str, Any]) -> bytes:
    # UTF-8 has no form for halves of a surrogate pair; LangGraph's own serializer replaces them
    # too.
    return _JSON.encode(value).encode("utf-8", "replace")
