"""Loads checkpoints: rows, values and writes.

A load reads the rows first, then each kind of content for all rows at once, and each value once,
even if several rows name it. An evicted value is `EVICTED`, a damaged value a `DamagedValue`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection, bindparam, select

from tuskpoint.v1.checkpoint_pb2 import CheckpointState

from ...core.errors import Refusal, journal_damaged
from ...core.model import (
    EVICTED,
    NONE_HELD,
    AbsentValue,
    BlobLocation,
    Checkpoint,
    CheckpointEntry,
    CheckpointKey,
    HeldDigests,
    HeldValue,
    Lineage,
    Value,
    View,
    Write,
    write_order,
)
from ...core.state import RawCheckpoint, state_of
from ..database import put_back
from ..database.binding import Binder, binder_of
from ..database.pending_writes import StoredWrite
from ..database.thread_rows import THREAD, ThreadRow, find_thread, row_of
from ..sql.schema import checkpoints, threads
from ..sql.statements import (
    Answer,
    SqlRow,
    Statement,
    parameters_of,
    run_places,
)
from . import contents, segment_refs
from .segment_refs import Row
from .steps import read_steps
from .stored_writes import DATA, SEQS, WHOLE, WITHOUT_DATA, WRITES, read_written


class CheckpointTooLargeError(Exception):
    """A checkpoint has more content than the caller accepts."""


_OF_NAMESPACE = (
    select(*WHOLE)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == bindparam("of_thread_id"),
        checkpoints.c.checkpoint_ns == bindparam("of_ns"),
    )
)
_WIDTH = len(WHOLE)
_BY_KEY = Statement(
    _OF_NAMESPACE.add_columns(put_back.STORED_THROUGH).where(
        checkpoints.c.checkpoint_id == bindparam("of_id")
    )
)
_LATEST = Statement(
    _OF_NAMESPACE.add_columns(put_back.STORED_THROUGH, *THREAD)
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(1)
)


def load(
    connection: Connection,
    tenant: str,
    key: CheckpointKey,
    view: View,
    max_bytes: int | None = None,
    held: HeldDigests = NONE_HELD,
) -> Checkpoint | None:
    """Return a checkpoint, or `None`; an empty `checkpoint_id` means the latest checkpoint.

    Values in `held` are left out.

    Raises:
        CheckpointTooLargeError: The checkpoint has more than `max_bytes` of content; no content was
            read.
    """
    columns = _find(connection, tenant, key).fetchone()
    if not key.checkpoint_id:
        _check_head(connection, tenant, key, columns)
    if columns is None:
        # raises if the thread was put back to an earlier state, which may lack this checkpoint
        find_thread(connection, tenant, key.thread_id)
        return None
    binder = binder_of(connection)
    row = Row(*columns[:_WIDTH]).check(binder)
    if _is_older(binder, row, columns[_WIDTH]):
        why = put_back.problem(row.certified_seq, columns[_WIDTH])
        raise journal_damaged(row.thread_id, problem=why)
    if view is View.ENTRY:
        return Checkpoint(entries_of(connection, tenant, [row])[0])
    message = CheckpointState.FromString(row.state)
    if view is View.STEP:
        return stepped_checkpoints(connection, tenant, [row], [message])[0]
    if max_bytes is not None and size_of(row, message, held) > max_bytes:
        raise CheckpointTooLargeError
    return whole_checkpoints(connection, tenant, [row], [message], held=[held])[0]


def load_stored(
    connection: Connection,
    tenant: str,
    keys: Sequence[CheckpointKey],
    max_bytes: int,
    held: Sequence[HeldDigests] = (),
) -> list[RawCheckpoint | None]:
    """Return checkpoints as they are stored; `None` if `load` must be called instead.

    `None` stands for a checkpoint that does not exist, has more than `max_bytes` of content or
    evicted or damaged values, or whose row is damaged. An empty `checkpoint_id` means the latest
    checkpoint. `held`: for each key, the values that are left out.
    """
    held = held or [NONE_HELD] * len(keys)
    results: list[RawCheckpoint | None] = [None] * len(keys)
    small: list[tuple[int, Row, CheckpointState]] = []
    answers = [_find(connection, tenant, key) for key in keys]
    binder = binder_of(connection)
    for index, answer in enumerate(answers):
        if (columns := answer.fetchone()) is not None:
            row = Row(*columns[:_WIDTH])
            if not row.is_bound(binder) or _is_older(binder, row, columns[_WIDTH]):
                continue
            if not keys[index].checkpoint_id and not _is_head(binder, row, columns[_WIDTH + 1 :]):
                continue
            message = CheckpointState.FromString(row.state)
            if size_of(row, message, held[index]) <= max_bytes:
                small.append((index, row, message))
    rows, messages = [item[1] for item in small], [item[2] for item in small]
    small_held = [held[item[0]] for item in small]
    whole, _, refused = _stored_checkpoints(connection, tenant, rows, messages, small_held)
    for (index, row, _), stored in zip(small, whole, strict=True):
        values = (*stored.values.values(), *(write.value for write in stored.writes))
        if row.place not in refused and not any(isinstance(value, AbsentValue) for value in values):
            results[index] = stored
    return results


def _find(connection: Connection, tenant: str, key: CheckpointKey) -> Answer:
    """Send the query for a checkpoint's row, with the columns of a whole checkpoint."""
    parameters = {"of_tenant": tenant, "of_thread_id": key.thread_id, "of_ns": key.checkpoint_ns}
    if key.checkpoint_id:
        return _BY_KEY.run(connection, **parameters, of_id=key.checkpoint_id)
    return _LATEST.run(connection, **parameters)


