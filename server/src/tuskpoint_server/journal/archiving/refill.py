"""Checkpoints that have to be stored again, because what holds them will not last or is gone.

Each takes new numbers, and so do its writes and values: as if it had been removed and saved again,
the next flush stores it, and what waits for a flush is never evicted. What the journal had given
up of it is put back first, as it was read from segments: matched by its digest, which commits to
type and data, and whole, since the keyframe that it was patched on may be gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


class _Written(NamedTuple):
    """A pending write; `size` is `None` if it was evicted."""

    task_id: str
    idx: int
    digest: bytes
    seq: int
    size: int | None


_ROWS = Statement(
    select(*ROW, checkpoints.c.state, checkpoints.c.delta_base)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(of_thread(checkpoints))
)
_WRITES = Statement(
    select(
        writes.c.checkpoint_ns,
        writes.c.checkpoint_id,
        writes.c.task_id,
        writes.c.idx,
        writes.c.digest,
        writes.c.seq,
        func.length(writes.c.data),
    ).where(of_thread(writes), writes.c.early_us.is_(None))
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
_RESTORE = Statement(
    update(contents)
    .where(
        contents.c.family == bindparam("of_family"),
        contents.c.digest == bindparam("of_digest"),
        contents.c.data.is_(None),
    )
    .values(
        data=bindparam("new_data"),
        encoding=bindparam("new_encoding"),
        patches=0,
        patch_bytes=0,
        segment=None,
    )
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
    .values(data=bindparam("new_data"), encoding=bindparam("new_encoding"))
)


def pack_values(values: Mapping[bytes, Value]) -> list[PackedValue]:
    """Check values, by digest, and pack them, before the queue; `ValueError`: one has another."""
    found = []
    for digest, value in values.items():
        if value_digest(value) != digest:
            raise ValueError(f"a value has another digest than {digest.hex()}")
        packed = compress(value.data)
        found.append(PackedValue(digest, int(packed.encoding), packed.data))
    return found


def restore(connection: Connection, family: int, packed: Iterable[PackedValue]) -> int:
    """Put evicted values of a family back in a write transaction; return how many.

    Those that are here, or not known, are left out.
    """
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
    """Put evicted writes of a checkpoint back in a write transaction; return how many.

    Those with another value by now are left out. They are named as `Affected` names them.
    """
    names = (
        "of_thread",
        "of_ns",
        "of_id",
        "of_task",
        "of_idx",
        "of_digest",
        "new_encoding",
        "new_data",
    )
    rows = [
        dict(zip(names, (thread, *place, *slot, *packed[digest]), strict=True))
        for slot, digest in gone.items()
    ]
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
    """Return the checkpoints of a thread that need one of these segments, and what any of it needs.

    Those above the watermark are left out: they are stored anyway.
    """
    written: dict[Place, list[_Written]] = {}
    for ns, name, *write in _WRITES.run(connection, of_thread=user.number).fetchall():
        written.setdefault((ns, name), []).append(_Written(*write))
    rows = [Row(*row) for row in _ROWS.run(connection, of_thread=user.number).fetchall()]
    numbers = [[row.seq, *(one.seq for one in written.get(row.place[1:], ()))] for row in rows]
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
    connection: Connection, tenant: str, user: User, row: Row, written: Sequence[_Written]
) -> Affected:
    digests = referred(row.state, row.delta_base)
    size = len(row.state) + sum(write.size or 0 for write in written)
    evicted: set[bytes] = set()
    keyframes: set[bytes] = set()
    for digest, keyframe, stored in _NEEDED.run_listed(connection, digests, of_family=user.family):
        if stored is None:
            evicted.add(digest)
        if keyframe is not None:
            keyframes.add(keyframe)
        size += stored or 0
    gone = [write for write in written if write.size is None]
    sources = located.of_values(connection, tenant, user.family, sorted(evicted))
    if gone:
        seqs = [write.seq for write in gone]
        sources += located.of_writes(connection, tenant, user.number, row.held, seqs)
    return Affected(
        row.place[1:],
        row.seq,
        frozenset(digests | keyframes),
        frozenset(evicted),
        {(write.task_id, write.idx): write.digest for write in gone},
        tuple(dict.fromkeys(sources)),
        size,
    )


def store_again(
    batch: Batch, tenant: str, user: User, chosen: Iterable[tuple[Affected, Sequence[PackedValue]]]
) -> int:
    """Let checkpoints be stored again by the next flush; return how many.

    Each comes with what the journal had given up. If another incarnation lives, nothing happens.
    """
    log = batch.find(tenant, user.thread_id)
    if log is None or log.row.deleted or log.row.incarnation != user.incarnation:
        return 0
    count = 0
    updated_us = log.row.updated_us
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
        _PUT_REMOVED.run(
            batch.connection,
            thread=user.number,
            seq=taken,
            checkpoint_ns=one.place[0],
            checkpoint_id=one.place[1],
            incarnation=user.incarnation,
        )
        log.row.dirty_bytes += one.size_bytes
        of = parameters_of(user.number, *one.place)
        _RENUMBER.run(batch.connection, **of, new=seq)
        _RENUMBER_WRITES.run(batch.connection, **of, new=seq)
        through = log.row.certified_seq
        renumbered = [(user.family, digest, user.number, seq, through) for digest in one.digests]
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
    """Forget values of a family that only some segments have and that no checkpoint needs.

    `needed` is what the checkpoints of all its threads need.
    """
    for some in in_lists(segments):
        only_there = (
            contents.c.family == family,
            contents.c.segment.in_(some),
            contents.c.data.is_(None),
        )
        found = connection.execute(select(contents.c.digest).where(*only_there)).scalars()
        for gone in in_lists(set(found).difference(needed)):
            connection.execute(delete(contents).where(*only_there, contents.c.digest.in_(gone)))
