"""Closures: what is needed to go on from a checkpoint.

That is the checkpoint itself, and of each subgraph tied to it the checkpoint that it stands
at. Which subgraphs are tied, LangGraph says in `metadata.parents`: a call of a subgraph has
a namespace of its own and belongs to the checkpoint that it ran under; a subgraph that keeps
a state of its own has one namespace for the whole thread, and stands where the last run on
the path to the checkpoint left it. If that ran under the checkpoint itself, its tasks may
have to run again, and where it stood before them is needed too. Ancestors are not needed:
what delta channels are rebuilt from goes along with each checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, select

from ...domain.closures import Closure, ClosureMember
from ...domain.formats.bundles import check_bytes
from ...domain.model import CheckpointKey, View
from ...domain.state import decode_channels
from ..checkpoints.delta_history import delta_history
from ..checkpoints.load import load
from ..database import thread_rows
from ..database.overlay import Place
from ..database.schema import checkpoints, writes
from ..database.statements import (
    EMPTY,
    Statement,
    of_checkpoint,
    of_namespace,
    of_thread,
    parameters_of,
)
from ..database.thread_rows import ThreadRow
from . import ancestry
from .delta_bases import NO_NAMES, Base, delta_base

NAMESPACE_SEPARATOR = "|"
"""Separates the namespaces of nested subgraphs in LangGraph."""

SUBGRAPH_CALL = ":"
"""Separates the node's name from the task's ID in a LangGraph namespace."""

_AT_ONCE = 64
_LEAST = "\x01"
"""The least name that is not empty; names hold no zero character."""

_of = checkpoints.c
_NODE = Statement(select(_of.state, _of.delta_channels).where(of_checkpoint(checkpoints)))
_PARENT = Statement(select(_of.parent_id).where(of_checkpoint(checkpoints)))
_LATEST = Statement(select(func.max(_of.checkpoint_id)).where(of_namespace(checkpoints)))
# Not in order: for that SQLite would leave the index by root, and walk the whole thread.
_TIED_TO_ROOT = Statement(
    select(_of.checkpoint_ns, _of.checkpoint_id).where(
        of_thread(checkpoints),
        _of.root_id == bindparam("of_root"),
        _of.root_id != EMPTY,
        _of.checkpoint_ns != EMPTY,
    )
)
_BELOW = Statement(
    select(_of.checkpoint_ns, _of.checkpoint_id, _of.metadata)
    .where(
        of_thread(checkpoints),
        _of.checkpoint_ns > bindparam("from_ns"),
        _of.checkpoint_ns < bindparam("below_ns"),
    )
    .order_by(_of.checkpoint_ns, _of.checkpoint_id)
)
_SUBGRAPH = Statement(
    select(_of.checkpoint_id).where(of_thread(checkpoints), _of.root_id != EMPTY).limit(1)
)
_NEXT_NAMESPACE = Statement(
    select(func.min(_of.checkpoint_ns)).where(
        of_thread(checkpoints), _of.checkpoint_ns >= bindparam("from_ns")
    )
)
_RAN = Statement(
    select(_of.checkpoint_id)
    .where(
        of_namespace(checkpoints),
        _of.root_id != EMPTY,  # else it is no subgraph, but somebody's own namespace
    )
    .limit(1)
)
_WRITE_BYTES = Statement(
    select(func.coalesce(func.sum(writes.c.size), 0)).where(of_checkpoint(writes))
)
_RUNS = Statement(
    select(_of.checkpoint_id, _of.root_id)
    .where(of_namespace(checkpoints), _of.root_id != EMPTY)
    .order_by(_of.checkpoint_id.desc())
)


@dataclass(frozen=True, slots=True)
class _Member:
    """A checkpoint of a closure, before its content is read."""

    place: Place
    base: Base
    size: int


def live(connection: Connection, tenant: str, thread_id: str) -> ThreadRow | None:
    """Return the row of a thread that is not deleted, or `None`."""
    row = thread_rows.find(connection, tenant, thread_id)
    return None if row is None or row.deleted else row


def named(connection: Connection, thread: ThreadRow, key: CheckpointKey) -> Place | None:
    """Return where a checkpoint of a thread stands, if it does; an empty ID means the latest."""
    checkpoint_id = key.checkpoint_id or latest(connection, thread.number, key.checkpoint_ns)
    place = (key.checkpoint_ns, checkpoint_id)
    return place if exists(connection, thread.number, place) else None


def latest(connection: Connection, number: int, checkpoint_ns: str) -> str:
    """Return the greatest ID of a namespace; empty if there is none."""
    row = _LATEST.run(connection, of_thread=number, of_ns=checkpoint_ns).fetchone()
    return row[0] or "" if row else ""


def exists(connection: Connection, number: int, place: Place) -> bool:
    """Return whether a checkpoint is stored."""
    return _PARENT.run(connection, **parameters_of(number, *place)).fetchone() is not None


def places(connection: Connection, number: int, place: Place) -> list[Place]:
    """Return where the checkpoints of a closure stand, the one that it is of first."""
    return [place, *sorted(_tied(connection, number, place))]


def closure(connection: Connection, tenant: str, key: CheckpointKey) -> Closure | None:
    """Return a closure with its content; see `Lineage.closure`.

    Raises:
        Refusal: `LIMIT_EXCEEDED` if it is larger than a bundle; no content was read then.
    """
    thread = live(connection, tenant, key.thread_id)
    place = named(connection, thread, key) if thread is not None else None
    if thread is None or place is None:
        return None
    found = CheckpointKey(key.thread_id, *place)
    members: list[_Member] = []
    size = 0
    for one in places(connection, thread.number, place):
        members.append(_sized(connection, thread.number, one))
        size += members[-1].size
        check_bytes(found, size)
    read = (_read(connection, tenant, key.thread_id, member) for member in members)
    return Closure(found, tuple(sorted(read, key=_order)), thread.seq)


def _sized(connection: Connection, number: int, place: Place) -> _Member:
    """Return a member with the bytes of its values and writes."""
    of = parameters_of(number, *place)
    state, delta_channels = _NODE.run(connection, **of).fetchone() or (b"", NO_NAMES)
    base = delta_base(connection, number, place, state, delta_channels)
    (written,) = _WRITE_BYTES.run(connection, **of).fetchone() or (0,)
    values = {one.digest: one.size for one in decode_channels(state)}
    return _Member(place, base, sum(values.values()) + int(written) + base.size)


def _read(connection: Connection, tenant: str, thread_id: str, member: _Member) -> ClosureMember:
    key = CheckpointKey(thread_id, *member.place)
    found = load(connection, tenant, key, View.FULL)
    if found is None:
        raise LookupError(f"checkpoint {key} vanished inside a transaction")
    names = [channel.name for channel in member.base.channels]
    if not names:
        return ClosureMember(found)
    return ClosureMember(found, delta_history(connection, tenant, key, names))


def _order(member: ClosureMember) -> Place:
    key = member.checkpoint.entry.key
    return (key.checkpoint_ns, key.checkpoint_id)


# --- subgraphs -------------------------------------------------------------------------


def stateful_namespaces(connection: Connection, number: int) -> list[str]:
    """Return the namespaces of subgraphs that keep a state of their own in the whole thread."""
    if _SUBGRAPH.run(connection, of_thread=number).fetchone() is None:
        return []
    return [
        namespace
        for namespace in _stateful_names(connection, number)
        if _RAN.run(connection, of_thread=number, of_ns=namespace).fetchone() is not None
    ]


def _stateful_names(connection: Connection, number: int) -> Iterator[str]:
    """Yield the namespaces that are no calls' own, in order.

    Goes from name to name, and past all calls of a node at once: a long thread has many
    checkpoints and many calls, and few names.
    """
    from_ns = _LEAST
    of = {"of_thread": number}
    while (row := _NEXT_NAMESPACE.run(connection, **of, from_ns=from_ns).fetchone()) and row[0]:
        node, call, _ = row[0].partition(SUBGRAPH_CALL)
        if call:
            from_ns = node + chr(ord(SUBGRAPH_CALL) + 1)
        else:
            yield row[0]
            from_ns = row[0] + _LEAST


def left_at(
    connection: Connection, number: int, root_id: str, namespace: str, *, child: str = ""
) -> str:
    """Return where the last run on the path to a root checkpoint left a stateful subgraph.

    Args:
        connection: In a transaction.
        number: Number of the thread.
        root_id: The root checkpoint; runs under itself count.
        namespace: The subgraph's namespace.
        child: A child of the root checkpoint. What ran under it is known to be off the path:
            to find that out takes a walk to the path's end.

    Returns:
        A checkpoint ID of the namespace; empty if it had not run yet.
    """
    path = _Path(connection, number, root_id)
    rows = _RUNS.run(connection, of_thread=number, of_ns=namespace)
    while some := rows.fetchmany(_AT_ONCE):
        for checkpoint_id, ran_under in some:
            if ran_under != child and path.leads_to(ran_under):
                return str(checkpoint_id)
    return ""


class _Path:
    """A root checkpoint and its ancestors, walked as far as someone asks.

    It ends early at one that is not stored: pruned, or left behind by a fork.
    """

    def __init__(self, connection: Connection, number: int, root_id: str) -> None:
        self._connection = connection
        self._number = number
        row = _PARENT.run(connection, **parameters_of(number, "", root_id)).fetchone()
        self._known = {root_id} if row else set()
        self._next = row[0] if row else root_id
        self._ancestors = ancestry.ancestors(
            connection, number, ("", root_id), row[0] if row else ""
        )

    def leads_to(self, root_id: str) -> bool:
        """Return whether a root checkpoint is on the path."""
        # IDs fall along the path, but for those of other clocks: these are met at its end.
        while root_id not in self._known:
            ancestor = next(self._ancestors, None)
            if ancestor is None:
                return self._may_have_led_to(root_id)
            self._known.add(ancestor[0])
            self._next = ancestor[1]
        return True

    def _may_have_led_to(self, root_id: str) -> bool:
        """Return whether one that is gone can have been where the path is not known any more.

        It cannot be distinguished from an abandoned branch that was pruned; LangGraph does
        not either, which looks for the latest before a checkpoint.
        """
        return root_id <= self._next and not exists(self._connection, self._number, ("", root_id))


def _tied(connection: Connection, number: int, place: Place) -> set[Place]:
    """Return where the subgraphs tied to a checkpoint stand."""
    if place[0]:
        return _tied_below(connection, number, place)
    return _tied_to_root(connection, number, place[1])


def _tied_to_root(connection: Connection, number: int, root_id: str) -> set[Place]:
    rows = _TIED_TO_ROOT.run(connection, of_thread=number, of_root=root_id).fetchall()
    tied: dict[str, str] = {}
    for namespace, checkpoint_id in rows:
        tied[namespace] = max(tied.get(namespace, ""), checkpoint_id)
    found = set(tied.items())
    row = _PARENT.run(connection, **parameters_of(number, "", root_id)).fetchone()
    # Where a subgraph stood before the checkpoint, too: there it begins when tasks run again.
    roots = [(root_id, ""), (row[0], root_id)] if row and row[0] else [(root_id, "")]
    for namespace in stateful_namespaces(connection, number):
        for root, child in roots:
            checkpoint_id = left_at(connection, number, root, namespace, child=child)
            if checkpoint_id:
                found.add((namespace, checkpoint_id))
    return found


def _tied_below(connection: Connection, number: int, place: Place) -> set[Place]:
    """Return what ran under a checkpoint of a subgraph, the greatest of each namespace."""
    rows = _BELOW.run(
        connection,
        of_thread=number,
        from_ns=place[0] + NAMESPACE_SEPARATOR,
        below_ns=place[0] + chr(ord(NAMESPACE_SEPARATOR) + 1),
    ).fetchall()
    found: dict[str, str] = {}
    for namespace, checkpoint_id, metadata in rows:
        parents = json.loads(metadata).get("parents")
        if isinstance(parents, dict) and parents.get(place[0]) == place[1]:
            found[namespace] = checkpoint_id
    return set(found.items())