def _is_older(binder: Binder, row: Row, stored_through: int | None) -> bool:
    """Return whether a row belongs to an earlier state, to which its thread was put back."""
    return binder.is_complete and put_back.is_older(row.certified_seq, stored_through)


def _is_head(binder: Binder, row: Row, thread: SqlRow) -> bool:
    """Return whether a row is the latest checkpoint that the thread's own row names."""
    if not binder.is_complete:
        return True
    thread_row = row_of(thread)
    if thread_row.binding is None or not binder.is_thread(thread_row.bound, thread_row.binding):
        return False
    return bool(row.checkpoint_ns) or thread_row.head_id == row.checkpoint_id


def _check_head(
    connection: Connection, tenant: str, key: CheckpointKey, columns: SqlRow | None
) -> None:
    """Check that the row is the latest of its namespace, or that the namespace is empty.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    binder = binder_of(connection)
    if columns is not None and _is_head(binder, Row(*columns[:_WIDTH]), columns[_WIDTH + 1 :]):
        return
    thread = find_thread(connection, tenant, key.thread_id)  # raises if the thread's row is damaged
    if binder.is_complete and thread is not None and thread.head_id and not key.checkpoint_ns:
        stored = Row(*columns[:_WIDTH]).checkpoint_id if columns is not None else ""
        raise _not_latest(key.thread_id, thread.head_id, stored)


def check_latest(
    connection: Connection, thread: ThreadRow, key: CheckpointKey, checkpoint_id: str
) -> None:
    """Check that the latest checkpoint of a namespace is the checkpoint that the thread names.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    binder = binder_of(connection)
    if binder.is_complete and not key.checkpoint_ns and checkpoint_id != thread.head_id:
        raise _not_latest(key.thread_id, thread.head_id, checkpoint_id)


def _not_latest(thread_id: str, head_id: str, checkpoint_id: str) -> Refusal:
    problem = "another one is stored as the latest" if checkpoint_id else "it is not stored"
    return journal_damaged(thread_id, "", head_id, problem=problem)


def entry_of(row: Row, seq: int, places: Sequence[BlobLocation]) -> CheckpointEntry:
    """Create an entry from a row, its last change (with its writes) and its segments."""
    return CheckpointEntry(
        key=CheckpointKey(row.thread_id, row.checkpoint_ns, row.checkpoint_id),
        parent_id=row.parent_id,
        incarnation=row.incarnation,
        seq=seq,
        certified=seq <= row.certified_seq and bool(places),
        created_us=row.created_us,
        metadata=row.metadata,
        label=row.label,
        summary=row.summary,
        lineage=Lineage(row.forked_from, row.rolled_back_from, row.adopted_from),
        segments=tuple(places),
        agent_id=row.agent_id,
    )


