"""Effects in threads that are made from other threads.

A fork, a hand-off or a snapshot has the effects that belong to its checkpoint, so that the work is
not repeated there; a copy has all effects. The new thread gets them in the transaction that makes
it. An attempt that runs in the source is unknown in the new thread, because it reports to the
source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from ...archive.formats.bundled_effects import NAMESPACES
from ...archive.formats.bundles import Closure, check_bytes
from ...archive.formats.segments import SegmentValue
from ...archive.rows import stored
from ...archive.rows.stored import StoredCheckpoint, live_thread, of_stored
from ...core.effects.decisions import Point, copied, in_copy
from ...core.effects.records import EffectsMode, effects_of, marker_of, mode_in
from ...core.threads import EventKind
from ...core.values import Encoding
from ...journal.database.thread_rows import Place, ThreadCacheEntry, ThreadRow
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import checkpoints
from ...journal.sql.statements import Statement, in_lists, of_checkpoint, parameters_of
from ...journal.values.contents import referred_digests
from ..checkpoints.missing_values import SuppliedValues
from ..effects.records import decode, read_all, thread_of_effects
from . import copies
from .subgraphs import tied_subgraphs

_ABOVE = Statement(
    select(checkpoints.c.parent_id, checkpoints.c.root_id).where(of_checkpoint(checkpoints))
)


@dataclass(frozen=True, slots=True)
class CarriedEffects:
    """The effects that a new thread gets from another thread.

    `thread`: the thread of effects that has them; `numbers`: the rows of their checkpoints, by key.
    """

    mode: EffectsMode
    thread: ThreadRow
    numbers: Mapping[str, int]


def names_with_effects(tenant: str, *thread_ids: str) -> list[tuple[str, str]]:
    """Return threads and the threads of their effects, to lock all of them at once."""
    return [(tenant, name) for thread in thread_ids for name in (thread, effects_of(thread))]


def find(
    connection: Connection,
    thread: ThreadRow,
    place: Place | None,
    mode: EffectsMode = EffectsMode.COPY,
) -> CarriedEffects | None:
    """Return the effects that a thread made from a checkpoint gets; `None`: there are none.

    `place` `None`: the new thread has all checkpoints. `mode`: what the new thread does with its
    effects; a thread that is made from a thread that only answers only answers, too.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    source = thread_of_effects(connection, thread)
    if source is None:
        return None
    if mode_in(source.agent_id, thread.incarnation) is EffectsMode.ANSWER:
        mode = EffectsMode.ANSWER
    point = _point(connection, thread, place) if place is not None else None
    numbers, records = dict[str, int](), []
    for number, record in read_all(connection, source.number, source.thread_id):
        numbers[record.key] = number
        records.append(record)
    chosen = copied(records, point, answers=mode is EffectsMode.ANSWER)
    return CarriedEffects(mode, source, {record.key: numbers[record.key] for record in chosen})


def _point(connection: Connection, thread: ThreadRow, place: Place) -> Point:
    """Return what effects depend on, of a checkpoint of a thread."""
    parent_id, root_id = _above(connection, thread.number, place)
    if not place[0]:
        root_id = place[1]
    elif root_id:
        parent_id, _ = _above(connection, thread.number, ("", root_id))
    places = {place, *tied_subgraphs(connection, thread.number, place)}
    return Point(places, {root_id, parent_id} - {""} if root_id else (), root_id)


def _above(connection: Connection, number: int, place: Place) -> tuple[str, str]:
    row = _ABOVE.run(connection, **parameters_of(number, *place)).fetchone()
    return (str(row[0]), str(row[1])) if row is not None else ("", "")


def carry(
    batch: UnitOfWork,
    owner: ThreadCacheEntry,
    found: Iterable[CarriedEffects | None],
    supplied: SuppliedValues,
    mode: EffectsMode = EffectsMode.COPY,
) -> None:
    """Give a new thread its effects, in one change of the thread.

    Of an effect that several sources have, the last source counts. The change must have its own
    savepoint.

    Raises:
        ValuesEvictedError: Results are neither in the journal nor supplied.
    """
    sources = [effects for effects in found if effects is not None]
    family = sources[-1].thread.family if sources else None
    sources = [effects for effects in sources if effects.thread.family == family]
    if any(effects.mode is EffectsMode.ANSWER for effects in sources):
        mode = EffectsMode.ANSWER
    origins = {key: effects for effects in sources for key in effects.numbers}
    if not origins and mode is EffectsMode.COPY:
        return
    log = _begin(batch, owner.row, family, mode)
    for effects in sources:
        numbers = [number for key, number in effects.numbers.items() if origins[key] is effects]
        for chunk in in_lists(numbers):
            [new] = copies.prepare(
                batch.connection, [(effects.thread, chunk)], supplied, with_ancestors=True
            )
            _insert(batch, log, new)
    _end(batch, owner, log)


