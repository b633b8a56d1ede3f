"""Reads the steps of checkpoints: what ran, what comes next, questions, failures and tokens.

A save stores nothing of this. A read derives the steps from the states, from the pending writes,
and from a few small values. Values that the journal does not have say nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    SENDS,
    barriers,
    branched_nodes,
    changed_channels,
    has_run_sends,
    listed,
    newest_version,
    node_of,
    pulled_nodes,
)
from ...core.threads import ERROR, INTERRUPT, RESUME, WaitingTasks
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

_Place = tuple[int, str, str]
_Sends = Mapping[_Place, Mapping[int, str]]
"""Nodes of the `Send`s of checkpoints, by position."""

_SPECIAL = (ERROR, INTERRUPT, RESUME)
_SENDS_BYTES = 1 * MIB
"""Most bytes of a value that is searched for the names of nodes."""

_MESSAGE_BYTES = 64 * 1024
"""Most bytes of a write that is searched for tokens: a task writes few messages at once."""

_OF_LISTED = (of_namespace(writes), writes.c.checkpoint_id.in_(LISTED))
_STORED = [writes.c[name] for name in StoredWrite._fields]
_WITHOUT_DATA = Statement(
    select(writes.c.checkpoint_id, writes.c.mac, *_STORED[:-1]).where(*_OF_LISTED)
)
_SMALL = Statement(
    select(writes.c.checkpoint_id, writes.c.mac, *_STORED).where(
        *_OF_LISTED, writes.c.size <= bindparam("most_bytes")
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


def read_steps(
    connection: Connection, rows: Sequence[Row], states: Sequence[CheckpointState]
) -> list[Step | Refusal]:
    """Return the steps of checkpoints; `states` are the states of the rows.

    The refusal `JOURNAL_DAMAGED` stands for a checkpoint with a write that was changed behind the
    server's back.
    """
    states_by_place = {row.place: state for row, state in zip(rows, states, strict=True)}
    newest = {place: newest_version(state) for place, state in states_by_place.items()}
    parents = {
        _parent(row)
        for row in rows
        if row.parent_id and has_run_sends(states_by_place[row.place], newest[row.place])
    }
    families = {row.thread: row.family for row in rows}
    around = states_by_place | _read_states(connection, parents - states_by_place.keys())
    values = _read_values(connection, families, around)
    sends = {place: _sends_of(state, values) for place, state in around.items()}
    tasks = _read_tasks(connection, rows, sends)
    tokens = _read_tokens(connection, rows)
    steps: list[Step | Refusal] = []
    for row in rows:
        state, version, found = states_by_place[row.place], newest[row.place], tasks[row.place]
        if isinstance(found, Refusal):
            steps.append(found)
            continue
        ran: set[str] = set()
        if parse_object(row.metadata, "metadata_json").get("source") == "loop":
            ran = pulled_nodes(state, version)
            if has_run_sends(state, version):
                ran |= {*sends.get(_parent(row), {}).values()}
        upcoming = branched_nodes(state) | {*sends[row.place].values()}
        upcoming |= {
            node
            for starts, node, channel in barriers(state)
            if _is_complete(starts, values.get(channel.digest))
        }
        steps.append(
            Step(
                nodes=listed(ran),
                changed_channels=listed(changed_channels(state, version)),
                next_nodes=listed(upcoming),
                questions=tuple(found.questions[:MAX_TASKS]),
                failures=tuple(found.failures[:MAX_TASKS]),
                tokens=tokens.get(_parent(row)),
            )
        )
    return steps


@dataclass(slots=True)
class _Tasks:
    """Questions and failures of the tasks that started at a checkpoint."""

    questions: list[Question] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def _parent(row: Row) -> _Place:
    return row.thread, row.checkpoint_ns, row.parent_id


def _read_states(connection: Connection, places: Iterable[_Place]) -> dict[_Place, CheckpointState]:
    """Return the states of checkpoints; a missing or damaged checkpoint is left out."""
    binder = binder_of(connection)
    rows = (Row(*columns) for _, columns in run_places(connection, _PARENTS, places))
    return {
        row.place: CheckpointState.FromString(row.state) for row in rows if row.is_bound(binder)
    }


def _read_values(
    connection: Connection, families: Mapping[int, int], states: Mapping[_Place, CheckpointState]
) -> dict[bytes, Value]:
    """Return the values of states that name nodes, by digest."""
    digests: dict[int, set[bytes]] = defaultdict(set)
    for place, state in states.items():
        named = [channel for channel in state.channels if channel.name == SENDS]
        named += [channel for _, _, channel in barriers(state)]
        digests[families[place[0]]] |= {
            channel.digest
            for channel in named
            if channel.digest and channel.size_bytes <= _SENDS_BYTES
        }
    return {
        digest: value
        for family, listed_digests in digests.items()
        for digest, value in contents.read(connection, family, listed_digests).items()
        if not isinstance(value, AbsentValue)
    }


def _sends_of(state: CheckpointState, values: Mapping[bytes, Value]) -> Mapping[int, str]:
    for channel in state.channels:
        if channel.name == SENDS and (value := values.get(channel.digest)) is not None:
            return step_facts.send_nodes(value)
    return {}


def _is_complete(starts: str, value: Value | None) -> bool:
    """Return whether all nodes that a barrier waits for have ended; names may contain a "+"."""
    return value is not None and len("+".join(step_facts.names_in(value))) == len(starts)


def _read_tasks(
    connection: Connection, rows: Sequence[Row], sends: _Sends
) -> dict[_Place, _Tasks | Refusal]:
    """Return questions and failures by checkpoint, or the refusal of a damaged write."""
    binder = binder_of(connection)
    names = {row.place: row.thread_id for row in rows}
    written: dict[_Place, list[StoredWrite]] = defaultdict(list)
    tasks: dict[_Place, _Tasks | Refusal] = {place: _Tasks() for place in names}
    for place, (mac, *columns) in run_places(connection, _WITHOUT_DATA, names):
        write = StoredWrite._make([*columns, None])
        try:
            write.check(binder, names[place], place[0], place[1:], mac)
        except Refusal as refusal:
            tasks[place] = refusal
        written[place].append(write)
    for place, group in written.items():
        found = tasks[place]
        told = [write for write in group if write.channel in (ERROR, INTERRUPT)]
        if told and isinstance(found, _Tasks):
            _fill_tasks(connection, found, place, group, told, sends.get(place, {}))
    return tasks


def _fill_tasks(
    connection: Connection,
    tasks: _Tasks,
    place: _Place,
    group: Sequence[StoredWrite],
    told: Sequence[StoredWrite],
    sends: Mapping[int, str],
) -> None:
    """Add the questions and failures in the writes `told` of all writes of a checkpoint."""
    waiting = WaitingTasks()
    for write in group:
        waiting.add(write.task_id, write.channel, write.seq)
    digests = [write.digest for write in told if write.size <= step_facts.MAX_READ]
    rows = _DATA.run_listed(connection, digests, **parameters_of(*place)) if digests else ()
    data_by_slot = {(task_id, idx): data for task_id, idx, data in rows}
    for write in sorted(told, key=attrgetter("task_path", "task_id", "idx")):
        value = _value(place[0], write, data_by_slot.get((write.task_id, write.idx)))
        node = node_of(write.task_path, sends)
        if write.channel == ERROR:
            tasks.failures.append(Failure(node, *step_facts.failure(value) if value else ("", "")))
            continue
        answered = not waiting.waits(write.task_id)
        asked = step_facts.questions(value) if value else [("", "")]
        tasks.questions += [Question(asked_id, node, text, answered) for asked_id, text in asked]


def _read_tokens(connection: Connection, rows: Sequence[Row]) -> dict[_Place, TokenUsage]:
    """Return the tokens that the tasks of the rows' parents report, by parent."""
    binder = binder_of(connection)
    names = {_parent(row): row.thread_id for row in rows if row.parent_id}
    sums: dict[_Place, TokenUsage] = {}
    for place, (mac, *columns) in run_places(connection, _SMALL, names, most_bytes=_MESSAGE_BYTES):
        write = StoredWrite(*columns)
        if write.channel in _SPECIAL:
            continue
        value = _value(place[0], write, write.data)
        used = step_facts.tokens(value) if value else None
        if used is not None and write.is_bound(binder, place[0], place[1:], mac):
            before = sums.get(place, TokenUsage(0, 0))
            sums[place] = TokenUsage(
                before.input_tokens + used.input_tokens, before.output_tokens + used.output_tokens
            )
    return sums


def _value(thread: int, write: StoredWrite, data: bytes | None) -> Value | None:
    """Return the value of a write; `None` if the journal does not have the value."""
    value = contents.stored_value(
        thread, write.digest, write.type, write.size, write.encoding, data
    )
    return None if isinstance(value, AbsentValue) else value
