"""Closures: what is needed to go on from a checkpoint.

That is the checkpoint itself; of each subgraph tied to it the checkpoint that it stands
at; and for the delta channels of these the ancestors that they are rebuilt from. Which
subgraphs are tied, LangGraph tells in `metadata.parents`: a call of a subgraph has a
namespace of its own and belongs to the checkpoint that it ran under; a subgraph that
keeps a state of its own has one namespace for the whole thread, and stands where the
last run on the path to the checkpoint left it. If that ran under the checkpoint itself,
its tasks may have to run again, and where it stood before them is needed too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, func, literal_column, or_, select

from ..domain.bundle import check_bytes
from ..domain.lineage import Closure, ClosureMember
from ..domain.model import Checkpoint, CheckpointKey, Entry, State, View
from . import deltas, reads, threads
from .removals import SUBGRAPH_CALL
from .schema import checkpoints, contents, references, writes
from .statements import EMPTY, Statement, of_checkpoint, of_namespace, of_thread, parameters_of

NAMESPACE_SEPARATOR = "|"
"""Separates the namespaces of nested subgraphs in LangGraph."""

_AT_ONCE = 64
_LEAST = "\x01"
"""What the least name is that is not empty; names hold no zero character."""

_of = checkpoints.c
_VISIBLE = checkpoints.c.hidden.is_(False)
_NODE = Statement(
    select(checkpoints.c.parent_id, checkpoints.c.state, checkpoints.c.delta_channels).where(
        of_checkpoint(checkpoints), _VISIBLE
    )
)
_PARENT = Statement(select(checkpoints.c.parent_id).where(of_checkpoint(checkpoints)))
# Not in order: for that SQLite would leave the index by root, and walk the whole thread.
_TIED_TO_ROOT = Statement(
    select(_of.checkpoint_ns, _of.checkpoint_id).where(
        of_thread(checkpoints),
        checkpoints.c.root_id == bindparam("of_root"),
        checkpoints.c.root_id != EMPTY,
        _of.checkpoint_ns != EMPTY,
        _VISIBLE,
    )
)
_BELOW = Statement(
    select(_of.checkpoint_ns, _of.checkpoint_id, checkpoints.c.metadata)
    .where(
        of_thread(checkpoints),
        _of.checkpoint_ns > bindparam("from_ns"),
        _of.checkpoint_ns < bindparam("below_ns"),
        _VISIBLE,
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
        _VISIBLE,
    )
    .limit(1)
)
_VALUE_BYTES = Statement(
    select(func.coalesce(func.sum(contents.c.size), 0))
    .join(
        references,
        (references.c.tenant == contents.c.tenant) & (references.c.digest == contents.c.digest),
    )
    .where(of_checkpoint(references))
)
_WRITE_BYTES = Statement(
    select(writes.c.channel, func.sum(writes.c.size))
    .where(of_checkpoint(writes))
    .group_by(writes.c.channel)
)
_RUNS = Statement(
    select(_of.checkpoint_id, checkpoints.c.root_id)
    .where(
        of_namespace(checkpoints),
        or_(_VISIBLE, bindparam("with_hidden") == literal_column("1")),
        checkpoints.c.root_id != EMPTY,
    )
    .order_by(_of.checkpoint_id.desc())
)


@dataclass(frozen=True, slots=True)
class Part:
    """A checkpoint of a closure; fields as in `ClosureMember`.

    `channels`: of a hidden one, the delta channels that are rebuilt from it.
    """

    key: CheckpointKey
    hidden: bool = False
    channels: frozenset[str] = frozenset()


def named(connection: Connection, tenant: str, key: CheckpointKey) -> CheckpointKey | None:
    """Return the key of a checkpoint that readers see; an empty ID means the latest."""
    checkpoint_id = key.checkpoint_id or threads.latest(
        connection, tenant, key.thread_id, key.checkpoint_ns
    )
    found = CheckpointKey(key.thread_id, key.checkpoint_ns, checkpoint_id)
    row = _NODE.run(connection, **parameters_of(tenant, found)).fetchone()
    return found if row is not None else None


def parts(connection: Connection, tenant: str, key: CheckpointKey) -> list[Part]:
    """Return the checkpoints of a closure, the hidden ones last; `key` must be visible."""
    members = [key, *_tied(connection, tenant, key)]
    hidden: dict[CheckpointKey, frozenset[str]] = {}
    for member in members:
        for ancestor, channels in _rebuilt_from(connection, tenant, member):
            hidden[ancestor] = hidden.get(ancestor, frozenset()) | channels
    return [
        *(Part(member) for member in members),
        *(
            Part(ancestor, True, channels)
            for ancestor, channels in hidden.items()
            if ancestor not in members
        ),
    ]


def closure(connection: Connection, tenant: str, key: CheckpointKey) -> Closure | None:
    """Return a closure with its content; see `lineage_api.LineageJournal.closure`.

    Raises:
        Refusal: `LIMIT_EXCEEDED` if it is larger than a bundle; nothing was read then.
    """
    found = named(connection, tenant, key)
    if found is None:
        return None
    needed = parts(connection, tenant, found)
    size = 0
    for part in needed:  # before anything is read: it would all be in memory at once
        size += _least_bytes(connection, tenant, part)
        check_bytes(found, size)
    members = (_member(connection, tenant, part) for part in needed)
    return Closure(found, tuple(sorted(members, key=_place)))


def stateful_namespaces(connection: Connection, tenant: str, thread_id: str) -> list[str]:
    """Return the namespaces of subgraphs that keep a state of their own in the whole thread."""
    of = {"of_tenant": tenant, "of_thread": thread_id}
    if _SUBGRAPH.run(connection, **of).fetchone() is None:
        return []
    return [
        namespace
        for namespace in _stateful_names(connection, of)
        if _RAN.run(connection, **of, of_ns=namespace).fetchone() is not None
    ]


def _stateful_names(connection: Connection, of: dict[str, str]) -> Iterator[str]:
    """Yield the namespaces that are no calls' own, in order.

    Goes from name to name, and past all calls of a node at once: a long thread has many
    checkpoints and many calls, and few names.
    """
    from_ns = _LEAST
    while (row := _NEXT_NAMESPACE.run(connection, **of, from_ns=from_ns).fetchone()) and row[0]:
        node, call, _ = row[0].partition(SUBGRAPH_CALL)
        if call:
            from_ns = node + chr(ord(SUBGRAPH_CALL) + 1)
        else:
            yield row[0]
            from_ns = row[0] + _LEAST


def left_at(
    connection: Connection,
    tenant: str,
    key: CheckpointKey,
    namespace: str,
    *,
    with_hidden: bool = False,
    child: str = "",
) -> str:
    """Return where the last run on the path to a root checkpoint left a stateful subgraph.

    Args:
        connection: In a transaction.
        tenant: Tenant.
        key: The root checkpoint; runs under itself count.
        namespace: The subgraph's namespace.
        with_hidden: Consider checkpoints that readers do not see too.
        child: A child of the root checkpoint. What ran under it is known to be off the path:
            to find that out takes a walk to the path's end.

    Returns:
        A checkpoint ID of the namespace; empty if it had not run yet.
    """
    path = _Path(connection, tenant, key)
    rows = _RUNS.run(
        connection,
        of_tenant=tenant,
        of_thread=key.thread_id,
        of_ns=namespace,
        with_hidden=int(with_hidden),
    )
    while some := rows.fetchmany(_AT_ONCE):
        for checkpoint_id, root_id in some:
            if root_id != child and path.leads_to(root_id):
                return str(checkpoint_id)
    return ""


class _Path:
    """A root checkpoint and its ancestors, walked as far as someone asks.

    It ends early at one that is not stored: pruned, or left behind by a fork.
    """

    def __init__(self, connection: Connection, tenant: str, key: CheckpointKey) -> None:
        self._connection = connection
        self._tenant = tenant
        self._key = key
        row = _PARENT.run(connection, **parameters_of(tenant, key)).fetchone()
        self._known = {key.checkpoint_id} if row else set()
        self._next = row[0] if row else key.checkpoint_id
        self._ancestors = deltas.ancestors(connection, tenant, key, row[0] if row else "")

    def leads_to(self, root_id: str) -> bool:
        """Tell whether a root checkpoint is on the path."""
        # IDs fall along the path, but for those of other clocks: these are met at its end.
        while root_id not in self._known:
            ancestor = next(self._ancestors, None)
            if ancestor is None:
                return self._may_have_led_to(root_id)
            self._known.add(ancestor.checkpoint_id)
            self._next = ancestor.parent_id
        return True

    def _may_have_led_to(self, root_id: str) -> bool:
        """Tell whether one that is gone can have been where the path is not known any more.

        An abandoned branch that was pruned cannot be told from it, nor by LangGraph,
        which looks for the latest before a checkpoint.
        """
        return root_id <= self._next and not threads.exists(
            self._connection, self._tenant, replace(self._key, checkpoint_id=root_id)
        )


def _tied(connection: Connection, tenant: str, key: CheckpointKey) -> list[CheckpointKey]:
    """Return where the subgraphs tied to a checkpoint stand, by namespace."""
    if key.checkpoint_ns:
        found = _tied_below(connection, tenant, key)
    else:
        found = _tied_to_root(connection, tenant, key)
    return [
        CheckpointKey(key.thread_id, namespace, checkpoint_id)
        for namespace, checkpoint_id in sorted(found)
    ]


def _tied_to_root(connection: Connection, tenant: str, key: CheckpointKey) -> set[tuple[str, str]]:
    of = {"of_tenant": tenant, "of_thread": key.thread_id}
    rows = _TIED_TO_ROOT.run(connection, **of, of_root=key.checkpoint_id).fetchall()
    tied: dict[str, str] = {}
    for namespace, checkpoint_id in rows:
        tied[namespace] = max(tied.get(namespace, ""), checkpoint_id)
    found = set(tied.items())
    before = _NODE.run(connection, **parameters_of(tenant, key)).fetchone()
    roots = [key, replace(key, checkpoint_id=before[0])] if before and before[0] else [key]
    for namespace in stateful_namespaces(connection, tenant, key.thread_id):
        # Where it stood before the checkpoint, too: there it begins when tasks run again.
        for root in roots:
            child = key.checkpoint_id if root != key else ""
            checkpoint_id = left_at(connection, tenant, root, namespace, child=child)
            if checkpoint_id:
                found.add((namespace, checkpoint_id))
    return found


def _tied_below(connection: Connection, tenant: str, key: CheckpointKey) -> set[tuple[str, str]]:
    """Return what ran under a checkpoint of a subgraph, the greatest of each namespace."""
    prefix = key.checkpoint_ns + NAMESPACE_SEPARATOR
    rows = _BELOW.run(
        connection,
        of_tenant=tenant,
        of_thread=key.thread_id,
        from_ns=prefix,
        below_ns=key.checkpoint_ns + chr(ord(NAMESPACE_SEPARATOR) + 1),
    ).fetchall()
    found: dict[str, str] = {}
    for namespace, checkpoint_id, metadata in rows:
        parents = json.loads(metadata).get("parents")
        if isinstance(parents, dict) and parents.get(key.checkpoint_ns) == key.checkpoint_id:
            found[namespace] = checkpoint_id
    return set(found.items())


def _rebuilt_from(
    connection: Connection, tenant: str, key: CheckpointKey
) -> Iterator[tuple[CheckpointKey, frozenset[str]]]:
    """Yield the ancestors that a checkpoint's delta channels are rebuilt from, and which."""
    row = _NODE.run(connection, **parameters_of(tenant, key)).fetchone()
    if row is None:
        return
    parent_id, state, delta_channels = row
    names = frozenset(json.loads(delta_channels)) - deltas.stored_channels(state).keys()
    if not names:
        return
    for ancestor in deltas.ancestors(connection, tenant, key, parent_id):
        yield replace(key, checkpoint_id=ancestor.checkpoint_id), names
        names -= ancestor.stored.keys()
        if not names:
            return