def adopt(
    batch: UnitOfWork,
    owner: ThreadCacheEntry,
    new: Sequence[StoredCheckpoint],
    mode: EffectsMode,
) -> None:
    """Give an adopted thread the effects of its bundle, in one change of the thread."""
    if not new and mode is EffectsMode.COPY:
        return
    log = _begin(batch, owner.row, None, mode)
    _insert(batch, log, new)
    _end(batch, owner, log)


def _begin(
    batch: UnitOfWork, owner: ThreadRow, family: int | None, mode: EffectsMode
) -> ThreadCacheEntry:
    marker = marker_of(owner.incarnation, mode)
    name = effects_of(owner.thread_id)
    return stored.begin(batch, owner.tenant, name, family, marker, unsearchable=True)


def _insert(batch: UnitOfWork, log: ThreadCacheEntry, new: Sequence[StoredCheckpoint]) -> None:
    for checkpoint in new:
        record = decode(log.row.thread_id, checkpoint)
        here = in_copy(record, batch.now_us)
        if here != record:
            checkpoint.known.metadata, checkpoint.segments = here.encode(), ()
    stored.add(batch, log, new)
    batch.write_out()


def _end(batch: UnitOfWork, owner: ThreadCacheEntry, log: ThreadCacheEntry) -> None:
    if log.new:  # without an effect: the archive must record that the thread only answers
        batch.change(log, EventKind.SEARCHABLE_SET)
    stored.end(batch, log, ("", ""))
    batch.change(owner, EventKind.EFFECT_CHANGED)


def with_effects(
    connection: Connection, tenant: str, closure: Closure | None, supplied: SuppliedValues
) -> Closure | None:
    """Return the closure of a checkpoint with the effects that belong to the checkpoint.

    Raises:
        Refusal: `LIMIT_EXCEEDED` if it exceeds a bundle; `JOURNAL_DAMAGED`.
        ValuesEvictedError: Results are neither in the journal nor supplied.
    """
    if closure is None or closure.segment.handoff is None:
        return closure
    thread = live_thread(connection, tenant, closure.key.thread_id)
    found = find(connection, thread, closure.segment.handoff) if thread is not None else None
    if found is None:
        return closure
    effects = stored.read(connection, list(found.numbers.values()))
    digests = frozenset[bytes]().union(
        *(referred_digests(effect.known.state, None) for effect in effects)
    )
    values = {value.digest: value for value in closure.segment.values}
    results = copies.gather(connection, found.thread, effects, digests, supplied, {})
    for digest, value in results.items():
        values[digest] = SegmentValue(
            digest, value.type, len(value.data), Encoding.PLAIN, value.data
        )
    written = sum(write.size for write in closure.segment.writes)
    check_bytes(closure.key, written + sum(value.size for value in values.values()))
    namespace = NAMESPACES[found.mode]
    rows = [of_stored(effect)._replace(checkpoint_ns=namespace) for effect in effects]
    rows.sort(key=lambda row: row.checkpoint_id)
    segment = replace(
        closure.segment,
        checkpoints=(*closure.segment.checkpoints, *rows),
        values=tuple(value for _, value in sorted(values.items())),
    )
    return replace(closure, segment=segment)


def split(
    new: Iterable[StoredCheckpoint],
) -> tuple[list[StoredCheckpoint], list[StoredCheckpoint], EffectsMode]:
    """Return the checkpoints of a bundle, its effects, and what the adopted thread does with them.

    The effects have the places that they get in the thread of effects.
    """
    modes = {namespace: mode for mode, namespace in NAMESPACES.items()}
    own, effects, mode = list[StoredCheckpoint](), list[StoredCheckpoint](), EffectsMode.COPY
    for checkpoint in new:
        effects_mode = modes.get(checkpoint.place[0])
        if effects_mode is None:
            own.append(checkpoint)
            continue
        mode = max(mode, effects_mode)
        checkpoint.place = ("", checkpoint.place[1])
        effects.append(checkpoint)
    return own, effects, mode


def taken(connection: Connection, tenant: str, thread_id: str) -> bool:
    """Return whether a name cannot become a new thread's, because it has effects."""
    row = live_thread(connection, tenant, effects_of(thread_id))
    return row is not None and stored.is_taken(connection, row.number)
