"""Checkpoints that have to be stored again, because what holds them will not last or is gone.

Each takes new numbers, and so do its writes and values: the next flush stores it. What the journal
had given up of it is put back first, matched by its digest, and whole: its keyframe may be gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, or_, select, update

from ...domain.model import BlobLocation, Value
from ...domain.threads import EventKind
from ...domain.values import DIGEST_BYTES, compress, value_digest
from ..checkpoints import located
from ..checkpoints.contents import referred
from ..checkpoints.located import ROW, Row
from ..database.logs import Place
from ..database.overlay import Batch
from ..database.schema import checkpoints, contents, members, removed, threads, uses, writes
from ..database.statements import (
    LISTED,
    Statement,
    in_lists,
    inserting,
    of_checkpoint,
    of_thread,
    parameters_of,
)
from .plan import split


class User(NamedTuple):
    """A live thread that needs a segment."""

    number: int
    thread_id: str
    family: int
    incarnation: int


class PackedValue(NamedTuple):
    """A value as it will be stored, and its digest."""

    digest: bytes
    encoding: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Affected:
    """A checkpoint that needs a segment which will not last."""

    place: Place
    seq: int  # the change that made its row as it is
    digests: frozenset[bytes]  # the values that it needs, and their keyframes
    evicted: frozenset[bytes]  # those of them that the journal has not
    # task and slot of its writes that the journal has not, to digest
    evicted_writes: Mapping[tuple[str, int], bytes]
    sources: tuple[BlobLocation, ...]  # segments that hold what the journal has not
    size_bytes: int  # bytes of it in the journal


_ROWS = Statement(
    select(*ROW, checkpoints.c.state, checkpoints.c.delta_base)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(of_thread(checkpoints))
)
_OF_WRITE = (writes.c.checkpoint_ns, writes.c.checkpoint_id)
_WRITE = (writes.c.task_id, writes.c.idx, writes.c.digest, writes.c.seq)
_WRITES = Statement(
    select(*_OF_WRITE, *_WRITE, func.length(writes.c.data)).where(
        of_thread(writes), writes.c.early_us.is_(None)
    )
)
_NEEDED = Statement(
    select(contents.c.digest, contents.c.keyframe, func.length(contents.c.data)).where(
        contents.c.family == bindparam("of_family"), contents.c.digest.in_(LISTED)
    )
)
_RENUMBER = Statement(
    update(checkpoints).where(of_checkpoint(checkpoints)).values(seq=bindparam("new"), held=None)
)
_RENUMBER_WRITES = Statement(
    update(writes)
    .where(of_checkpoint(writes), writes.c.early_us.is_(None))
    .values(seq=bindparam("new"))
)
_PUT_REMOVED = Statement(inserting(removed))
_NEW: dict[str, Any] = {"data": bindparam("new_data"), "encoding": bindparam("new_encoding")}
_OF_FAMILY = contents.c.family == bindparam("of_family")
_OF_VALUE = (_OF_FAMILY, contents.c.digest == bindparam("of_digest"))
_RENUMBER_VALUE = Statement(
    update(contents)
    .where(
        *_OF_VALUE,
        contents.c.data.is_not(None),
        or_(contents.c.thread != bindparam("new_thread"), contents.c.seq <= bindparam("through")),
    )
    .values(thread=bindparam("new_thread"), seq=bindparam("new"), segment=None)
)
_RESTORE = Statement(
    update(contents)
    .where(*_OF_VALUE, contents.c.data.is_(None))
    .values({**_NEW, "patches": 0, "patch_bytes": 0, "segment": None})
)
_RESTORE_WRITE = Statement(
    update(writes)
    .where(
        of_checkpoint(writes),
        writes.c.task_id == bindparam("of_task"),
        writes.c.idx == bindparam("of_idx"),
        writes.c.digest == bindparam("of_digest"),
        writes.c.data.is_(None),
    )
    .values(_NEW)
)


def pack_values(values: Mapping[bytes, Value]) -> list[PackedValue]:
    """Check values, by digest, and pack them, before the queue; `ValueError`: one has another."""
    if bad := [digest for digest, value in values.items() if value_digest(value) != digest]:
        raise ValueError(f"a value has another digest than {bad[0].hex()}")
    packed = {digest: compress(value.data) for digest, value in values.items()}
    return [PackedValue(digest, int(one.encoding), one.data) for digest, one in packed.items()]


def restore(connection: Connection, family: int, packed: Iterable[PackedValue]) -> int:
    """Put known evicted values of a family back in a write transaction; return how many."""
    names = ("of_family", "of_digest", "new_encoding", "new_data")
    rows = [dict(zip(names, (family, *one), strict=True)) for one in packed]
    return _RESTORE.run_many(connection, rows)


def restore_writes(
    connection: Connection,
    thread: int,
    place: Place,
    gone: Mapping[tuple[str, int], bytes],
    packed: Mapping[bytes, PackedValue],
) -> int:
    """Put evicted writes of a checkpoint back that were not replaced; return how many."""
    names = ("of_task", "of_idx", "of_digest", "new_encoding", "new_data")
    of = parameters_of(thread, *place)
    new = [(*slot, *packed[digest]) for slot, digest in gone.items()]
    rows = [{**of, **dict(zip(names, one, strict=True))} for one in new]
    return _RESTORE_WRITE.run_many(connection, rows)


def naming(connection: Connection, tenant: str, segments: Collection[bytes]) -> set[bytes]:
    """Return segments, those that name one of them, those that name these, and so on."""
    rows = connection.execute(
        select(members.c.sha256, members.c.needs).where(
            members.c.tenant == tenant, members.c.needs.is_not(None)
        )
    )
    named_by: dict[bytes, list[bytes]] = {}
    for sha256, needs in rows:
        for needed in split(needs, DIGEST_BYTES):
            named_by.setdefault(needed, []).append(sha256)
    found: set[bytes] = set()
    waiting = list(segments)
    while waiting:
        sha256 = waiting.pop()
        if sha256 not in found:
            found.add(sha256)
            waiting += named_by.get(sha256, ())
    return found


def users(connection: Connection, tenant: str, segments: Collection[bytes]) -> list[User]:
    """Return the live threads that need segments."""
    found: dict[int, User] = {}
    for some in in_lists(segments):
        using = select(uses.c.thread).where(uses.c.tenant == tenant, uses.c.segment.in_(some))
        keeping = select(contents.c.family).where(contents.c.segment.in_(some))
        rows = connection.execute(
            select(*(threads.c[name] for name in User._fields)).where(
                threads.c.tenant == tenant,
                threads.c.deleted.is_(False),
                threads.c.number.in_(using) | threads.c.family.in_(keeping),
            )
        )
        found.update((row[0], User(*row)) for row in rows)
    return list(found.values())


def affected(
    connection: Connection, tenant: str, user: User, segments: Collection[bytes]
) -> tuple[list[Affected], set[bytes]]:
    """Return the certified checkpoints of a thread that need segments, and what any of it needs."""
    written: dict[Place, list[Any]] = {}
    for ns, name, *write in _WRITES.run(connection, of_thread=user.number).fetchall():
        written.setdefault((ns, name), []).append(write)
    rows = [Row(*row) for row in _ROWS.run(connection, of_thread=user.number).fetchall()]
    numbers = [[row.seq, *(write[3] for write in written.get(row.place[1:], ()))] for row in rows]
    places = located.of_rows(connection, tenant, rows, numbers)
    found = []
    needed: set[bytes] = set()
    for row, at in zip(rows, places, strict=True):
        one = _affected(connection, tenant, user, row, written.get(row.place[1:], ()))
        needed |= one.digests
        is_certified = row.seq <= row.certified_seq
        if is_certified and any(place.sha256 in segments for place in (*at, *one.sources)):
            found.append(one)
    return sorted(found, key=lambda one: one.seq), needed


def _affected(
    connection: Connection, tenant: str, user: User, row: Row, written: Sequence[Any]
) -> Affected:
    digests = referred(row.state, row.delta_base)
    size = len(row.state) + sum(stored or 0 for *_, stored in written)
    evicted: set[bytes] = set()
    keyframes: set[bytes] = set()
    for digest, keyframe, stored in _NEEDED.run_listed(connection, digests, of_family=user.family):
        if stored is None:
            evicted.add(digest)
        if keyframe is not None:
            keyframes.add(keyframe)
        size += stored or 0
    gone = [write for *write, stored in written if stored is None]
    sources = located.of_values(connection, tenant, user.family, sorted(evicted))
    if gone:
        seqs = [seq for *_, seq in gone]
        sources += located.of_writes(connection, tenant, user.number, row.held, seqs)
    return Affected(
        row.place[1:],
        row.seq,
        frozenset(digests | keyframes),
        frozenset(evicted),
        {(task_id, idx): digest for task_id, idx, digest, _ in gone},
        tuple(dict.fromkeys(sources)),
        size,
    )


def store_again(
    batch: Batch, tenant: str, user: User, chosen: Iterable[tuple[Affected, Sequence[PackedValue]]]
) -> int:
    """Let the next flush store checkpoints, which come with what was evicted; return how many."""
    log = batch.find(tenant, user.thread_id)
    if log is None or log.row.deleted or log.row.incarnation != user.incarnation:
        return 0
    count, updated_us = 0, log.row.updated_us
    for one, values in chosen:
        known = batch.checkpoint(log, one.place)
        if known is None or known.seq != one.seq:
            continue  # it was removed, or saved again
        packed = {value.digest: value for value in values}
        restore(batch.connection, user.family, [packed[digest] for digest in one.evicted])
        restore_writes(batch.connection, user.number, one.place, one.evicted_writes, packed)
        # What is said of it so far, and so of the segments to leave, is taken away.
        taken = batch.change(log, EventKind.RECOVERED, one.place)
        seq = batch.change(log, EventKind.CHECKPOINT_SAVED, one.place, indexed=True)
        gone = dict(zip(("checkpoint_ns", "checkpoint_id"), one.place, strict=True))
        of_log = {"thread": user.number, "seq": taken, "incarnation": user.incarnation}
        _PUT_REMOVED.run(batch.connection, **of_log, **gone)
        log.row.dirty_bytes += one.size_bytes
        of = parameters_of(user.number, *one.place)
        _RENUMBER.run(batch.connection, **of, new=seq)
        _RENUMBER_WRITES.run(batch.connection, **of, new=seq)
        new = (user.number, seq, log.row.certified_seq)
        renumbered = [(user.family, digest, *new) for digest in one.digests]
        names = ("of_family", "of_digest", "new_thread", "new", "through")
        _RENUMBER_VALUE.run_rows(batch.connection, names, renumbered)
        batch.note_digests(log, one.digests)
        count += 1
    log.row.set_updated(updated_us)  # nobody changed it: it is not kept any longer for this
    log.forget_checkpoints()
    return count


def forget_unneeded(
    connection: Connection, family: int, segments: Collection[bytes], needed: Collection[bytes]
) -> None:
    """Forget values of a family that only some segments have and that no thread needs."""
    for some in in_lists(segments):
        of_family = (contents.c.family == family, contents.c.data.is_(None))
        only_there = (*of_family, contents.c.segment.in_(some))
        found = connection.execute(select(contents.c.digest).where(*only_there)).scalars()
        for gone in in_lists(set(found).difference(needed)):
            connection.execute(delete(contents).where(*only_there, contents.c.digest.in_(gone)))