def _least_bytes(connection: Connection, tenant: str, part: Part) -> int:
    """Return a bound below which the content of a part is not."""
    of = parameters_of(tenant, part.key)
    written = dict(_WRITE_BYTES.run(connection, **of).fetchall())
    if part.hidden:
        return sum(int(written.get(channel, 0)) for channel in part.channels)
    row = _VALUE_BYTES.run(connection, **of).fetchone()
    return sum(map(int, written.values())) + (int(row[0]) if row is not None else 0)


def _member(connection: Connection, tenant: str, part: Part) -> ClosureMember:
    if not part.hidden:
        found = reads.load(connection, tenant, part.key, View.FULL)
        if found is None:
            raise LookupError(f"checkpoint {part.key} vanished inside a transaction")
        return ClosureMember(found)
    return ClosureMember(_trimmed(connection, tenant, part), hidden=True)


def _trimmed(connection: Connection, tenant: str, part: Part) -> Checkpoint:
    """Return of an ancestor what some delta channels are rebuilt from, and no more."""
    found = reads.load_hidden(connection, tenant, part.key)
    state = found.state or State(b"", ())
    return Checkpoint(
        entry=_bare(found.entry),
        state=State(
            b"", tuple(channel for channel in state.channels if channel.name in part.channels)
        ),
        writes=tuple(write for write in found.writes if write.channel in part.channels),
    )


def _bare(entry: Entry) -> Entry:
    return Entry(
        key=entry.key,
        parent_id=entry.parent_id,
        incarnation=entry.incarnation,
        revision=entry.revision,
        certified_revision=entry.certified_revision,
        seq=entry.seq,
        created_us=entry.created_us,
        metadata=b"{}",
        envelopes=entry.envelopes,
    )


def _place(member: ClosureMember) -> tuple[str, str]:
    key = member.checkpoint.entry.key
    return (key.checkpoint_ns, key.checkpoint_id)
