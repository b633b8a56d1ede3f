"""Reads the steps of checkpoints: what ran, what comes next, questions, failures and tokens.

A save stores nothing of this. A read derives the steps from states, from pending writes, and from a
few small values. Values that the journal does not have say nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from sqlalchemy import Connection, func, select

from tuskpoint.v1.checkpoint_pb2 import CheckpointState

from ...core.limits import KIB, MIB
from ...core.model import AbsentValue, Failure, Question, Step, TokenUsage, Value
from ...core.state import parse_object
from ...core.steps import facts
from ...core.steps.versions import (
    MAX_TASKS,
    NOTHING,
    Trigger,
    Versions,
    listed,
    node_of,
    started_node,
)
from ...core.threads import ERROR, INTERRUPT, WaitingTasks
from ...core.values import Encoding
from ..database.binding import binder_of
from ..database.pending_writes import StoredWrite
from ..sql.schema import checkpoints, threads
from ..sql.statements import LISTED, Statement, of_namespace, parameters_of, run_places
from . import contents
from .segment_refs import Row
from .stored_writes import DATA, FEW_BYTES, WHOLE, Place, WrittenRows, read_written

_PLAIN = int(Encoding.PLAIN)  # comparing with the enum member takes four times as long

_SENDS_BYTES = 1 * MIB
"""Most bytes of a value that is searched for the names of nodes."""

_TRIGGER_BYTES = 8 * KIB
"""Most bytes of the value of a channel that starts a node: it has names of nodes."""

_STATE_BYTES = 256 * KIB
"""Most bytes of the state of a parent: a page has a parent for each of its checkpoints."""

_PARENTS = Statement(
    select(checkpoints.c.checkpoint_id, *WHOLE)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(
        of_namespace(checkpoints),
        checkpoints.c.checkpoint_id.in_(LISTED),
        func.length(checkpoints.c.state) <= _STATE_BYTES,
    )
)


@dataclass(slots=True)
class Tasks:
    """Questions and failures of the tasks that started at a checkpoint."""

    questions: tuple[Question, ...] = ()
    failures: tuple[Failure, ...] = ()


def read_steps(
    connection: Connection,
    rows: Sequence[Row],
    states: Sequence[CheckpointState],
    written: WrittenRows,
) -> list[Step]:
    """Return the steps of checkpoints.

    Args:
        connection: A connection in a transaction.
        rows: The checkpoints.
        states: The states of the rows.
        written: The writes of the rows.
    """
    own = {row.place: Versions(state) for row, state in zip(rows, states, strict=True)}
    looped = {row.place for row in rows if _is_looped(row)}
    others = _read_parents(connection, {_parent(row) for row in rows if row.parent_id} - own.keys())
    parents = {row.place: Versions(CheckpointState.FromString(row.state)) for row in others}
    parents |= {row.place: own[row.place] for row in rows if len(row.state) <= _STATE_BYTES}
    starts = _read_starts(connection, rows, own | parents)
    tasks = _read_tasks(connection, own, written, starts)
    tokens = {place: _tokens_of(place, written) for place in own}
    for chunk in _chunks(others):
        chunk_written = read_written(connection, chunk)
        tokens |= {row.place: _tokens_of(row.place, chunk_written) for row in chunk}
    steps: list[Step] = []
    for row in rows:
        place, parent = row.place, _parent(row)
        is_copy = row.forked_from or row.rolled_back_from or row.adopted_from
        before = parents.get(parent) if row.parent_id or is_copy else NOTHING
        ran: set[str] = set()
        if place in looped:
            ran = own[place].ran_since(before)
            ran.update(starts[parent].sends.values() if parent in parents else ())
        paths = {write.task_path for write in written.by_place.get(place, ())}
        begun = set(map(started_node, paths))
        steps.append(
            Step(
                nodes=listed(ran),
                changed_channels=listed(own[place].changed_since(before)),
                next_nodes=listed(starts[place].nodes | begun - {""}),
                questions=tasks[place].questions,
                failures=tasks[place].failures,
                tokens=tokens.get(parent) if place in looped else None,
            )
        )
    return steps


def read_tasks(
    connection: Connection, rows: Sequence[Row], states: Sequence[CheckpointState]
) -> dict[Place, Tasks]:
    """Return the questions and failures of checkpoints; a damaged checkpoint says nothing."""
    told: dict[Place, Tasks] = {}
    versions = {row.place: Versions(state) for row, state in zip(rows, states, strict=True)}
    for chunk in _chunks(rows):
        written = read_written(connection, chunk)
        own = {row.place: versions[row.place] for row in chunk if row.place not in written.refused}
        told |= _read_tasks(connection, own, written, _read_starts(connection, chunk, own))
    return told


def _parent(row: Row) -> Place:
    return row.thread, row.checkpoint_ns, row.parent_id


def _is_looped(row: Row) -> bool:
    """Return whether a step of a graph led to a checkpoint, not an input or an update."""
    return not row.rolled_back_from and _source(row) == "loop"


def _source(row: Row) -> object:
    return parse_object(row.metadata, "metadata_json").get("source")


def _read_parents(connection: Connection, places: Iterable[Place]) -> list[Row]:
    """Return the rows of checkpoints; a missing, large or damaged checkpoint is left out."""
    binder = binder_of(connection)
    rows = (Row(*columns) for _, columns in run_places(connection, _PARENTS, places))
    return [row for row in rows if row.is_bound(binder)]


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield checkpoints in turn, together with as many bytes of writes as are read at once."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        size += row.written_bytes or 0
        if chunk and size > FEW_BYTES:
            yield chunk
            chunk, size = [], row.written_bytes or 0
        chunk.append(row)
    if chunk:
        yield chunk


@dataclass(frozen=True, slots=True)
class _Starts:
    """The nodes that start at a checkpoint; `sends`: those that a `Send` starts, by position."""

    nodes: set[str]
    sends: Mapping[int, str]


def _read_starts(
    connection: Connection, rows: Sequence[Row], states: Mapping[Place, Versions]
) -> dict[Place, _Starts]:
    families = {row.thread: row.family for row in rows}
    digests: dict[int, set[bytes]] = defaultdict(set)
    for place, state in states.items():
        if state.sends is not None and state.sends.size_bytes <= _SENDS_BYTES:
            digests[families[place[0]]].add(state.sends.digest)
        for edge in state.triggers:
            if not _is_empty(edge) and edge.channel.size_bytes <= _TRIGGER_BYTES:
                digests[families[place[0]]].add(edge.channel.digest)
    values = {
        digest: value
        for family, hashes in digests.items()
        for digest, value in contents.read(connection, family, hashes).items()
        if not isinstance(value, AbsentValue)
    }
    starts: dict[Place, _Starts] = {}
    for place, state in states.items():
        value = values.get(state.sends.digest) if state.sends is not None else None
        sent = facts.send_nodes(value) if value is not None else {}
        nodes = {
            edge.node
            for edge in state.triggers
            if _is_empty(edge) or facts.is_complete(values.get(edge.channel.digest), edge.awaited)
        }
        starts[place] = _Starts(nodes | {*sent.values()}, sent)
    return starts


def _is_empty(edge: Trigger) -> bool:
    """Return whether a channel starts its node by having a value: `None` takes no bytes."""
    return not edge.awaited and not edge.channel.size_bytes


def _read_tasks(
    connection: Connection,
    places: Iterable[Place],
    written: WrittenRows,
    starts: Mapping[Place, _Starts],
) -> dict[Place, Tasks]:
    tasks = {place: Tasks() for place in places}
    waiting: dict[Place, WaitingTasks] = {}
    told: dict[Place, list[StoredWrite]] = {}
    for place in tasks:
        group = written.by_place.get(place, ())
        if any(write.channel in (ERROR, INTERRUPT) for write in group):
            waiting[place] = WaitingTasks()
            for write in group:
                waiting[place].add(write.task_id, write.channel, write.seq)
            told[place] = _first_told(group, waiting[place])
    for place, group in told.items():
        if place in written.without_data:
            group = _with_data(connection, place, group)
        tasks[place] = _tasks_of(place, group, waiting[place], starts[place])
    return tasks


def _with_data(
    connection: Connection, place: Place, group: Sequence[StoredWrite]
) -> list[StoredWrite]:
    """Return writes of a checkpoint with their data, except large data."""
    digests = [write.digest for write in group if write.size <= facts.MAX_READ]
    rows = DATA.run_listed(connection, digests, **parameters_of(*place))
    data = {(task_id, idx): stored for task_id, idx, stored in rows}
    return [write._replace(data=data.get((write.task_id, write.idx))) for write in group]


def _first_told(group: Sequence[StoredWrite], waiting: WaitingTasks) -> list[StoredWrite]:
    """Return the first failures and questions, in order; open questions come before others."""
    ordered = sorted(group, key=attrgetter("task_path", "task_id", "idx"))
    asked = [write for write in ordered if write.channel == INTERRUPT]
    asked.sort(key=lambda write: not waiting.waits(write.task_id))
    failed = [write for write in ordered if write.channel == ERROR]
    first = {*asked[:MAX_TASKS], *failed[:MAX_TASKS]}
    return [write for write in ordered if write in first]


def _tasks_of(
    place: Place,
    told: Sequence[StoredWrite],
    waiting: WaitingTasks,
    starts: _Starts,
) -> Tasks:
    questions: list[Question] = []
    failures: list[Failure] = []
    for write in told:
        value = _value(place[0], write)
        node = node_of(write.task_path, starts.sends, starts.nodes)
        if write.channel == ERROR:
            failures.append(Failure(node, *(facts.failure(value) if value else ("", ""))))
        else:
            answered = not waiting.waits(write.task_id)
            asked = facts.questions(value) if value else [("", "")]
            questions += [Question(asked_id, node, text, answered) for asked_id, text in asked]
    return Tasks(tuple(questions[:MAX_TASKS]), tuple(failures))


def _tokens_of(place: Place, written: WrittenRows) -> TokenUsage | None:
    """Return the tokens that the writes of a checkpoint report; `None` if none reports tokens."""
    if place in written.refused or place in written.without_data:
        return None
    total: TokenUsage | None = None
    for write in written.by_place.get(place, ()):
        value = _value(place[0], write) if _may_report(write) else None
        used = facts.tokens(value) if value is not None else None
        if used is not None:
            total = used + total if total is not None else used
    return total


def _may_report(write: StoredWrite) -> bool:
    """Return whether a write has what a task returned, not what LangGraph keeps of it again."""
    if write.channel.startswith("__") and write.channel not in ("__root__", "__return__"):
        return False
    # checked here, a value without tokens is not compared with its digest
    is_packed = write.encoding != _PLAIN
    return write.data is not None and (is_packed or facts.TOKENS_MARK in write.data)


def _value(thread: int, write: StoredWrite) -> Value | None:
    """Return the value of a write; `None` if the value is large, or not in the journal."""
    if write.size > facts.MAX_READ:
        return None
    value = contents.stored_value(
        thread, write.digest, write.type, write.size, write.encoding, write.data
    )
    return None if isinstance(value, AbsentValue) else value
