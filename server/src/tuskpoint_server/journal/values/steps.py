"""Reads the steps of checkpoints: what ran, what comes next, questions, failures and tokens.

A save stores nothing of this. A read derives the steps from states, from pending writes, and from a
few small values. Values that the journal does not have say nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from sqlalchemy import Connection, bindparam, select

from tuskpoint.v1.checkpoint_pb2 import CheckpointState

from ...core.errors import Refusal
from ...core.json_view import step_facts
from ...core.limits import MIB
from ...core.model import AbsentValue, Failure, Question, Step, TokenUsage, Value
from ...core.state import parse_object
from ...core.steps import (
    MAX_TASKS,
    NOTHING,
    Trigger,
    Versions,
    listed,
    node_of,
    started_node,
)
from ...core.threads import ERROR, INTERRUPT, WaitingTasks
from ..database.binding import binder_of
from ..database.pending_writes import StoredWrite
from ..sql.schema import checkpoints, threads, writes
from ..sql.statements import (
    LISTED,
    Statement,
    of_checkpoint,
    of_namespace,
    parameters_of,
    run_places,
)
from . import contents
from .segment_refs import ROW, Row

Place = tuple[int, str, str]
"""Number of a thread, namespace and ID of a checkpoint."""

_SENDS_BYTES = 1 * MIB
"""Most bytes of a value that is searched for the names of nodes."""

_LEAST_REPORT = 24
"""Bytes that a value with a report of tokens has at least."""

_SEARCHED_BYTES = 4 * MIB
"""Most bytes of the writes of a step that are searched for tokens, and read at once."""

_OF_LISTED = (of_namespace(writes), writes.c.checkpoint_id.in_(LISTED))
_STORED = [writes.c[name] for name in StoredWrite._fields]
_WITHOUT_DATA = Statement(
    select(writes.c.checkpoint_id, writes.c.mac, *_STORED[:-1]).where(*_OF_LISTED)
)
_SEARCHED = Statement(
    select(writes.c.checkpoint_id, writes.c.task_id, writes.c.idx, writes.c.data).where(
        *_OF_LISTED, writes.c.size >= _LEAST_REPORT, writes.c.size <= bindparam("most_bytes")
    )
)
_DATA = Statement(
    select(writes.c.task_id, writes.c.idx, writes.c.data).where(
        of_checkpoint(writes), writes.c.digest.in_(LISTED)
    )
)
_PARENTS = Statement(
    select(checkpoints.c.checkpoint_id, *ROW)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(of_namespace(checkpoints), checkpoints.c.checkpoint_id.in_(LISTED))
)


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The pending writes of checkpoints by place, without data.

    `refused`: refusals of the checkpoints with a write that was changed behind the server's back.
    """

    by_place: Mapping[Place, Sequence[StoredWrite]]
    refused: Mapping[Place, Refusal]


