"""Keeps content of removed checkpoints that delta channels of remaining checkpoints need.

The first remaining checkpoint below removed checkpoints gets a `delta_base`: for each channel the
value that a rebuild starts with, if a removed checkpoint stored it, and the later writes. If
another remaining checkpoint is above the removed ones, the path continues there. So a base never
contains content that is stored elsewhere, and repeated removals move writes but never multiply
them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.sql.elements import ClauseElement

from ...core.delta_bases import DeltaChannel, decode_delta_base, encode_delta_base
from ...core.limits import MIB
from ...core.state import decode_channels
from ...core.threads import EventKind
from ...core.values import PREFIX_BYTES, split
from ..database.binding import binder_of
from ..database.thread_rows import KNOWN, CachedCheckpoint, Place, ThreadCacheEntry, ThreadRef
from ..database.unit_of_work import UnitOfWork
from ..sql.schema import checkpoints, contents, members, writes
from ..sql.statements import LISTED, Statement, insert_rows, of_thread, same_checkpoint
from ..values import segment_refs
from ..values.delta_history import DeltaPath, follow, path_parent

_KEPT_BYTES = 8 * MIB  # bytes of values that are read at once
NO_NAMES = b"[]"  # stored form of an empty list of delta channels


class Node(NamedTuple):
    """A checkpoint with the columns that removal needs; fields as the columns.

    `parent_id` is the next checkpoint of its path: its parent, or the ancestor that its
    `delta_base` names, if the checkpoints between were removed.
    """

    checkpoint_ns: str
    checkpoint_id: str
    root_id: str
    run_id: str
    delta_channels: bytes
    number: int
    label: str
    created_us: int
    parent_id: str
    delta_base: tuple[DeltaChannel, ...]

    @property
    def place(self) -> Place:
        """Namespace and ID of the checkpoint."""
        return (self.checkpoint_ns, self.checkpoint_id)

    @property
    def parent(self) -> Place:
        """Next checkpoint of the path, which may be missing."""
        return (self.checkpoint_ns, self.parent_id)


Nodes = dict[Place, Node]
"""The checkpoints of a thread by place."""


class NewBase(NamedTuple):
    """A remaining checkpoint, and the whole `delta_base` that it gets.

    `taken` are the numbers of the rows in `writes` whose values the base names.
    """

    node: Node
    base: tuple[DeltaChannel, ...]
    taken: tuple[int, ...]


_NODES_AT_ONCE = 100  # checkpoints whose states are in memory at once
_NODES = Statement(
    select(
        *(checkpoints.c.number, checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id), *KNOWN
    ).where(of_thread(checkpoints))
)
_STATES = Statement(
    select(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id, checkpoints.c.state).where(
        checkpoints.c.number.in_(LISTED)
    )
)


def read_nodes(connection: Connection, of: ThreadRef) -> Nodes:
    """Return all checkpoints of a thread.

    Raises:
        Refusal: `JOURNAL_DAMAGED`: the row of a checkpoint was changed.
    """
    nodes: Nodes = {}
    binder = binder_of(connection)
    answer = _NODES.run(connection, of_thread=of.number)
    while rows := answer.fetchmany(_NODES_AT_ONCE):
        for number, checkpoint_ns, checkpoint_id, *columns in rows:
            checkpoint = CachedCheckpoint(*columns)
            checkpoint.check(binder, of, (checkpoint_ns, checkpoint_id))
            base = (
                decode_delta_base(checkpoint.delta_base, checkpoint_id)
                if checkpoint.delta_base
                else ()
            )
            node = Node(
                *(checkpoint_ns, checkpoint_id, checkpoint.root_id, checkpoint.run_id),
                *(checkpoint.delta_channels, number, checkpoint.label, checkpoint.created_us),
                *(path_parent(checkpoint.parent_id, base), base),
            )
            nodes[node.place] = node
    return nodes


def rebuilt_from(paths: Mapping[str, DeltaPath]) -> tuple[DeltaChannel, ...]:
    """Return the values and writes to rebuild channels from, by name, without empty channels."""
    return tuple(
        DeltaChannel(name, path.seed, tuple(write.write for write in path.writes), path.goes_on_at)
        for name, path in sorted(paths.items())
        if path.seed is not None or path.newest_first or path.goes_on_at
    )


def needed_bases(
    connection: Connection, of: ThreadRef, nodes: Nodes, doomed: AbstractSet[Place]
) -> list[NewBase]:
    """Return the checkpoints that get a base when other checkpoints are removed.

    Each delta channel is followed from each remaining checkpoint up to the checkpoint that stores
    it. The checkpoint at which that path enters removed checkpoints gets the values and writes
    above it. `nodes` are all checkpoints of the thread; none is removed yet.
    """
    below = _nodes_below(nodes, doomed)
    if all(node.delta_channels == NO_NAMES for node in below):
        return []
    stored = {
        (checkpoint_ns, name): {
            channel.name for channel in decode_channels(state) if channel.digest is not None
        }
        for checkpoint_ns, name, state in _STATES.run_listed(
            connection, (node.number for node in below)
        )
    }
    staying: dict[str, set[str]] = defaultdict(set)
    for namespace, checkpoint_id in nodes.keys() - doomed:
        staying[namespace].add(checkpoint_id)
    paths: dict[Place, dict[str, DeltaPath]] = defaultdict(dict)
    walked: dict[Place, set[str]] = defaultdict(set)
    queue = [(node, set(json.loads(node.delta_channels))) for node in below]
    while queue:
        node, names = queue.pop()
        if node.place not in stored:
            continue  # no removed checkpoint is above it
        based_names = {channel.name for channel in node.delta_base if not channel.ancestor_id}
        names = names - walked[node.place] - stored[node.place] - based_names
        walked[node.place] |= names
        if names and node.parent not in doomed:
            queue.append((nodes[node.parent], names))
        elif names:
            new_paths = follow(
                connection, of, node.place, sorted(names), until=staying[node.checkpoint_ns]
            )
            paths[node.place].update(new_paths)
            # At the ancestor where a path continues, the channel is needed as well.
            queue += (
                (nodes[node.checkpoint_ns, path.goes_on_at], {name})
                for name, path in new_paths.items()
                if path.goes_on_at
            )
    bases: list[NewBase] = []
    for place in sorted(paths):
        node, node_paths = nodes[place], paths[place]
        if channels := rebuilt_from(node_paths):
            # No remaining checkpoint needs a channel that continues above and was not followed.
            ended_channels = (
                channel
                for channel in node.delta_base
                if not channel.ancestor_id and channel.name not in node_paths
            )
            rows = {write.number for path in node_paths.values() for write in path.newest_first}
            write_numbers = tuple(sorted(row for row in rows if row is not None))
            bases.append(NewBase(node, (*ended_channels, *channels), write_numbers))
    return bases


def _nodes_below(nodes: Nodes, doomed: AbstractSet[Place]) -> list[Node]:
    """Return the remaining checkpoints that have a removed ancestor."""
    children: dict[Place, list[Place]] = defaultdict(list)
    for node in nodes.values():
        children[node.parent].append(node.place)
    descendants: set[Place] = set()
    waiting = list(doomed)
    while waiting:
        new = [child for child in children.pop(waiting.pop(), ()) if child not in descendants]
        descendants.update(new)
        waiting += new
    return [nodes[place] for place in sorted(descendants - doomed)]


_KEPT = tuple(column.name for column in contents.columns if column.name != "number")


def _keep_value() -> ClauseElement:
    """Insert the value of a write into the values of the family, or bring an evicted value back."""
    statement = insert_rows(contents, _KEPT)
    return statement.on_conflict_do_update(
        index_elements=["family", "digest"],
        set_={name: statement.excluded[name] for name in _KEPT[2:]},
        where=contents.c.data.is_(None) & statement.excluded.data.is_not(None),
    )


_KEEP = Statement(_keep_value(), distinct=True, beside=("tenant",))
_OF_WRITE = ("digest", "type", "size", "encoding", "data", "thread")
_VALUES = Statement(
    select(writes.c.number, *(writes.c[name] for name in _OF_WRITE)).where(
        writes.c.number.in_(LISTED)
    )
)
_SOURCES = Statement(
    select(
        *(writes.c.number, writes.c.digest, writes.c.seq, func.length(writes.c.data)),
        checkpoints.c.held,
    )
    .outerjoin(checkpoints, same_checkpoint(checkpoints, writes))
    .where(writes.c.number.in_(LISTED))
)
_HOLDS = Statement(
    select(members.c.sha256, members.c.digests).where(
        members.c.tenant == bindparam("of_tenant"), members.c.sha256.in_(LISTED)
    )
)


def store_bases(batch: UnitOfWork, log: ThreadCacheEntry, bases: Sequence[NewBase]) -> None:
    """Store bases: each checkpoint with a new base is changed and stored again.

    The checkpoint counts as saved again, an event that watchers know. That change comes before the
    removal in the log: a log that is cut at any place lacks nothing.
    """
    # by number of a write: the change, and the segment that contains the write's value
    sources: dict[int, tuple[int, bytes | None]] = {}
    stored_writes = _stored_writes(
        batch.connection, log, {row for new_base in bases for row in new_base.taken}
    )
    for new_base in bases:
        base = encode_delta_base(new_base.base)
        size = len(base) + sum(
            stored_writes[row][0] for row in new_base.taken if row not in sources
        )
        seq = batch.change(
            log, EventKind.CHECKPOINT_SAVED, new_base.node.place, size_bytes=size, indexed=True
        )
        checkpoint = batch.checkpoint(log, new_base.node.place)
        if checkpoint is None:
            raise ValueError(f"checkpoint {new_base.node.place} was read and is not there")
        checkpoint.delta_base, checkpoint.seq = base, seq
        batch.amend_checkpoint(log, new_base.node.place, checkpoint)
        for row in new_base.taken:
            sources.setdefault(row, (seq, stored_writes[row][1]))
    portion, size = dict[int, tuple[int, bytes | None]](), 0
    for row, source in sources.items():
        portion[row] = source
        size += stored_writes[row][0]
        if size > _KEPT_BYTES:
            _keep_values(batch.connection, log, portion)
            portion, size = {}, 0
    _keep_values(batch.connection, log, portion)


def _keep_values(
    connection: Connection, log: ThreadCacheEntry, sources: Mapping[int, tuple[int, bytes | None]]
) -> None:
    """Copy the values of writes, given by number, into the values of the family."""
    stored = {number: columns for number, *columns in _VALUES.run_listed(connection, sources)}
    rows: dict[bytes, dict[str, object]] = {}
    for number, (seq, segment) in sources.items():
        if number not in stored:
            continue
        value = dict(zip(_OF_WRITE, stored[number], strict=True))
        before = rows.get(value["digest"])
        if before is None or (before["data"] is None and value["data"] is not None):
            extra_columns = {"family": log.row.family, "tenant": log.row.tenant, "seq": seq}
            extra_columns |= {"keyframe": None, "patches": 0, "patch_bytes": 0, "segment": segment}
            rows[value["digest"]] = {**value, **extra_columns}
    _KEEP.run_many(connection, list(rows.values()))


def _stored_writes(
    connection: Connection, log: ThreadCacheEntry, numbers: AbstractSet[int]
) -> dict[int, tuple[int, bytes | None]]:
    """Return the stored bytes of writes, and for evicted writes the segment with their value."""
    stored_writes: dict[int, tuple[int, bytes | None]] = {}
    tenant, thread = log.row.tenant, log.row.number
    for number, digest, seq, size, held in _SOURCES.run_listed(connection, sorted(numbers)):
        holder = None
        if size is None:
            places = segment_refs.of_writes(connection, tenant, thread, held, [seq])
            holder = _holder(connection, tenant, [location.sha256 for location in places], digest)
        stored_writes[number] = (size or 0, holder)
    return stored_writes


def _holder(
    connection: Connection, tenant: str, segments: Sequence[bytes], digest: bytes
) -> bytes | None:
    """Return the segment that contains a value; the first one if no segment is known to."""
    if len(segments) > 1:
        prefix = digest[:PREFIX_BYTES]
        for sha256, joined in _HOLDS.run_listed(connection, segments, of_tenant=tenant):
            if prefix in split(joined or b"", PREFIX_BYTES):
                return bytes(sha256)
    return segments[0] if segments else None
