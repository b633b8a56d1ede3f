"""The checkpoints of a thread as far as removal asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection, select

from ...domain.formats.segments import decode_delta_base
from ..checkpoints.delta_history import path_parent
from ..database.logs import Place
from ..database.schema import checkpoints
from ..database.statements import Statement, of_thread


class Node(NamedTuple):
    """A checkpoint; fields as the columns.

    Attributes:
        parent_id: Where its path goes on: its parent, or the ancestor that its `delta_base`
            names, if those between were removed.
    """

    number: int
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str
    root_id: str
    run_id: str
    delta_channels: bytes

    @property
    def place(self) -> Place:
        """Its namespace and ID."""
        return (self.checkpoint_ns, self.checkpoint_id)

    @property
    def parent(self) -> Place:
        """Where its path goes on, which may not be stored."""
        return (self.checkpoint_ns, self.parent_id)


Nodes = dict[Place, Node]
"""The checkpoints of a thread by place."""

_NODES = Statement(
    select(*(checkpoints.c[name] for name in Node._fields), checkpoints.c.delta_base).where(
        of_thread(checkpoints)
    )
)


def read_nodes(connection: Connection, thread: int) -> Nodes:
    """Return all checkpoints of a thread.

    Args:
        connection: In a transaction.
        thread: Number of the thread.
    """
    nodes: Nodes = {}
    for *columns, base in _NODES.run(connection, of_thread=thread).fetchall():
        node = Node(*columns)
        if base:
            channels = decode_delta_base(base, node.checkpoint_id)
            node = node._replace(parent_id=path_parent(node.parent_id, channels))
        nodes[node.place] = node
    return nodes


def ancestors(nodes: Nodes, node: Node) -> Iterator[Node]:
    """Yield the stored ancestors of a checkpoint, nearest first, each once."""
    seen = {node.place}
    current = nodes.get(node.parent)
    while current is not None and current.place not in seen:
        seen.add(current.place)
        yield current
        current = nodes.get(current.parent)
