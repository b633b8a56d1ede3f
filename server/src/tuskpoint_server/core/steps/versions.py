"""The step that led to a checkpoint, by the versions in its state and the state of its parent.

LangGraph gives each channel that a step changes a new version, and notes for each node that runs
the versions that the node sees (`langgraph.pregel._algo.apply_writes`). So two states say which
nodes ran between them, and one state says which nodes come next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tuskpoint.v1 import checkpoint_pb2, value_pb2

SENDS = "__pregel_tasks"
"""LangGraph's channel of the `Send`s that start tasks (`langgraph.checkpoint.serde.types`)."""

MAX_NAMES = 100
"""Most names in a list of a step."""

MAX_NAME = 512
"""Most characters of a name or an ID; a longer name says nothing."""

MAX_TASKS = 20
"""Most questions, and most failures, of a step."""

_BRANCH, _JOIN, _HIDDEN = "branch:to:", "join:", "__"
_STARTING = (_BRANCH, _JOIN, SENDS)
_OF_FRAMEWORK = (_HIDDEN, "branch:", "start:", _JOIN)
_NO_CHANNEL = value_pb2.Channel()
_FIRST_WITH_BRANCHES = 3
"""First version of states in which `branch:to:` channels tell all edges; others have 0."""

_PULL, _PUSH, _HANDLER = "~__pregel_pull, ", "~__pregel_push, ", ", node_error_handler, 0000000000"


def listed(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a list of a step."""
    return tuple(sorted([name for name in names if len(name) <= MAX_NAME])[:MAX_NAMES])


class Trigger(NamedTuple):
    """A channel that starts a node, if the value of the channel says so.

    `awaited`: names of the nodes that a barrier waits for, joined by "+"; empty for an edge.
    """

    node: str
    awaited: str
    channel: value_pb2.Channel


class Versions:
    """What a state says by its versions.

    Attributes:
        sends: The channel of the `Send`s that start tasks, if it has a value.
        triggers: The channels whose newest versions their nodes have not seen. An old state names
            its edges after the nodes where they begin: then none, the next nodes are unknown.
    """

    __slots__ = ("_by_name", "_state", "sends", "triggers")

    def __init__(self, state: checkpoint_pb2.CheckpointState) -> None:
        self._state = state
        self._by_name: dict[str, value_pb2.Channel] = {}
        self.sends: value_pb2.Channel | None = None
        self.triggers: list[Trigger] = []
        for channel in state.channels:
            name = channel.name
            self._by_name[name] = channel
            if not name.startswith(_STARTING) or not channel.digest:
                continue
            if name == SENDS:
                self.sends = channel
            elif not self._is_old:
                self._add_trigger(name, channel)

    @property
    def _is_old(self) -> bool:
        return 0 < self._state.schema_version < _FIRST_WITH_BRANCHES

    def _add_trigger(self, name: str, channel: value_pb2.Channel) -> None:
        awaited, node = "", name.removeprefix(_BRANCH)
        if name.startswith(_JOIN):
            awaited, _, node = name.removeprefix(_JOIN).rpartition(":")
        # Reading a map of messages by a missing key adds the key; `get` does not.
        seen = self._state.versions_seen.get(node)
        version = seen.channels.get(name) if seen is not None else None
        if version is None or _counter(version) < _counter(channel.version):
            self.triggers.append(Trigger(node, awaited, channel))

    def ran_since(self, parent: Versions | None) -> set[str]:
        """Return the nodes that have seen newer versions than in the parent of the checkpoint.

        Without the parent: the nodes that have seen the version before the newest version. Nodes
        that a `Send` starts see no version.
        """
        versions_seen = self._state.versions_seen
        if parent is None:
            newest = self._newest_version()
            return {
                node
                for node, seen in versions_seen.items()
                if _newest(seen.channels.values()) == newest - 1 > 0
                and not node.startswith(_HIDDEN)
            }
        before, nothing = parent._state.versions_seen, checkpoint_pb2.VersionsSeen()
        return {
            node
            for node, seen in versions_seen.items()
            if not node.startswith(_HIDDEN)
            and seen != (seen_before := before.get(node, nothing))
            and _newest(seen.channels.values()) > _newest(seen_before.channels.values())
        }

    def changed_since(self, parent: Versions | None) -> set[str]:
        """Return the channels with other versions than in the parent, without the framework's own.

        Without the parent: the channels that the state names as updated; else the channels with the
        newest version.
        """
        names: set[str]
        if parent is not None:
            before, now = parent._by_name, self._by_name
            names = {
                name
                for name in before.keys() | now.keys()
                # most channels are wholly equal
                if (one := before.get(name, _NO_CHANNEL)) != (other := now.get(name, _NO_CHANNEL))
                and one.version != other.version
            }
        elif self._state.HasField("updated_channels"):
            names = set(self._state.updated_channels.names)
        else:
            newest = self._newest_version()
            names = {
                name
                for name, channel in self._by_name.items()
                if _counter(channel.version) == newest >= 0
            }
        if self._is_old:
            names -= {*self._state.versions_seen}  # an old state has a channel for each node
        return {name for name in names if not name.startswith(_OF_FRAMEWORK)}

    def _newest_version(self) -> float:
        return _newest(channel.version for channel in self._by_name.values())


NOTHING = Versions(checkpoint_pb2.CheckpointState())
"""What is before the first checkpoint."""


def started_node(task_path: str) -> str:
    """Return the node that a channel started, by LangGraph's path of the task; else nothing."""
    node = task_path.removeprefix(_PULL)
    is_node = node != task_path and not node.startswith(_HIDDEN) and not node.endswith(_HANDLER)
    return node if is_node else ""


def node_of(task_path: str, sends: Mapping[int, str], upcoming: Iterable[str]) -> str:
    """Return the node of a task; empty if it is unknown.

    Args:
        task_path: LangGraph's path of the task, such as `~__pregel_pull, node` or
            `~__pregel_push, 0000000003, 0000000000`; empty if the framework gives none.
        sends: Nodes of the `Send`s of the task's checkpoint, by position.
        upcoming: Nodes that start at the task's checkpoint.
    """
    node = ""
    if not task_path:
        names = [*upcoming]
        node = names[0] if len(names) == 1 else ""
    elif task_path.startswith(_PUSH):
        position = task_path.removeprefix(_PUSH).partition(",")[0]
        if position.isdecimal() and position.isascii() and not task_path.endswith(_HANDLER):
            node = sends.get(int(position), "")
    else:
        node = started_node(task_path)
    return node if len(node) <= MAX_NAME else ""


def _newest(versions: Iterable[value_pb2.Version]) -> float:
    return max(map(_counter, versions), default=-1)


def _counter(version: value_pb2.Version) -> float:
    """Return the counter in a version, such as 3 in "0003.0.5"; -1 if the version has none."""
    if text := version.text:
        counter = text.partition(".")[0]
        return int(counter) if counter.isdecimal() and counter.isascii() else -1
    if version.HasField("integer"):
        return version.integer
    return version.number if version.HasField("number") else -1
