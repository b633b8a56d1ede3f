"""What forks, rollbacks, adoptions and snapshots make, in the model.

Which checkpoints were taken along the journal's rows say, and what they hold the model.
What must have been taken along is worked out here once more, in the plainest way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tests.simulation.model import NO_LINEAGE, Model, Place, Stored, Thread
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.domain import rollback
from tuskpoint_server.domain.lineage import Descent, Snapshot
from tuskpoint_server.domain.model import CheckpointKey, Lineage
from tuskpoint_server.domain.snapshots import inside, outside, thread_of

_T = TypeVar("_T")
DELTA = "log"
INNER = "inner"
"""The one namespace of a subgraph; it keeps a state of its own in the whole thread."""


@dataclass(frozen=True)
class Row:
    """What the journal tells of a checkpoint that was made."""

    hidden: bool
    revision: int


Rows = Mapping[Place, Row]


class Wrong(Exception):
    """The journal made something else than was asked for."""


def taken(one: Stored, row: Row, now_us: int, lineage: Lineage = NO_LINEAGE) -> Stored:
    """Return a copy of a checkpoint."""
    return replace(
        one,
        channels=one.channels,
        writes=dict(one.writes),
        label="" if row.hidden else one.label,
        hidden=row.hidden,
        revision=row.revision,
        created_us=now_us,
        lineage=lineage,
    )


# --- what belongs together -----------------------------------------------------------------


def stands_at(thread: Thread, place: Place) -> set[Place]:
    """Return a checkpoint and where the subgraphs tied to it stand."""
    ns, checkpoint_id = place
    if ns:
        return {place}
    runs = _runs(thread, with_hidden=False)
    found = {max((one for one, root in runs if root == checkpoint_id), default="")}
    roots = (checkpoint_id, thread.stored[place].parent_id)
    found |= {_left_at(thread, root, runs) for root in roots if root}
    return {place, *((INNER, one) for one in found - {""})}


def _runs(thread: Thread, *, with_hidden: bool) -> list[tuple[str, str]]:
    """Return the checkpoints of the subgraph with what they ran under, newest first."""
    return sorted(
        (
            (checkpoint_id, root)
            for (ns, checkpoint_id), one in thread.stored.items()
            if ns and (with_hidden or not one.hidden) and (root := _root(one))
        ),
        reverse=True,
    )


def _root(one: Stored) -> str:
    return str(json.loads(one.metadata).get("parents", {}).get("", ""))


def _left_at(thread: Thread, root_id: str, runs: Iterable[tuple[str, str]]) -> str:
    """Return where the last run on the way to a root checkpoint left the subgraph."""
    path: set[str] = set()
    at = root_id
    while ("", at) in thread.stored:
        path.add(at)
        at = thread.stored["", at].parent_id
    for checkpoint_id, root in runs:
        if root in path or (root <= at and ("", root) not in thread.stored):
            return checkpoint_id
    return ""


def goes_on_alike(
    model: Model, origin: CheckpointKey, key: CheckpointKey, threads: Mapping[str, Thread]
) -> bool:
    """Tell whether a copy's delta channel is rebuilt as that of its origin, if it has one."""
    one = model.threads[key.thread_id].stored[key.checkpoint_ns, key.checkpoint_id]
    stored = {name for name, _, value in one.channels if value is not None}
    state = checkpoint_pb2.CheckpointState.FromString(one.frame)
    if DELTA in stored or DELTA not in state.delta_channels:
        return True
    before = Model()
    before.threads = dict(threads)
    return before.delta_history(origin, DELTA) == model.delta_history(key, DELTA)


def _all_alike(
    model: Model,
    threads: Mapping[str, Thread],
    pairs: Iterable[tuple[CheckpointKey, CheckpointKey]],
) -> None:
    for origin, key in pairs:
        if not goes_on_alike(model, origin, key, threads):
            raise Wrong(f"{key} lacks what {origin} is rebuilt from")


def _expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Wrong(f"{what}: {found}, not {expected}")


# --- forks and adoptions -------------------------------------------------------------------


def fork(model: Model, key: CheckpointKey, target: str, rows: Rows, now_us: int) -> None:
    """Make a thread that begins with a checkpoint.

    Raises:
        Wrong: The rows are not what is needed to go on.
    """
    origin = model.threads[key.thread_id]
    _begin_with(model, origin, key, target, rows, now_us, Lineage(forked_from=str(key)))
    model.threads[target].agent_id = origin.agent_id


