"""From LangGraph's arguments to requests of the contract.

Nothing here does I/O. Whatever has to be serialized is serialized before these functions
return, because node code may go on to change the same objects.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

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

from ..v1 import checkpoint_pb2, checkpoint_service_pb2, thread_service_pb2, value_pb2
from ._search import VECTOR_KEY
from ._summary import SUMMARY_KEY

MAX_WRITES = 4096
"""Writes in one request; the server's `ServerLimits.max_writes` is not lower."""

MAX_BATCH = 1000
"""Threads or runs in one request, after `PruneThreadsRequest` and `DeleteRunsRequest`."""

_MAX_LIMIT = 2**32 - 1

_STRATEGIES: Mapping[str, thread_service_pb2.PruneStrategy] = {
    "keep_latest": thread_service_pb2.PRUNE_STRATEGY_KEEP_LATEST,
    "delete": thread_service_pb2.PRUNE_STRATEGY_DELETE_ALL,
    "delete_all": thread_service_pb2.PRUNE_STRATEGY_DELETE_ALL,
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
"""Keys of a checkpoint that the contract has fields for."""

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

Item = TypeVar("Item")


def thread_id_of(config: RunnableConfig) -> str:
    """Return the thread a config names, as text.

    Raises:
        ValueError: The config names none.
    """
    thread_id = (config.get("configurable") or {}).get("thread_id")
    if thread_id is None:
        raise ValueError('the config names no thread; pass {"configurable": {"thread_id": "..."}}')
    return str(thread_id)


def checkpoint_ref(config: RunnableConfig) -> checkpoint_pb2.CheckpointRef:
    """Return the checkpoint a config names; without ID, the latest of its namespace."""
    configurable = config.get("configurable") or {}
    return checkpoint_pb2.CheckpointRef(
        thread_id=thread_id_of(config),
        checkpoint_ns=configurable.get("checkpoint_ns") or "",
        checkpoint_id=str(configurable.get("checkpoint_id") or ""),
    )


def encode_value(value: Any, serde: SerializerProtocol, target: value_pb2.Value, name: str) -> None:
    """Serialize what a channel or a key holds into a message.

    Errors of the serializer pass through; a note says which channel it was.
    """
    try:
        kind, data = serde.dumps_typed(value)
    except Exception as error:
        error.add_note(f"TuskPoint: while serializing {name!r}")
        raise
    target.type = kind
    target.data = bytes(data)  # a serde may return a bytearray, which messages do not take


def encode_version(version: str | int | float, target: value_pb2.Version) -> None:
    """Write a version into a message, keeping its type."""
    if isinstance(version, str):
        target.text = version
    elif isinstance(version, int):
        target.integer = version
    else:
        target.number = version


def encode_checkpoint(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    serde: SerializerProtocol,
    target: checkpoint_pb2.Checkpoint,
) -> None:
    """Write a checkpoint, in which unchanged channels refer to the parent's content.

    Only channels in `new_versions`, and values without a version, are serialized. A
    checkpoint without parent has nothing to refer to and is complete.
    """
    named = checkpoint_ref(config)
    parent_id = named.checkpoint_id
    values, versions = _with_pending_sends(checkpoint)
    target.ref.thread_id = named.thread_id
    target.ref.checkpoint_ns = named.checkpoint_ns
    target.ref.checkpoint_id = checkpoint["id"]
    target.parent_checkpoint_id = parent_id
    target.metadata_json = encode_metadata(config, metadata)
    state = target.state
    _encode_frame(state, checkpoint, serde)
    state.delta_channels.extend(delta_channels(metadata, values))
    for name in [*versions, *(name for name in values if name not in versions)]:
        channel = state.channels.add(name=name)
        if name in versions:
            encode_version(versions[name], channel.version)
        if parent_id and name in versions and name not in new_versions:
            channel.inherit.SetInParent()
        else:
            _set_content(channel, values, serde)


def inline_channels(
    message: checkpoint_pb2.Checkpoint,
    names: Collection[str] | None,
    checkpoint: Checkpoint,
    serde: SerializerProtocol,
) -> None:
    """Replace references to the parent by content, in place, for the named channels.

    `None` stands for all of them.
    """
    values, _ = _with_pending_sends(checkpoint)
    for channel in message.state.channels:
        if channel.HasField("inherit") and (names is None or channel.name in names):
            _set_content(channel, values, serde)


def encode_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> bytes:
    """Return metadata as JSON, merged with what LangGraph takes over from the config.

    Raises:
        TypeError: A value is no JSON.
        ValueError: A number is not finite.
    """
    merged: dict[str, Any] = dict(get_serializable_checkpoint_metadata(config, metadata))
    for ours in (SUMMARY_KEY, VECTOR_KEY):
        merged.pop(ours, None)
    return _json_bytes(merged)


def delta_channels(metadata: CheckpointMetadata, values: Mapping[str, Any]) -> list[str]:
    """Return the channels that LangGraph rebuilds from writes."""
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
    """Return the requests that save what a task wrote: none if it wrote nothing.

    Raises:
        ValueError: The config names no thread or no checkpoint.
    """
    ref = checkpoint_ref(config)
    if not ref.checkpoint_id:
        raise ValueError("writes belong to a checkpoint; the config names no checkpoint_id")
    requests = []
    for batch in _batches(list(enumerate(writes)), MAX_WRITES):
        request = checkpoint_service_pb2.SaveWritesRequest(ref=ref, durability=durability)
        for position, (channel, value) in batch:
            write = request.writes.add(
                task_id=task_id,
                task_path=task_path,
                idx=WRITES_IDX_MAP.get(channel, position),
                channel=channel,
            )
            encode_value(value, serde, write.value, channel)
        requests.append(request)
    return requests


def list_request(
    config: RunnableConfig | None,
    filter: Mapping[str, Any] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> checkpoint_service_pb2.ListCheckpointsRequest:
    """Return the request of a listing; `limit` is `None` or above 0."""
    configurable = (config or {}).get("configurable", {})
    request = checkpoint_service_pb2.ListCheckpointsRequest(
        checkpoint_id=str(configurable.get("checkpoint_id") or ""),
        before=str((before or {}).get("configurable", {}).get("checkpoint_id") or ""),
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
    thread_ids: Sequence[str], strategy: str, durability: checkpoint_pb2.Durability
) -> list[thread_service_pb2.PruneThreadsRequest]:
    """Return the requests that prune threads: none if there are none.

    Raises:
        TypeError: One string stands where several are asked for.
        ValueError: The strategy is not known.
    """
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy is one of {', '.join(_STRATEGIES)}, not {strategy!r}")
    return [
        thread_service_pb2.PruneThreadsRequest(
            thread_ids=batch, strategy=_STRATEGIES[strategy], durability=durability
        )
        for batch in _batches(_several(thread_ids, "thread_ids"), MAX_BATCH)
    ]


def run_requests(
    run_ids: Sequence[str], durability: checkpoint_pb2.Durability
) -> list[thread_service_pb2.DeleteRunsRequest]:
    """Return the requests that delete runs: none if there are none.

    Raises:
        TypeError: One string stands where several are asked for.
    """
    return [
        thread_service_pb2.DeleteRunsRequest(run_ids=batch, durability=durability)
        for batch in _batches(_several(run_ids, "run_ids"), MAX_BATCH)
    ]


def _several(names: Sequence[str], parameter: str) -> list[str]:
    if isinstance(names, str | bytes):
        raise TypeError(f"{parameter} is a sequence of strings, not one string")
    return [str(name) for name in names]


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _encode_frame(
    state: checkpoint_pb2.CheckpointState, checkpoint: Checkpoint, serde: SerializerProtocol
) -> None:
    state.schema_version = checkpoint["v"]
    state.ts = checkpoint["ts"]
    for node, seen in checkpoint["versions_seen"].items():
        entry = state.versions_seen[node]
        for name, version in seen.items():
            encode_version(version, entry.channels[name])
    updated = checkpoint.get("updated_channels")
    if updated is not None:
        state.updated_channels.SetInParent()
        state.updated_channels.names.extend(updated)
    for name in checkpoint.keys() - _KNOWN_KEYS:
        encode_value(checkpoint[name], serde, state.extras[name], name)  # type: ignore[literal-required]


def _with_pending_sends(checkpoint: Checkpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return values and versions, with sends of layouts below 4 where layout 4 has them."""
    values: dict[str, Any] = dict(checkpoint["channel_values"])
    versions: dict[str, Any] = dict(checkpoint["channel_versions"])
    sends = checkpoint.get("pending_sends")
    if sends and TASKS not in values:
        values[TASKS] = sends
        if versions:
            versions[TASKS] = max(versions.values())
    return values, versions


def _set_content(
    channel: value_pb2.Channel, values: Mapping[str, Any], serde: SerializerProtocol
) -> None:
    if channel.name in values:
        encode_value(values[channel.name], serde, channel.value, channel.name)
    else:
        channel.empty.SetInParent()


def _json_bytes(value: Mapping[str, Any]) -> bytes:
    # Halves of a surrogate pair have no UTF-8; LangGraph's own serializer replaces them too.
    return _JSON.encode(value).encode("utf-8", "replace")
