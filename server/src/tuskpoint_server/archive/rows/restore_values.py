"""Stores checkpoints again whose segments will not last or are gone.

A checkpoint, its writes and values get new sequence numbers, so that the next flush stores them.
Evicted values are restored first, checked by their digests, and whole: their keyframes may be gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, func, or_, select, update

from ...core.model import BlobLocation
from ...core.threads import EventKind
from ...core.values import DIGEST_BYTES, split
from ...journal.database.pending_writes import StoredWrite
from ...journal.database.thread_rows import THREAD, Place, ThreadRow, row_of
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.removal import deletion
from ...journal.sql.schema import checkpoints, contents, members, threads, uses, writes
from ...journal.sql.statements import (
    LISTED,
    Statement,
    in_lists,
    of_checkpoint,
    of_thread,
    parameters_of,
)
from ...journal.values import segment_refs
from ...journal.values.contents import referred_digests
from ...journal.values.segment_refs import ROW, Row
from ..formats.segments import SegmentValue


@dataclass(frozen=True, slots=True)
class AffectedCheckpoint:
    """A checkpoint that needs a segment which will not last."""

    place: Place
    seq: int  # change that last wrote the row
    digests: frozenset[bytes]  # values that the checkpoint needs, and their keyframes
    evicted: frozenset[bytes]  # needed values that the journal lacks
    evicted_writes: tuple[StoredWrite, ...]  # writes whose data the journal lacks
    sources: tuple[BlobLocation, ...]  # segments that contain the evicted values and writes
    size_bytes: int  # bytes of the checkpoint in the journal


_ROWS = Statement(
    select(*ROW)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(of_thread(checkpoints))
)
_OF_WRITE = (writes.c.checkpoint_ns, writes.c.checkpoint_id, func.length(writes.c.data))
_WRITE = (writes.c[name] for name in StoredWrite._fields[:-1])
_WRITES = Statement(
    select(*_OF_WRITE, *_WRITE).where(of_thread(writes), writes.c.early_us.is_(None))
)
_NEEDED = Statement(
    select(contents.c.digest, contents.c.keyframe, func.length(contents.c.data)).where(
        contents.c.family == bindparam("of_family"), contents.c.digest.in_(LISTED)
    )
)
_LET_GO = Statement(update(checkpoints).where(of_checkpoint(checkpoints)).values(held=None))
_RENUMBER_VALUE = Statement(
    update(contents)
    .where(
        contents.c.family == bindparam("of_family"),
        contents.c.digest == bindparam("of_digest"),
        contents.c.data.is_not(None),
        or_(contents.c.thread != bindparam("new_thread"), contents.c.seq <= bindparam("through")),
    )
    .values(thread=bindparam("new_thread"), seq=bindparam("new"), segment=None)
)


ONLY_IN = Statement(
    select(contents.c.number, contents.c.digest).where(
        contents.c.family == bindparam("of_family"),
        contents.c.data.is_(None),
        contents.c.segment.in_(LISTED),
    )
)
"""Number and digest of the values of a family that only some segments contain."""

_FORGET_VALUE = Statement(
    delete(contents).where(
        contents.c.number == bindparam("of_number"),
        contents.c.data.is_(None),  # still true after waiting for another server's commit
    )
)


def naming_segments(connection: Connection, tenant: str, segments: Collection[bytes]) -> set[bytes]:
    """Return segments, the segments that name one of them, and so on."""
    rows = connection.execute(
        select(members.c.sha256, members.c.needs).where(
            members.c.tenant == tenant, members.c.needs.is_not(None)
        )
    )
    named_by: dict[bytes, list[bytes]] = {}
    for sha256, needs in rows:
        for needed in split(needs, DIGEST_BYTES):
            named_by.setdefault(needed, []).append(sha256)
    hashes: set[bytes] = set()
    waiting = list(segments)
    while waiting:
        sha256 = waiting.pop()
        if sha256 not in hashes:
            hashes.add(sha256)
            waiting += named_by.get(sha256, ())
    return hashes


def users(connection: Connection, tenant: str, segments: Collection[bytes]) -> list[ThreadRow]:
    """Return the live threads that need segments."""
    by_number: dict[int, ThreadRow] = {}
    for batch in in_lists(segments):
        thread_numbers = select(uses.c.thread).where(
            uses.c.tenant == tenant, uses.c.segment.in_(batch)
        )
        families = select(contents.c.family).where(contents.c.segment.in_(batch))
        rows = connection.execute(
            select(*THREAD).where(
                threads.c.tenant == tenant,
                threads.c.deleted.is_(False),
                threads.c.number.in_(thread_numbers) | threads.c.family.in_(families),
            )
        )
        by_number.update((row[0], row_of(row)) for row in rows)
    return list(by_number.values())


def find_affected(
    connection: Connection, user: ThreadRow, segments: Collection[bytes]
) -> tuple[list[AffectedCheckpoint], set[bytes]]:
    """Return a thread's certified checkpoints that need segments, and all values they need."""
    written: defaultdict[Place, list[tuple[StoredWrite, int | None]]] = defaultdict(list)
    for ns, name, stored, *write in _WRITES.run(connection, of_thread=user.number).fetchall():
        written[ns, name].append((StoredWrite._make([*write, None]), stored))
    rows = [Row(*row) for row in _ROWS.run(connection, of_thread=user.number).fetchall()]
    numbers = [[row.seq, *(write.seq for write, _ in written[row.place[1:]])] for row in rows]
    places = segment_refs.of_rows(connection, user.tenant, rows, numbers)
    affected_checkpoints = []
    needed: set[bytes] = set()
    for row, location in zip(rows, places, strict=True):
        checkpoint = _affected_checkpoint(connection, user, row, written[row.place[1:]])
        needed |= checkpoint.digests
        is_certified = row.seq <= row.certified_seq
        if is_certified and any(
            place.sha256 in segments for place in (*location.segments, *checkpoint.sources)
        ):
            affected_checkpoints.append(checkpoint)
    return sorted(affected_checkpoints, key=lambda checkpoint: checkpoint.seq), needed


