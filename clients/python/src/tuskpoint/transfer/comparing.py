"""Comparison of imported threads with their source, both read through LangGraph."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from ..langgraph._decode import with_step
from .arriving import Advance, Arrival, Plan
from .threads import Key, Problem, Source, called, key_of

_SENDS_IN_CHANNEL_SINCE = 4
_PLAIN = frozenset({"v", "id", "ts", "channel_versions", "versions_seen"})
"""Parts of a checkpoint that JSON can express. Their order has no meaning."""

_STORED_OTHERWISE = frozenset({"channel_values", "pending_sends", "type", "updated_channels"})
"""Parts of a checkpoint that are compared separately, or that only some savers add."""


class GraphSource(Source, Protocol):
    """A source that a saver of LangGraph can also read."""

    is_exact: bool
    """Whether values keep their bytes, and the saver reads all writes in the order of the tasks."""

    serializer: SerializerProtocol
    """Serializer that reads the values of both sides."""

    def saver(self) -> BaseCheckpointSaver[Any]:
        """Return the saver of the source."""
        ...


class Comparison:
    """Compares imported threads with their source.

    Args:
        source: The source.
        ours: The saver of the server, with the serializer of the source.
    """

    def __init__(self, source: GraphSource, ours: BaseCheckpointSaver[Any]) -> None:
        self._source = source
        self._theirs = source.saver()
        self._ours = ours

    def check(self, arrival: Arrival, plan: Plan, advance: Advance) -> None:
        """Compare all checkpoints of a thread.

        Raises:
            Problem: A checkpoint differs.
        """
        for message in arrival.messages(plan):
            key = key_of(message)
            theirs = self._read(plan.thread_id, key)
            ours = self._ours.get_tuple(_config(plan.target_id, *key))
            for difference in self._differences(theirs, ours):
                raise Problem(
                    f"{called(key)} of thread '{plan.target_id}' differs from its source: "
                    f"{difference}",
                    "do not continue from it; report what differs",
                    is_damage=True,
                )
            advance()

    def _read(self, thread_id: str, key: Key) -> CheckpointTuple | None:
        try:
            return self._theirs.get_tuple(_config(thread_id, *key))
        except Exception as error:  # each database library has its own errors
            raise Problem(
                f"LangGraph's saver cannot read {called(key)} of thread '{thread_id}': {error}",
                "it was imported, and not compared; run the import again",
                is_damage=True,
            ) from error

    def _differences(
        self, theirs: CheckpointTuple | None, ours: CheckpointTuple | None
    ) -> Iterator[str]:
        if theirs is None or ours is None:
            yield "it is missing on one side"
            return
        if _parent(theirs) != _parent(ours):
            yield "its parent"
        if _plain(with_step({**theirs.metadata})) != _plain(ours.metadata):
            yield "its metadata"
        their_graph: dict[str, Any] = {**theirs.checkpoint}
        our_graph: dict[str, Any] = {**ours.checkpoint}
        if (their_graph.get("updated_channels") or []) != (our_graph.get("updated_channels") or []):
            yield "its updated channels"
        if theirs.checkpoint["v"] < _SENDS_IN_CHANNEL_SINCE:
            # Not all savers read the sends from the parent's writes.
            for graph in (their_graph, our_graph):
                graph["channel_values"] = _without_sends(graph["channel_values"])
                graph["channel_versions"] = _without_sends(graph["channel_versions"])
        for name in _PLAIN:
            if _plain(their_graph.get(name)) != _plain(our_graph.get(name)):
                yield f"its '{name}'"
        for name in (their_graph.keys() | our_graph.keys()) - _PLAIN - _STORED_OTHERWISE:
            if not self._is_equal(their_graph.get(name), our_graph.get(name)):
                yield f"its '{name}'"
        yield from self._values(their_graph["channel_values"], our_graph["channel_values"])
        yield from self._writes(theirs, ours)

    def _values(self, theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
        if theirs.keys() != ours.keys():
            yield "its channels"
        for name in theirs.keys() & ours.keys():
            if not self._is_equal(theirs[name], ours[name]):
                yield f"the value of channel '{name}'"

    def _writes(self, theirs: CheckpointTuple, ours: CheckpointTuple) -> Iterator[str]:
        their_writes, our_writes = (
            list(theirs.pending_writes or ()),
            list(ours.pending_writes or ()),
        )
        if not self._source.is_exact:
            if not their_writes:
                return
            their_writes.sort(key=self._order)
            our_writes.sort(key=self._order)
        if [write[:2] for write in their_writes] != [write[:2] for write in our_writes] or not all(
            self._is_equal(first[2], second[2])
            for first, second in zip(their_writes, our_writes, strict=True)
        ):
            yield "its writes"

    def _order(self, write: tuple[str, str, Any]) -> tuple[str, str, str, bytes]:
        return *write[:2], *self._source.serializer.dumps_typed(write[2])

    def _is_equal(self, value: Any, other: Any) -> bool:
        # Compared without `==`: arrays have no single result for it, and NaN is not equal to NaN.
        dumps = self._source.serializer.dumps_typed
        if dumps(value) == dumps(other):
            return True
        # A set that was encoded again may have another order.
        return not self._source.is_exact and bool(value == other)


def _plain(value: object) -> str:
    """Return a JSON value as text, in which 1 and 1.0 differ."""
    return json.dumps(value, sort_keys=True)


def _without_sends(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name != TASKS}


def _parent(checkpoint: CheckpointTuple) -> str:
    configurable = (checkpoint.parent_config or {}).get("configurable") or {}
    return str(configurable.get("checkpoint_id") or "")


def _config(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": checkpoint_ns,
            "checkpoint_id": checkpoint_id,
        }
    }
