"""The step that led to a checkpoint, by the versions in the checkpoint's state.

LangGraph gives all channels that a step changes the version after the newest version, and notes for
each node the versions that the node has seen (`langgraph.pregel._algo.apply_writes`). So a state
says which nodes ran and which nodes come next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tuskpoint.v1 import checkpoint_pb2, value_pb2

from .state import decode_version

SENDS = "__pregel_tasks"
"""LangGraph's channel of the `Send`s that start tasks (`langgraph.checkpoint.serde.types`)."""

MAX_NAMES = 100
"""Most names in a list of a step."""

MAX_TASKS = 20
"""Most questions, and most failures, of a step."""

_BRANCH, _JOIN = "branch:to:", "join:"
_OF_FRAMEWORK = ("__", "branch:", "start:", _JOIN)


def listed(names: Collection[str]) -> tuple[str, ...]:
    """Return the names of a list of a step."""
    return tuple(sorted(names)[:MAX_NAMES])


def newest_version(state: checkpoint_pb2.CheckpointState) -> int:
    """Return the counter of the newest version of a state's channels; -1 without versions."""
    return max(map(_counter_of, state.channels), default=-1)


def pulled_nodes(state: checkpoint_pb2.CheckpointState, newest: int) -> set[str]:
    """Return the nodes that channels started in the step that led to a state.

    They have seen the versions that were the newest before the step. Nodes that a `Send` started
    see no version.
    """
    if newest < 2:
        return set()
    return {
        node
        for node, seen in state.versions_seen.items()
        if not node.startswith("__") and newest - 1 in map(_counter, seen.channels.values())
    }


def has_run_sends(state: checkpoint_pb2.CheckpointState, newest: int) -> bool:
    """Return whether the step that led to a state may have run the `Send`s of the parent.

    A step that runs `Send`s empties their channel, or fills the channel again.
    """
    return any(
        channel.name == SENDS and _counter_of(channel) == newest for channel in state.channels
    )


def changed_channels(state: checkpoint_pb2.CheckpointState, newest: int) -> set[str]:
    """Return the channels that the step changed, without the framework's own channels."""
    if state.HasField("updated_channels"):
        names = set(state.updated_channels.names)
    else:
        names = {channel.name for channel in state.channels if _counter_of(channel) == newest >= 0}
    return {name for name in names if not name.startswith(_OF_FRAMEWORK)}


def branched_nodes(state: checkpoint_pb2.CheckpointState) -> set[str]:
    """Return the nodes that come next because an edge leads to them."""
    return {
        channel.name.removeprefix(_BRANCH)
        for channel in state.channels
        if channel.name.startswith(_BRANCH)
        and channel.digest
        and _is_unseen(state, channel.name.removeprefix(_BRANCH), channel)
    }


def barriers(
    state: checkpoint_pb2.CheckpointState,
) -> Iterator[tuple[str, str, value_pb2.Channel]]:
    """Yield the awaited nodes, joined by "+", the node that waits for them, and their channel.

    The value of the channel has the awaited nodes that ended.
    """
    for channel in state.channels:
        if channel.name.startswith(_JOIN) and channel.digest:
            starts, _, node = channel.name.removeprefix(_JOIN).rpartition(":")
            if _is_unseen(state, node, channel):
                yield starts, node, channel


def node_of(task_path: str, sends: Mapping[int, str]) -> str:
    """Return the node of a task, by LangGraph's path of the task; empty if the path has none.

    Args:
        task_path: For example `~__pregel_pull, node` or `~__pregel_push, 0000000003, ...`.
        sends: Nodes of the `Send`s of the task's checkpoint, by position.
    """
    kind, _, rest = task_path.partition(", ")
    if kind == "~__pregel_pull":
        return rest
    position = rest.partition(",")[0]
    if kind == "~__pregel_push" and position.isdecimal() and position.isascii():
        return sends.get(int(position), "")
    return ""


def _is_unseen(
    state: checkpoint_pb2.CheckpointState, node: str, channel: value_pb2.Channel
) -> bool:
    if node not in state.versions_seen:  # reading a map of messages by a missing key adds the key
        return True
    seen = state.versions_seen[node].channels
    return channel.name not in seen or _counter(seen[channel.name]) < _counter_of(channel)


def _counter_of(channel: value_pb2.Channel) -> int:
    return _counter(channel.version) if channel.HasField("version") else -1


def _counter(version: value_pb2.Version) -> int:
    """Return the counter in a version, such as 3 in "0003.0.5"; -1 if the version has none."""
    decoded = decode_version(version)
    if not isinstance(decoded, str):
        return int(decoded)
    counter = decoded.partition(".")[0]
    return int(counter) if counter.isdecimal() and counter.isascii() else -1
