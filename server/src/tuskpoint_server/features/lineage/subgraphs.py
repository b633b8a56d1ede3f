"""The current checkpoints of the subgraphs of a checkpoint.

LangGraph records in `metadata.parents` which subgraphs belong to a checkpoint. A call of a subgraph
has a namespace of its own and belongs to the checkpoint under which it ran. A subgraph that keeps a
state of its own has one namespace for the whole thread; its current checkpoint is the one of the
last run on the path to the checkpoint. If that run was under the checkpoint itself, its tasks may
have to run again, and the subgraph's checkpoint before the tasks is needed too.
"""

from __future__ import annotations

import json

from sqlalchemy import Connection, bindparam, func, select

from ...archive.rows.stored import numbers_of
from ...journal.database.thread_rows import Place
from ...journal.removal.deletion import SUBGRAPH_CALL
from ...journal.sql.schema import checkpoints
from ...journal.sql.statements import (
    EMPTY,
    Statement,
    of_checkpoint,
    of_namespace,
    of_thread,
    parameters_of,
)

NAMESPACE_SEPARATOR = "|"
"""Separator of the namespaces of nested subgraphs in LangGraph."""

_RUNS_AT_ONCE = 64
_LEAST = "\x01"
"""The least name that is not empty; names have no zero character."""

_of = checkpoints.c
_PARENT = Statement(select(_of.parent_id).where(of_checkpoint(checkpoints)))


# Walks from a checkpoint to its ancestors, as far as the rows are read.
_above = select(_of.checkpoint_id, _of.parent_id)
_path = _above.where(of_checkpoint(checkpoints)).cte("path", recursive=True)
_path = _path.union(_above.where(of_namespace(checkpoints), _of.checkpoint_id == _path.c.parent_id))
_PATH = Statement(select(_path.c.checkpoint_id, _path.c.parent_id))
# Unordered: to sort, SQLite would leave the index by root and read the whole thread.
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
# Without a root the namespace is a caller's own, not a subgraph.
_OF_RUNS = (of_namespace(checkpoints), _of.root_id != EMPTY)
_RAN = Statement(select(_of.checkpoint_id).where(*_OF_RUNS).limit(1))
_RUNS = Statement(
    select(_of.checkpoint_id, _of.root_id).where(*_OF_RUNS).order_by(_of.checkpoint_id.desc())
)


def tied_subgraphs(connection: Connection, number: int, place: Place) -> set[Place]:
    """Return the current checkpoints of the subgraphs tied to a checkpoint."""
    calls: dict[str, str] = {}
    if place[0]:  # for each subgraph: the greatest call of each namespace that ran under it
        for namespace, checkpoint_id, metadata in _BELOW.run(
            connection,
            of_thread=number,
            from_ns=place[0] + NAMESPACE_SEPARATOR,
            below_ns=place[0] + chr(ord(NAMESPACE_SEPARATOR) + 1),
        ).fetchall():
            parents = json.loads(metadata).get("parents")
            if isinstance(parents, dict) and parents.get(place[0]) == place[1]:
                calls[namespace] = checkpoint_id
        return set(calls.items())
    root_id = place[1]
    for namespace, checkpoint_id in _TIED_TO_ROOT.run(
        connection, of_thread=number, of_root=root_id
    ).fetchall():
        calls[namespace] = max(calls.get(namespace, ""), checkpoint_id)
    paths = [(RootPath(connection, number, root_id), "")]
    row = _PARENT.run(connection, **parameters_of(number, "", root_id)).fetchone()
    if row and row[0]:  # the subgraph's previous checkpoint, from which repeated tasks start
        paths.append((RootPath(connection, number, row[0]), root_id))
    places = {
        (namespace, path.left_at(namespace, child=child))
        for namespace in stateful_namespaces(connection, number)
        for path, child in paths
    }
    return {
        *calls.items(),
        *((namespace, checkpoint_id) for namespace, checkpoint_id in places if checkpoint_id),
    }


def stateful_namespaces(connection: Connection, number: int) -> list[str]:
    """Return the namespaces of subgraphs that keep a state of their own in the whole thread.

    The query jumps from name to name, and past all calls of a node at once: a long thread has many
    checkpoints and calls, and few names.
    """
    parameters = {"of_thread": number}
    if _SUBGRAPH.run(connection, **parameters).fetchone() is None:
        return []
    namespaces: list[str] = []
    from_ns = _LEAST
    while (
        row := _NEXT_NAMESPACE.run(connection, **parameters, from_ns=from_ns).fetchone()
    ) and row[0]:
        node, call, _ = row[0].partition(SUBGRAPH_CALL)
        if call:
            from_ns = node + chr(ord(SUBGRAPH_CALL) + 1)
        else:
            if _RAN.run(connection, **parameters, of_ns=row[0]).fetchone() is not None:
                namespaces.append(row[0])
            from_ns = row[0] + _LEAST
    return namespaces


class RootPath:
    """A root checkpoint and its ancestors, read as far as needed.

    The path ends early at an ancestor that is not stored: pruned, or not copied by a fork.
    """

    def __init__(self, connection: Connection, number: int, root_id: str) -> None:
        self._connection = connection
        self._number = number
        self._known: set[str] = set()
        self._next = root_id
        self._rows = _PATH.run(connection, **parameters_of(number, "", root_id))

    def left_at(self, namespace: str, *, child: str = "") -> str:
        """Return a stateful subgraph's checkpoint after its last run on the path; empty: none ran.

        `child` is a child of the root checkpoint, whose runs are off the path; without it, the
        method would have to read the whole path.
        """
        rows = _RUNS.run(self._connection, of_thread=self._number, of_ns=namespace)
        while runs := rows.fetchmany(_RUNS_AT_ONCE):
            for checkpoint_id, ran_under in runs:
                if ran_under != child and self._leads_to(ran_under):
                    return str(checkpoint_id)
        return ""

    def _leads_to(self, root_id: str) -> bool:
        # IDs decrease along the path, except IDs of other clocks, which are found at its end.
        while root_id not in self._known:
            row = self._rows.fetchone()
            if row is None:
                # One that is gone may have been above where the path is known. It cannot be
                # distinguished from an abandoned branch that was pruned; LangGraph does not
                # either, which looks for the latest before a checkpoint.
                is_gone = not numbers_of(self._connection, self._number, [("", root_id)])
                return root_id <= self._next and is_gone
            self._known.add(row[0])
            self._next = row[1]
        return True
