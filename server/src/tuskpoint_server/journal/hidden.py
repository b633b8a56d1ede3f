"""Which removed checkpoints must stay, out of sight, for delta channels of others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sqlalchemy import Connection, select

from .deltas import stored_channels
from .schema import checkpoints
from .statements import Statement, of_checkpoint

NodeKey = tuple[str, str]
"""Namespace and checkpoint ID, inside a thread."""

NO_NAMES = b"[]"


@dataclass(frozen=True, slots=True)
class Node:
    """A checkpoint of a thread as far as removal asks for it."""

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str
    hidden: bool
    root_id: str
    run_id: str
    delta_channels: bytes

    @property
    def key(self) -> NodeKey:
        """Its place in the thread."""
        return (self.checkpoint_ns, self.checkpoint_id)

    @property
    def parent(self) -> NodeKey:
        """Place of its parent."""
        return (self.checkpoint_ns, self.parent_id)


_STATE = Statement(select(checkpoints.c.state).where(of_checkpoint(checkpoints)))


class Ancestry:
    """Finds, in one thread, the ancestors that delta channels are rebuilt from."""

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        thread_id: str,
        nodes: Mapping[NodeKey, Node],
        gone: AbstractSet[NodeKey],
    ) -> None:
        """Look at a thread.

        Args:
            connection: In a transaction.
            tenant: Tenant.
            thread_id: The thread.
            nodes: All its checkpoints, hidden ones too.
            gone: Those that readers shall not see.
        """
        self._connection = connection
        self._tenant = tenant
        self._thread_id = thread_id
        self._nodes = nodes
        self._gone = gone
        self._below_gone: dict[NodeKey, bool] = {}
        self._stored: dict[NodeKey, AbstractSet[str]] = {}

    def needed(self) -> set[NodeKey]:
        """Return those of the gone that a checkpoint which stays is rebuilt from.

        Each channel is followed from each checkpoint that stays up to the nearest
        ancestor that stores a value; a stretch is walked once per channel.
        """
        needed: set[NodeKey] = set()
        walked: set[tuple[NodeKey, str]] = set()
        for node in self._nodes.values():
            if node.key in self._gone or node.delta_channels == NO_NAMES:
                continue
            if not self._has_gone_ancestor(node):
                continue
            names = set(json.loads(node.delta_channels)) - self._stored_names(node.key)
            self._follow(node, names, needed, walked)
        return needed

    def _follow(
        self,
        node: Node,
        names: set[str],
        needed: set[NodeKey],
        walked: set[tuple[NodeKey, str]],
    ) -> None:
        ancestor = self._nodes.get(node.parent)
        while ancestor is not None:
            key = ancestor.key
            names = {name for name in names if (key, name) not in walked}
            if not names:
                return
            walked.update((key, name) for name in names)
            if key in self._gone:
                needed.add(key)
            elif not self._has_gone_ancestor(ancestor):
                return
            names -= self._stored_names(key)
            ancestor = self._nodes.get(ancestor.parent)

    def _has_gone_ancestor(self, node: Node) -> bool:
        """Tell whether the path to the root meets a checkpoint that is gone."""
        path: list[NodeKey] = []
        on_path: set[NodeKey] = set()
        current: Node | None = node
        answer = False
        while current is not None and current.key not in on_path:
            known = self._below_gone.get(current.key)
            if known is not None:
                answer = known
                break
            path.append(current.key)
            on_path.add(current.key)
            if current.parent in self._gone and current.parent in self._nodes:
                answer = True
                break
            current = self._nodes.get(current.parent)
        self._below_gone.update((key, answer) for key in path)
        return answer

    def _stored_names(self, key: NodeKey) -> AbstractSet[str]:
        names = self._stored.get(key)
        if names is None:
            row = _STATE.run(
                self._connection,
                of_tenant=self._tenant,
                of_thread=self._thread_id,
                of_ns=key[0],
                of_id=key[1],
            ).fetchone()
            names = stored_channels(row[0]).keys() if row is not None else frozenset()
            self._stored[key] = names
        return names