def adopt(
    model: Model, origin: Thread, key: CheckpointKey, target: str, rows: Rows, now_us: int
) -> None:
    """Make a thread of what a thread held when its closure was read.

    Raises:
        Wrong: The rows are not what is needed to go on.
    """
    _begin_with(model, origin, key, target, rows, now_us, Lineage(adopted_from=str(key)))
    thread = model.threads[target]
    for place, one in thread.stored.items():
        if one.hidden:
            thread.stored[place] = _trimmed(one)


def _begin_with(
    model: Model,
    origin: Thread,
    key: CheckpointKey,
    target: str,
    rows: Rows,
    now_us: int,
    lineage: Lineage,
) -> None:
    first = (key.checkpoint_ns, key.checkpoint_id)
    visible = {place for place, row in rows.items() if not row.hidden}
    _expect(f"{target} begins with", visible, stands_at(origin, first))
    thread = model.begin(target, "")
    for place, row in rows.items():
        descent = lineage if place == first else NO_LINEAGE
        thread.stored[place] = taken(origin.stored[place], row, now_us, descent)
    pairs = ((CheckpointKey(key.thread_id, *one), CheckpointKey(target, *one)) for one in visible)
    _all_alike(model, {key.thread_id: origin}, pairs)


def _trimmed(one: Stored) -> Stored:
    """Return of an ancestor what the delta channel is rebuilt from."""
    return replace(
        one,
        channels=tuple(channel for channel in one.channels if channel[0] == DELTA),
        writes={slot: write for slot, write in one.writes.items() if write.channel == DELTA},
    )


# --- rollbacks -----------------------------------------------------------------------------


def roll_back(
    model: Model, earlier: CheckpointKey, target: Stored, saved: str, rows: Rows, now_us: int
) -> None:
    """Append a checkpoint with the state of an earlier one, and take its subgraph along.

    Args:
        model: The model.
        earlier: What is rolled back to.
        target: What it holds.
        saved: ID of the checkpoint that was made.
        rows: What the thread has that the model does not.
        now_us: Time of the change.

    Raises:
        Wrong: The rows are not what was to be made.
    """
    thread = model.threads[earlier.thread_id]
    inner = sorted(place[1] for place in thread.visible() if place[0] == INNER)
    left = latest = inner[-1] if inner else ""
    if not earlier.checkpoint_ns and _runs(thread, with_hidden=False):
        runs = _runs(thread, with_hidden=target.hidden)
        left = _left_at(thread, target.parent_id, runs) if target.parent_id else ""
    follows = [place for place in rows if place != (earlier.checkpoint_ns, saved)]
    _expect(f"a rollback to {earlier} takes along", len(follows), int(left != latest))
    for place in follows:
        one = _follower(thread, earlier.thread_id, left, latest, saved, now_us)
        thread.stored[place] = replace(one, revision=rows[place].revision)
    made = _again(target, str(earlier), earlier.checkpoint_ns, "", now_us)
    thread.stored[earlier.checkpoint_ns, saved] = made


def _follower(
    thread: Thread, name: str, left: str, latest: str, root_id: str, now_us: int
) -> Stored:
    if left:
        source = thread.stored[INNER, left]
        return _again(source, f"{name}:{left}", INNER, root_id, now_us)
    nothing = rollback.frame_of_nothing(thread.stored[INNER, latest].frame, now_us)
    metadata = rollback.metadata_of_nothing(root_id).raw
    summary = "Rolled back to before its first run."
    return Stored("", nothing, (), metadata, "", "", summary, now_us)


def _again(source: Stored, reference: str, ns: str, root_id: str, now_us: int) -> Stored:
    return Stored(
        parent_id=source.parent_id,
        frame=rollback.frame_of(source.frame, now_us),
        channels=source.channels,
        metadata=rollback.metadata_of(source.metadata, ns, root_id).raw,
        run_id="",
        label="",
        summary=rollback.summary_of(reference, source.summary),
        created_us=now_us,
        lineage=Lineage(rolled_back_from=reference),
    )


# --- snapshots -----------------------------------------------------------------------------


def capture(model: Model, snapshot: Snapshot, description: Stored, rows: Rows) -> None:
    """Keep what a snapshot captured, in a thread of its own.

    Raises:
        Wrong: It is not what its threads stand at.
    """
    thread = model.threads[thread_of(snapshot.snapshot_id)] = Thread()
    agents = tuple(model.threads[key.thread_id].agent_id for key in snapshot.members)
    model.snapshots[snapshot.snapshot_id] = (snapshot, agents)
    thread.stored["", snapshot.snapshot_id] = description
    pairs = []
    for number, key in enumerate(snapshot.members):
        origin = model.threads[key.thread_id]
        head = max(one for ns, one in origin.visible() if not ns)
        _expect(f"the head of {key.thread_id}", key.checkpoint_id, head)
        of_member = _of_member(rows, number)
        visible = {place for place, row in of_member.items() if not row.hidden}
        _expect(f"captured of {key.thread_id}", visible, stands_at(origin, ("", head)))
        for (ns, one), row in of_member.items():
            at = (inside(number, ns), one)
            thread.stored[at] = taken(origin.stored[ns, one], row, snapshot.created_us)
            if not row.hidden:
                kept = CheckpointKey(thread_of(snapshot.snapshot_id), *at)
                pairs.append((CheckpointKey(key.thread_id, ns, one), kept))
    _all_alike(model, model.threads, pairs)


