"""What delta channels of checkpoints that stay need of those that are removed.

The first checkpoint that stays below removed ones gets it as its `delta_base`: for each
channel the value that rebuilding begins with, if a removed one stored it, and the writes
since. Where another checkpoint that stays stands above the removed ones, the path goes on
there, so that a base never holds what is stored elsewhere, and removing again and again
moves writes on but never multiplies them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, literal, null, select, update

from ...domain.formats.segments import DeltaChannel, decode_delta_base, encode_delta_base
from ...domain.state import decode_channels
from ...domain.threads import EventKind
from ..checkpoints.delta_history import DeltaPath, follow
from ..checkpoints.located import Held, decode_held
from ..database.logs import Log, Place
from ..database.overlay import Batch
from ..database.schema import checkpoints, contents, members, writes
from ..database.statements import Insert, InsertInto, Statement, in_lists
from .nodes import Node, Nodes, ancestors

_NO_NAMES = b"[]"


@dataclass(frozen=True, slots=True)
class NewBase:
    """A checkpoint that stays, and the base it gets.

    Attributes:
        node: The checkpoint.
        base: Its `delta_base`: what it had, and what is new.
        taken: Numbers of the rows in `writes` whose values the base names.
    """

    node: Node
    base: tuple[DeltaChannel, ...]
    taken: tuple[int, ...]


class _Stored(NamedTuple):
    """Names of the channels that a checkpoint stores, and its base."""

    names: AbstractSet[str]
    base: tuple[DeltaChannel, ...]


# --- deciding ----------------------------------------------------------------------------


def needed_bases(
    connection: Connection, thread: int, nodes: Nodes, doomed: AbstractSet[Place]
) -> list[NewBase]:
    """Return which checkpoints get a base once others are removed.

    Each delta channel is followed from each checkpoint that stays up to where it is stored;
    the checkpoint at which that path enters the removed ones gets what lies beyond.

    Args:
        connection: In a transaction in which nothing is removed yet.
        thread: Number of the thread.
        nodes: All its checkpoints.
        doomed: Those to be removed.
    """
    below = _below(nodes, doomed)
    if all(nodes[place].delta_channels == _NO_NAMES for place in below):
        return []
    stored = _read_stored(connection, [nodes[place] for place in below])
    staying: dict[str, set[str]] = {}
    for namespace, checkpoint_id in nodes.keys() - doomed:
        staying.setdefault(namespace, set()).add(checkpoint_id)
    paths: dict[Place, dict[str, DeltaPath]] = {}
    walked: set[tuple[Place, str]] = set()
    asked = {place: set(json.loads(nodes[place].delta_channels)) for place in below}
    while asked:
        wanted = _wanted(nodes, doomed, stored, asked, walked)
        asked = {}
        for place, names in sorted(wanted.items()):
            found = follow(connection, thread, place, sorted(names), until=staying[place[0]])
            paths.setdefault(place, {}).update(found)
            # Where a path goes on, what it needs above there is needed as well.
            for name, path in found.items():
                if path.goes_on_at:
                    asked.setdefault((place[0], path.goes_on_at), set()).add(name)
    bases = (_new_base(nodes[place], stored[place].base, paths[place]) for place in sorted(paths))
    return [one for one in bases if one is not None]


def _below(nodes: Nodes, doomed: AbstractSet[Place]) -> list[Place]:
    """Return the checkpoints that stay and have an ancestor that is removed."""
    known: dict[Place, bool] = {}
    for node in nodes.values():
        path = [node.place]
        answer = False
        for ancestor in ancestors(nodes, node):
            if path[-1] in known:
                answer = known[path.pop()]
                break
            if ancestor.place in doomed:
                answer = True
                break
            path.append(ancestor.place)
        known.update((place, answer) for place in path if place not in known)
    return sorted(place for place, is_below in known.items() if is_below and place not in doomed)


def _read_stored(connection: Connection, nodes: Sequence[Node]) -> dict[Place, _Stored]:
    found: dict[Place, _Stored] = {}
    for some in in_lists(nodes):
        rows = connection.execute(
            select(
                checkpoints.c.checkpoint_ns,
                checkpoints.c.checkpoint_id,
                checkpoints.c.state,
                checkpoints.c.delta_base,
            ).where(checkpoints.c.number.in_([node.number for node in some]))
        )
        for checkpoint_ns, checkpoint_id, state, base in rows:
            channels = decode_channels(state)
            found[(checkpoint_ns, checkpoint_id)] = _Stored(
                {channel.name for channel in channels if channel.digest is not None},
                decode_delta_base(base, checkpoint_id) if base else (),
            )
    return found


def _wanted(
    nodes: Nodes,
    doomed: AbstractSet[Place],
    stored: Mapping[Place, _Stored],
    asked: Mapping[Place, set[str]],
    walked: set[tuple[Place, str]],
) -> dict[Place, set[str]]:
    """Return the channels that each checkpoint has to get, by those that are asked for.

    Args:
        nodes: All checkpoints.
        doomed: Those to be removed.
        stored: What those have that stay and have an ancestor that is removed.
        asked: By checkpoint, the channels that it or one below it needs.
        walked: Checkpoints and channels that were looked at, which are left out and added
            to: a stretch is walked once for each channel.
    """
    wanted: dict[Place, set[str]] = {}
    for start, asked_names in asked.items():
        names = asked_names
        for node in chain([nodes[start]], ancestors(nodes, nodes[start])):
            names = {name for name in names if (node.place, name) not in walked}
            if node.place not in stored or not names:
                break  # nothing is removed above it
            own = stored[node.place]
            names -= own.names | {one.name for one in own.base if not one.ancestor_id}
            walked.update((node.place, name) for name in names)
            if node.parent in doomed:
                if names:
                    wanted.setdefault(node.place, set()).update(names)
                break
    return wanted


def _new_base(
    node: Node, before: tuple[DeltaChannel, ...], paths: Mapping[str, DeltaPath]
) -> NewBase | None:
    channels = [
        DeltaChannel(name, path.seed, tuple(one.write for one in path.writes), path.goes_on_at)
        for name, path in sorted(paths.items())
        if path.seed is not None or path.newest_first or path.goes_on_at
    ]
    if not channels:
        return None
    taken = {
        one.number for path in paths.values() for one in path.newest_first if one.number is not None
    }
    # What goes on above and was not followed is what no checkpoint that stays asks for.
    ended = tuple(one for one in before if not one.ancestor_id and one.name not in paths)
    return NewBase(node, ended + tuple(channels), tuple(sorted(taken)))


# --- doing -------------------------------------------------------------------------------


def _keep(insert_into: InsertInto) -> Insert:
    """Insert the value of a write among those of the family, or bring an evicted one back."""
    columns = {
        "family": bindparam("of_family", type_=contents.c.family.type),
        "digest": writes.c.digest,
        "type": writes.c.type,
        "size": writes.c.size,
        "encoding": writes.c.encoding,
        "data": writes.c.data,
        "keyframe": null(),
        "patches": literal(0),
        "patch_bytes": literal(0),
        "thread": writes.c.thread,
        "seq": bindparam("new_seq", type_=contents.c.seq.type),
        "segment": bindparam("held_by", type_=contents.c.segment.type),
    }
    chosen = select(*columns.values()).where(writes.c.number == bindparam("of_number"))
    statement = insert_into(contents).from_select(list(columns), chosen, include_defaults=False)
    back = ("encoding", "data", "keyframe", "patches", "patch_bytes", "thread", "seq", "segment")
    return statement.on_conflict_do_update(
        index_elements=["family", "digest"],
        set_={name: statement.excluded[name] for name in back},
        where=contents.c.data.is_(None) & statement.excluded.data.is_not(None),
    )


_KEEP = Statement(_keep)
_SET_BASE = Statement(
    update(checkpoints)
    .where(checkpoints.c.number == bindparam("of_number"))
    .values(delta_base=bindparam("new_base"), seq=bindparam("new_seq"))
)


def give(batch: Batch, log: Log, bases: Sequence[NewBase]) -> None:
    """Store bases: each checkpoint that gets one has changed and is stored again.

    It counts as saved again, which is what those that watch the thread know how to take. It
    comes before the removal in the log: wherever the log is cut, nothing is lacking.

    Args:
        batch: In a change of its own, in which nothing is removed yet.
        log: The thread.
        bases: What `needed_bases` returned.
    """
    rows = []
    kept: dict[int, dict[str, object]] = {}
    noted = batch.noted.setdefault(log.row.family, set())
    sizes, segments = _standing(batch.connection, log, bases)
    for one in bases:
        base = encode_delta_base(one.base)
        size = len(base) + sum(sizes[number] for number in one.taken if number not in kept)
        seq = batch.change(
            log, EventKind.CHECKPOINT_SAVED, one.node.place, size_bytes=size, indexed=True
        )
        rows.append({"of_number": one.node.number, "new_base": base, "new_seq": seq})
        for number in one.taken:
            kept.setdefault(
                number,
                {
                    "of_number": number,
                    "of_family": log.row.family,
                    "new_seq": seq,
                    "held_by": segments.get(number),
                },
            )
        noted.update(digest for channel in one.base for digest in channel.digests)
    _KEEP.run_many(batch.connection, list(kept.values()))
    _SET_BASE.run_many(batch.connection, rows)


def _standing(
    connection: Connection, log: Log, bases: Sequence[NewBase]
) -> tuple[dict[int, int], dict[int, bytes]]:
    """Return the stored bytes of the writes that bases take, and what holds evicted ones."""
    sizes: dict[int, int] = {}
    evicted: list[tuple[int, Place, int]] = []
    numbers = sorted({number for one in bases for number in one.taken})
    for some in in_lists(numbers):
        rows = connection.execute(
            select(
                writes.c.number,
                writes.c.checkpoint_ns,
                writes.c.checkpoint_id,
                writes.c.seq,
                func.length(writes.c.data),
            ).where(writes.c.number.in_(some))
        )
        for number, checkpoint_ns, checkpoint_id, seq, size in rows:
            sizes[number] = size or 0
            if size is None:
                evicted.append((number, (checkpoint_ns, checkpoint_id), seq))
    return sizes, _holding(connection, log, evicted) if evicted else {}


def _holding(
    connection: Connection, log: Log, evicted: Sequence[tuple[int, Place, int]]
) -> dict[int, bytes]:
    """Return the segment that holds each evicted write, by the write's number.

    A write lies where its checkpoint says that its rows lie up to a change, and above that
    in the segment whose range has its own change.
    """
    elsewhere = _held(connection, log.row.number, {place for _, place, _ in evicted})
    own = connection.execute(
        select(members.c.sha256, members.c.first_seq, members.c.last_seq).where(
            members.c.thread == log.row.number, members.c.last_seq.is_not(None)
        )
    ).all()
    found: dict[int, bytes] = {}
    for number, place, seq in evicted:
        held = elsewhere.get(place)
        if held is not None and seq <= held.seq:
            found[number] = held.segments[0]
            continue
        segment = next((sha256 for sha256, first, last in own if first <= seq <= last), None)
        if segment is not None:
            found[number] = segment
    return found


def _held(connection: Connection, thread: int, places: Collection[Place]) -> dict[Place, Held]:
    """Return what holds checkpoints besides the segments whose range has their changes."""
    found: dict[Place, Held] = {}
    for some in in_lists(sorted({checkpoint_id for _, checkpoint_id in places})):
        rows = connection.execute(
            select(
                checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id, checkpoints.c.held
            ).where(
                checkpoints.c.thread == thread,
                checkpoints.c.checkpoint_id.in_(some),
                checkpoints.c.held.is_not(None),
            )
        )
        found.update(((row[0], row[1]), decode_held(row[2])) for row in rows)
    return found