def read_written(connection: Connection, rows: Sequence[Row], *, parents: bool) -> WrittenRows:
    """Return the writes of checkpoints; with `parents`, also the writes of their parents."""
    binder = binder_of(connection)
    names = {_parent(row): row.thread_id for row in rows if parents and row.parent_id}
    names |= {row.place: row.thread_id for row in rows}
    written: dict[Place, list[StoredWrite]] = defaultdict(list)
    refused: dict[Place, Refusal] = {}
    for place, (mac, *columns) in run_places(connection, _WITHOUT_DATA, names):
        write = StoredWrite._make([*columns, None])
        try:
            write.check(binder, names[place], place[0], place[1:], mac)
        except Refusal as refusal:
            refused[place] = refusal
        written[place].append(write)
    return WrittenRows(written, refused)


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
        written: The writes of the rows and of their parents.
    """
    own = {row.place: Versions(state) for row, state in zip(rows, states, strict=True)}
    parents = {_parent(row) for row in rows if row.parent_id}
    around = own | _read_states(connection, parents - own.keys())
    starts = _read_starts(connection, rows, around)
    tasks = _read_tasks(connection, own, written, starts)
    looped = {row.place for row in rows if _is_looped(row)}
    searched = {_parent(row) for row in rows if row.place in looped}
    tokens = _read_tokens(connection, written, searched)
    steps: list[Step] = []
    for row in rows:
        place, parent = row.place, _parent(row)
        is_copy = row.forked_from or row.rolled_back_from or row.adopted_from
        before = around.get(parent) if row.parent_id or is_copy else NOTHING
        ran: set[str] = set()
        if place in looped:
            ran = own[place].ran_since(before)
            ran.update(starts[parent].sends.values() if parent in starts else ())
        begun = {started_node(write.task_path) for write in written.by_place.get(place, ())}
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
    written = read_written(connection, rows, parents=False)
    own = {row.place: Versions(state) for row, state in zip(rows, states, strict=True)}
    sound = {place: state for place, state in own.items() if place not in written.refused}
    return _read_tasks(connection, sound, written, _read_starts(connection, rows, sound))


def _parent(row: Row) -> Place:
    return row.thread, row.checkpoint_ns, row.parent_id


def _is_looped(row: Row) -> bool:
    """Return whether a step of a graph led to a checkpoint, not an input or an update."""
    return not row.rolled_back_from and _source(row) == "loop"


def _source(row: Row) -> object:
    return parse_object(row.metadata, "metadata_json").get("source")


def _read_states(connection: Connection, places: Iterable[Place]) -> dict[Place, Versions]:
    """Return the states of checkpoints; a missing or damaged checkpoint is left out."""
    binder = binder_of(connection)
    rows = (Row(*columns) for _, columns in run_places(connection, _PARENTS, places))
    return {
        row.place: Versions(CheckpointState.FromString(row.state))
        for row in rows
        if row.is_bound(binder)
    }


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
            if not _is_empty(edge) and edge.channel.size_bytes <= step_facts.MAX_READ:
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
        sent = step_facts.send_nodes(value) if value is not None else {}
        nodes = {
            edge.node
            for edge in state.triggers
            if _is_empty(edge)
            or step_facts.is_complete(values.get(edge.channel.digest), edge.awaited)
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
    answers = {
        place: _DATA.run_listed(
            connection,
            [write.digest for write in group if write.size <= step_facts.MAX_READ],
            **parameters_of(*place),
        )
        for place, group in told.items()
    }
    for place, answer in answers.items():
        data = {(task_id, idx): data for task_id, idx, data in answer}
        tasks[place] = _tasks_of(place, told[place], data, waiting[place], starts[place])
    return tasks


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
    data: Mapping[tuple[str, int], bytes | None],
    waiting: WaitingTasks,
    starts: _Starts,
) -> Tasks:
    questions: list[Question] = []
    failures: list[Failure] = []
    for write in told:
        value = _value(place[0], write, data.get((write.task_id, write.idx)))
        node = node_of(write.task_path, starts.sends, starts.nodes)
        if write.channel == ERROR:
            failures.append(Failure(node, *(step_facts.failure(value) if value else ("", ""))))
        else:
            answered = not waiting.waits(write.task_id)
            asked = step_facts.questions(value) if value else [("", "")]
            questions += [Question(asked_id, node, text, answered) for asked_id, text in asked]
    return Tasks(tuple(questions[:MAX_TASKS]), tuple(failures))


def _read_tokens(
    connection: Connection, written: WrittenRows, places: Iterable[Place]
) -> dict[Place, TokenUsage]:
    """Return the tokens that the writes of checkpoints report, by place."""
    tokens: dict[Place, TokenUsage] = {}
    for chunk in _searched(written, places):
        limit = step_facts.MAX_READ
        for place, columns in run_places(connection, _SEARCHED, chunk, most_bytes=limit):
            task_id, idx, data = columns
            write = chunk[place].get((task_id, idx))
            value = _value(place[0], write, data) if write is not None else None
            used = step_facts.tokens(value) if value is not None else None
            if used is not None:
                tokens[place] = used + tokens.get(place, TokenUsage(0, 0))
    return tokens


_Slots = dict[tuple[str, int], StoredWrite]


def _searched(written: WrittenRows, places: Iterable[Place]) -> Iterator[dict[Place, _Slots]]:
    """Yield the writes that may report tokens, as many at once as memory may hold."""
    chunk: dict[Place, _Slots] = {}
    chunk_bytes = 0
    for place in places:
        group = [
            write
            for write in written.by_place.get(place, ())
            if _LEAST_REPORT <= write.size <= step_facts.MAX_READ
        ]
        size = sum(write.size for write in group)
        slots = {(write.task_id, write.idx): write for write in group if _may_report(write)}
        if place in written.refused or not slots or size > _SEARCHED_BYTES:
            continue
        if chunk_bytes + size > _SEARCHED_BYTES:
            yield chunk
            chunk, chunk_bytes = {}, 0
        chunk[place] = slots
        chunk_bytes += size
    if chunk:
        yield chunk


def _may_report(write: StoredWrite) -> bool:
    """Return whether a write has what a task returned, not what LangGraph keeps of it again."""
    return not write.channel.startswith("__") or write.channel in ("__root__", "__return__")


def _value(thread: int, write: StoredWrite, data: bytes | None) -> Value | None:
    """Return the value of a write; `None` if the journal does not have the value."""
    value = contents.stored_value(
        thread, write.digest, write.type, write.size, write.encoding, data
    )
    return None if isinstance(value, AbsentValue) else value