def size_of(row: Row, message: CheckpointState, held: HeldDigests = NONE_HELD) -> int:
    """Return about how many bytes a checkpoint takes in memory.

    Channels with held values are left out; writes with held values are counted, because the row
    does not name them.
    """
    channels = [channel.size_bytes for channel in message.channels if channel.digest not in held]
    return len(row.metadata) + len(row.state) + sum(channels) + (row.written_bytes or 0)


_PlacedWrites = Mapping[tuple[int, str, str], Sequence[StoredWrite]]


def entries_of(
    connection: Connection, tenant: str, rows: Sequence[Row], written: _PlacedWrites | None = None
) -> list[CheckpointEntry]:
    """Return the entries of rows; `written`: the rows' writes, if they were read already."""
    seqs: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    if written is None:
        for place, (seq,) in run_places(connection, SEQS, [row.place for row in rows]):
            seqs[place].append(seq)
    else:
        seqs.update((place, [write.seq for write in group]) for place, group in written.items())
    numbers = [[row.seq, *seqs[row.place]] for row in rows]
    places = [at.segments for at in segment_refs.of_rows(connection, tenant, rows, numbers)]
    return list(map(entry_of, rows, map(max, numbers), places))


def stepped_checkpoints(
    connection: Connection,
    tenant: str,
    rows: Sequence[Row],
    messages: Sequence[CheckpointState],
    damaged: list[Refusal] | None = None,
) -> list[Checkpoint]:
    """Return checkpoints with their steps; `messages` are their states.

    The refusal of a checkpoint with a damaged write is added to `damaged`, or raised if `damaged`
    is `None`.
    """
    written = read_written(connection, rows)
    entries = entries_of(connection, tenant, rows, written.by_place)
    steps = read_steps(connection, rows, messages, written)
    page: list[Checkpoint] = []
    for row, entry, step in zip(rows, entries, steps, strict=True):
        refusal = written.refused.get(row.place)
        if refusal is None:
            page.append(Checkpoint(entry, step=step))
        elif damaged is None:
            raise refusal
        else:
            damaged.append(refusal)
    return page


def whole_checkpoints(
    connection: Connection,
    tenant: str,
    rows: Sequence[Row],
    messages: Sequence[CheckpointState],
    damaged: list[Refusal] | None = None,
    held: Sequence[HeldDigests] = (),
) -> list[Checkpoint]:
    """Return checkpoints; `messages` are their states. Evicted values have `sources`.

    The refusal of a checkpoint with a damaged write is added to `damaged`, or raised if `damaged`
    is `None`. `held`: for each row, the values that are left out.
    """
    page: list[Checkpoint] = []
    held = held or [NONE_HELD] * len(rows)
    whole, written, refused = _stored_checkpoints(connection, tenant, rows, messages, held)
    for row, stored, row_held in zip(rows, whole, held, strict=True):
        if refusal := refused.get(row.place):
            if damaged is None:
                raise refusal
            damaged.append(refusal)
            continue
        state = state_of(stored.state, stored.values)
        evicted = [
            channel.digest
            for channel in state.channels
            if channel.value is EVICTED and channel.digest
        ]
        seqs = [
            write.seq
            for write in written[row.place]
            if write.data is None and write.digest not in row_held
        ]
        places: list[BlobLocation] = []
        if evicted:
            places += segment_refs.of_values(connection, tenant, row.family, evicted)
        if seqs:
            places += segment_refs.of_writes(connection, tenant, row.thread, row.held, seqs)
        sources = tuple(dict.fromkeys(places))
        page.append(Checkpoint(stored.entry, state, stored.writes, sources))
    return page