def restore(
    model: Model, snapshot: Snapshot, number: int, target: str, rows: Rows, now_us: int
) -> None:
    """Make a thread of a member.

    Raises:
        Wrong: It lacks something of what was captured.
    """
    member = snapshot.members[number]
    captured = model.threads[thread_of(snapshot.snapshot_id)]
    whole = _of_member(captured.stored, number)
    hidden = {place: one.hidden for place, one in whole.items()}
    _expect(f"restored {target}", {place: row.hidden for place, row in rows.items()}, hidden)
    thread = model.begin(target, model.snapshots[snapshot.snapshot_id][1][number])
    first = ("", member.checkpoint_id)
    for place, row in rows.items():
        lineage = Lineage(forked_from=str(member)) if place == first else NO_LINEAGE
        thread.stored[place] = taken(whole[place], row, now_us, lineage)


def restore_back(
    model: Model, snapshot: Snapshot, number: int, saved: str, rows: Rows, now_us: int
) -> None:
    """Roll a member's own thread back to what was captured.

    Raises:
        Wrong: The rows are not what was to be made.
    """
    member = snapshot.members[number]
    captured = model.threads[thread_of(snapshot.snapshot_id)]
    thread = model.threads[member.thread_id]
    whole = _of_member(captured.stored, number)
    lost = {place for place in whole if place not in thread.stored}
    came = {place for place, row in rows.items() if row.hidden}
    _expect(f"taken back into {member.thread_id}", came, lost)
    for place in lost:
        thread.early.pop(place, None)
        thread.stored[place] = taken(whole[place], rows[place], now_us)
    target = replace(
        whole["", member.checkpoint_id],
        hidden=thread.stored["", member.checkpoint_id].hidden,
    )
    fresh = {place: row for place, row in rows.items() if not row.hidden}
    roll_back(model, member, target, saved, fresh, now_us)


def _of_member(places: Mapping[Place, _T], number: int) -> dict[Place, _T]:
    """Return what is kept of a member, by its place in the member's thread."""
    found: dict[Place, _T] = {}
    for (ns, checkpoint_id), one in places.items():
        if ns and outside(ns)[0] == number:
            found[outside(ns)[1], checkpoint_id] = one
    return found


# --- lineage -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """As `domain.model.LineageStep`, without its time."""

    descent: Descent
    origin: CheckpointKey
    key: CheckpointKey


def steps_of(model: Model, name: str) -> list[Step]:
    """Return the steps that end in a thread, by ID and namespace."""
    found = []
    thread = model.threads.get(name, Thread())
    for (ns, checkpoint_id), one in sorted(thread.visible().items(), key=lambda x: x[0][::-1]):
        key = CheckpointKey(name, ns, checkpoint_id)
        told = one.lineage
        for descent, reference in (
            (Descent.FORK, told.forked_from),
            (Descent.ADOPTION, told.adopted_from),
            (Descent.ROLLBACK, told.rolled_back_from),
        ):
            if reference:
                origin, _, origin_id = reference.rpartition(":")
                inside_one = descent is Descent.ROLLBACK
                found.append(
                    Step(descent, CheckpointKey(name if inside_one else origin, ns, origin_id), key)
                )
    return found


def ancestors(model: Model, name: str) -> list[Step]:
    """Return the steps that lead to a thread, oldest first."""
    found: list[Step] = []
    seen = {name}
    while came := [one for one in steps_of(model, name) if one.descent is not Descent.ROLLBACK]:
        found.insert(0, came[0])
        name = came[0].origin.thread_id
        if name in seen:
            break
        seen.add(name)
    return found


def descendants(model: Model, name: str) -> set[Step]:
    """Return the steps that begin in a thread or below it."""
    found: set[Step] = set()
    every = [one for other in model.of_users() for one in steps_of(model, other)]
    reached, before = {name}, 0
    while before != len(reached):
        before = len(reached)
        found = {one for one in every if one.origin.thread_id in reached}
        reached |= {one.key.thread_id for one in found}
    return found