def _affected_checkpoint(
    connection: Connection,
    user: ThreadRow,
    row: Row,
    written: Sequence[tuple[StoredWrite, int | None]],
) -> AffectedCheckpoint:
    digests = referred_digests(row.state, row.delta_base)
    size = len(row.state) + sum(stored or 0 for _, stored in written)
    evicted: set[bytes] = set()
    keyframes: set[bytes] = set()
    for digest, keyframe, stored in _NEEDED.run_listed(connection, digests, of_family=user.family):
        if stored is None:
            evicted.add(digest)
        if keyframe is not None:
            keyframes.add(keyframe)
        size += stored or 0
    evicted_writes = tuple(write for write, stored in written if stored is None)
    sources = segment_refs.of_values(connection, user.tenant, user.family, sorted(evicted))
    if evicted_writes:
        seqs = [write.seq for write in evicted_writes]
        sources += segment_refs.of_writes(connection, user.tenant, user.number, row.held, seqs)
    return AffectedCheckpoint(
        row.place[1:],
        row.seq,
        frozenset(digests | keyframes),
        frozenset(evicted),
        evicted_writes,
        tuple(dict.fromkeys(sources)),
        size,
    )


def store_again(
    batch: UnitOfWork,
    user: ThreadRow,
    chosen: Iterable[tuple[AffectedCheckpoint, Mapping[bytes, SegmentValue]]],
) -> int:
    """Mark checkpoints for the next flush; return their number.

    Each checkpoint comes with its evicted values, by digest and checked.
    """
    log = batch.find(user.tenant, user.thread_id)
    if log is None or log.row.deleted or log.row.incarnation != user.incarnation:
        return 0
    count, updated_us = 0, log.row.updated_us
    for checkpoint, values in chosen:
        cached = batch.checkpoint(log, checkpoint.place)
        if cached is None or cached.seq != checkpoint.seq:
            continue  # the checkpoint was removed, or saved again
        pending = batch.pending(log, checkpoint.place, cached)
        # The removal drops earlier records of the checkpoint, and with them records of the
        # segments.
        removal_seq = batch.change(log, EventKind.RECOVERED, checkpoint.place)
        seq = batch.change(log, EventKind.CHECKPOINT_SAVED, checkpoint.place, indexed=True)
        deletion.record(batch, log, removal_seq, [checkpoint.place])
        log.row.dirty_bytes += checkpoint.size_bytes
        cached.seq = seq
        batch.amend_checkpoint(log, checkpoint.place, cached)
        _LET_GO.run(batch.connection, **parameters_of(user.number, *checkpoint.place))
        old_seqs = {(write.task_id, write.idx): write.seq for write in pending.all()}
        for write in batch.renumber_writes(log, checkpoint.place, list(pending.all()), seq):
            pending.put(write)
        new = (user.number, seq, log.row.certified_seq)
        renumbered = [(user.family, digest, *new) for digest in checkpoint.digests]
        names = ("of_family", "of_digest", "new_thread", "new", "through")
        _RENUMBER_VALUE.run_rows(batch.connection, names, renumbered)
        for digest in checkpoint.evicted:
            batch.put_content(log, seq, values[digest])
        for write in checkpoint.evicted_writes:
            slot = (write.task_id, write.idx)
            if old_seqs[slot] == write.seq:  # the write was not replaced
                value = values[write.digest]
                whole = write._replace(encoding=value.encoding, data=value.data)
                batch.put_write(log, checkpoint.place, whole, seq, before=pending.get(slot))
        count += 1
    # no caller changed the thread, so its retention must not be prolonged
    log.row.set_updated(updated_us)
    log.forget_checkpoints()
    return count


def forget_unneeded(
    connection: Connection, family: int, segments: Collection[bytes], needed: Collection[bytes]
) -> None:
    """Forget values of a family that only some segments have and that no thread needs."""
    rows = ONLY_IN.run_listed(connection, segments, of_family=family)
    numbers = [(number,) for number, digest in rows if digest not in needed]
    _FORGET_VALUE.run_rows(connection, ("of_number",), numbers)