def _stored_checkpoints(
    connection: Connection,
    tenant: str,
    rows: Sequence[Row],
    messages: Sequence[CheckpointState],
    held: Sequence[HeldDigests],
) -> tuple[list[RawCheckpoint], _PlacedWrites, dict[tuple[int, str, str], Refusal]]:
    """Return the checkpoints of rows with the values in the journal, and their writes.

    Also returns refusals, by place, of checkpoints with a damaged row of a write. `held`: for each
    row, the values that are left out.
    """
    digests: dict[int, list[bytes]] = defaultdict(list)
    for row, message, row_held in zip(rows, messages, held, strict=True):
        digests[row.family] += [
            channel.digest
            for channel in message.channels
            if channel.digest and channel.digest not in row_held
        ]
    reads = {family: contents.ask(connection, family, hashes) for family, hashes in digests.items()}
    written: dict[tuple[int, str, str], list[StoredWrite]] = defaultdict(list)
    binder, names = binder_of(connection), {row.thread: row.thread_id for row in rows}
    refused: dict[tuple[int, str, str], Refusal] = {}
    for place, mac, write in _read_writes(connection, rows, held):
        try:
            write.check(binder, names[place[0]], place[0], place[1:], mac)
        except Refusal as refusal:
            refused[place] = refusal
        written[place].append(write)
    values = {family: read() for family, read in reads.items()}
    for family, hashes in digests.items():
        for digest in {*hashes} - values[family].keys():
            values[family][digest] = contents.missing_value(family, digest)
    entries = entries_of(connection, tenant, rows, written)
    return (
        [
            RawCheckpoint(
                entry,
                message,
                _without(values[row.family], row_held),
                _writes_of(row, written[row.place], row_held),
            )
            for row, entry, message, row_held in zip(rows, entries, messages, held, strict=True)
        ],
        written,
        refused,
    )


def _without(values: Mapping[bytes, Value], held: HeldDigests) -> Mapping[bytes, Value]:
    """Return values without held values, which may have been read for another row of the family."""
    if not held:
        return values
    return {digest: value for digest, value in values.items() if digest not in held}


def _read_writes(
    connection: Connection, rows: Sequence[Row], held: Sequence[HeldDigests]
) -> Iterator[tuple[tuple[int, str, str], bytes | None, StoredWrite]]:
    """Yield the writes of checkpoints, with their places and MACs.

    If values of a checkpoint are held, these values are not read: their writes have no data.
    """
    by_place: dict[tuple[int, str, str], tuple[Row, HeldDigests]] = {}
    for row, row_held in zip(rows, held, strict=True):
        if row.written_bytes is not None:
            _, others_held = by_place.get(row.place, (row, row_held))
            by_place[row.place] = (row, row_held & others_held)
    read = [place for place, (_, all_held) in by_place.items() if not all_held]
    for place, (mac, *columns) in run_places(connection, WRITES, read):
        yield place, mac, StoredWrite(*columns)
    partly_read = [place for place, (_, all_held) in by_place.items() if all_held]
    written: dict[tuple[int, str, str], list[tuple[bytes | None, StoredWrite]]] = defaultdict(list)
    for place, (mac, *columns) in run_places(connection, WITHOUT_DATA, partly_read):
        written[place].append((mac, StoredWrite._make([*columns, None])))
    for place, pairs in written.items():
        digests = {write.digest for _, write in pairs} - by_place[place][1]
        data_rows = DATA.run_listed(connection, digests, **parameters_of(*place))
        data_by_slot = {(task_id, idx): data for task_id, idx, data in data_rows}
        for mac, write in pairs:
            yield place, mac, write._replace(data=data_by_slot.get((write.task_id, write.idx)))


def _writes_of(row: Row, written: Sequence[StoredWrite], held: HeldDigests) -> tuple[Write, ...]:
    writes = (_write(row.thread, write, held) for write in written)
    return tuple(sorted(writes, key=write_order))


def _write(thread: int, row: StoredWrite, held: HeldDigests) -> Write:
    value: Value = HeldValue(row.size)
    if row.digest not in held:
        kind, encoding = row.type, row.encoding
        value = contents.stored_value(thread, row.digest, kind, row.size, encoding, row.data)
    return Write(row.task_id, row.task_path, row.idx, row.channel, value, row.digest)
