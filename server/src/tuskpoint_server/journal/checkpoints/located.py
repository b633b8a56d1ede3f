"""Which stored segments hold a checkpoint: those whose range of the log has its changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from ...domain.model import BlobLocation
from ...domain.values import DIGEST_BYTES
from ..database.schema import catalogs, contents, holes, members
from ..database.statements import Statement, in_lists

_SEQ_BYTES = 8


@dataclass(frozen=True, slots=True)
class Held:
    """What holds the rows of a checkpoint up to a change.

    Attributes:
        seq: The row of the checkpoint and its writes lie there if their own number is not
            above this one.
        segments: Hashes of the segments, that of the state first.
    """

    seq: int
    segments: tuple[bytes, ...]


def encode_held(seq: int, segments: Sequence[bytes]) -> bytes:
    """Return the stored form.

    Args:
        seq: The change up to which they hold the rows; of a copy the change that made it.
        segments: Hashes of the segments, that of the state first.
    """
    return seq.to_bytes(_SEQ_BYTES, "big") + b"".join(segments)


def decode_held(stored: bytes) -> Held:
    """Return what `encode_held` was given."""
    return Held(
        int.from_bytes(stored[:_SEQ_BYTES], "big"),
        tuple(
            stored[start : start + DIGEST_BYTES]
            for start in range(_SEQ_BYTES, len(stored), DIGEST_BYTES)
        ),
    )


_SEGMENT = (
    members.c.first_seq,
    members.c.last_seq,
    members.c.sha256,
    members.c.size,
    members.c.blob_id,
    members.c.identifier,
)

_NOWHERE = Held(0, ())

_last = members.alias("last")
# Where the highest number lies is where the walk along the index ends.
_END = (
    select(func.min(_last.c.last_seq))
    .where(_last.c.thread == bindparam("of_thread"), _last.c.last_seq >= bindparam("highest"))
    .scalar_subquery()
)
_BETWEEN = Statement(
    select(*_SEGMENT)
    .where(
        members.c.thread == bindparam("of_thread"),
        members.c.last_seq >= bindparam("lowest"),
        members.c.last_seq <= func.coalesce(_END, bindparam("highest")),
    )
    .order_by(members.c.last_seq)
)
_HOLES = Statement(
    select(holes.c.checkpoint_ns, holes.c.checkpoint_id).where(
        holes.c.thread == bindparam("of_thread"), holes.c.segment.is_(None)
    )
)


def of_rows(
    connection: Connection,
    tenant: str,
    rows: Sequence[Sequence[Any]],
    numbers: Sequence[Sequence[int]],
) -> list[list[BlobLocation]]:
    """Return the segments that hold each checkpoint, that of its state first.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        rows: Rows of `checkpoints.load.ROW`.
        numbers: For each row its own number in the log and those of its writes.

    Returns:
        For each row the locations; empty if its state is in none yet, or it is a hole. What
        `held` names holds what the checkpoint had then; its own segments hold what changed
        since.
    """
    helds = [decode_held(row[16]) if row[16] is not None else _NOWHERE for row in rows]
    wanted: dict[int, list[int]] = {}
    for row, some, held in zip(rows, numbers, helds, strict=True):
        later = [seq for seq in some if held.seq < seq <= row[4]]
        if later and some[0] <= row[4]:
            wanted.setdefault(row[1], []).extend(later)
    segments = _segments(connection, wanted)
    hashes = {sha256 for held in helds for sha256 in held.segments}
    elsewhere = by_hash(connection, tenant, hashes) if hashes else {}
    unstored = _unstored(connection, {row[1] for row in rows})
    found: list[list[BlobLocation]] = []
    for row, some, held in zip(rows, numbers, helds, strict=True):
        if some[0] > row[4] or (row[1], row[5], row[6]) in unstored:
            found.append([])
            continue
        own = segments.get(row[1], ())
        at_first = [elsewhere[sha256] for sha256 in held.segments if sha256 in elsewhere]
        since = _with_numbers(own, [seq for seq in some if held.seq < seq <= row[4]])
        if some[0] <= held.seq:
            found.append([*at_first, *since] if at_first else [])
        elif any(first <= some[0] <= last for first, last, _ in own):
            # Some of its writes may have stayed where it was held.
            found.append([*since, *at_first] if min(some) <= held.seq else since)
        else:
            found.append([])
    return found


def of_values(
    connection: Connection, tenant: str, family: int, digests: Sequence[bytes]
) -> list[BlobLocation]:
    """Return the segments that hold evicted values of a family."""
    hashes: set[bytes] = set()
    for some in in_lists(digests):
        statement = select(contents.c.segment).where(
            contents.c.family == family,
            contents.c.digest.in_(some),
            contents.c.segment.is_not(None),
        )
        hashes.update(connection.execute(statement).scalars())
    return list(by_hash(connection, tenant, hashes).values())


def of_writes(
    connection: Connection, tenant: str, thread: int, held: bytes | None, seqs: Sequence[int]
) -> list[BlobLocation]:
    """Return the segments that hold evicted writes of a checkpoint, certified itself or not.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        thread: Number of the thread.
        held: As the checkpoint's row has it.
        seqs: Numbers of the writes in the log.
    """
    at_first = decode_held(held) if held is not None else _NOWHERE
    later = [seq for seq in seqs if seq > at_first.seq]
    segments = _segments(connection, {thread: later} if later else {})
    places = _with_numbers(segments.get(thread, ()), later)
    if len(later) < len(seqs):
        places += by_hash(connection, tenant, set(at_first.segments)).values()
    return places


def _unstored(connection: Connection, threads: Iterable[int]) -> set[tuple[int, str, str]]:
    """Return the checkpoints of threads that are holes."""
    return {
        (thread, row[0], row[1])
        for thread in threads
        for row in _HOLES.run(connection, of_thread=thread).fetchall()
    }


def _with_numbers(
    segments: Sequence[tuple[int, int, BlobLocation]], seqs: Sequence[int]
) -> list[BlobLocation]:
    """Return the segments whose range has one of the numbers, that of the first number first."""
    places: list[BlobLocation] = []
    for seq in seqs:
        for first, last, place in segments:
            if first <= seq <= last and place not in places:
                places.append(place)
    return places


def _segments(
    connection: Connection, wanted: Mapping[int, Sequence[int]]
) -> dict[int, list[tuple[int, int, BlobLocation]]]:
    """Return the segments of threads from the one with the least number asked for on."""
    found: dict[int, list[tuple[int, int, BlobLocation]]] = {}
    for thread, seqs in wanted.items():
        rows = _BETWEEN.run(
            connection, of_thread=thread, lowest=min(seqs), highest=max(seqs)
        ).fetchall()
        found[thread] = [(first, last, BlobLocation(*place)) for first, last, *place in rows]
    return found


def by_hash(
    connection: Connection, tenant: str, hashes: Collection[bytes]
) -> dict[bytes, BlobLocation]:
    """Return where stored bytes lie, by hash; those that are not recorded are left out."""
    found: dict[bytes, BlobLocation] = {}
    for some in in_lists(sorted(hashes)):
        statement = select(
            members.c.sha256, members.c.size, members.c.blob_id, members.c.identifier
        ).where(members.c.tenant == tenant, members.c.sha256.in_(some))
        for row in connection.execute(statement):
            found[row[0]] = BlobLocation(*row)
    return found


def anywhere(connection: Connection, hashes: Collection[bytes]) -> dict[bytes, BlobLocation]:
    """Return where stored bytes lie, by hash, whatever tenant stored them.

    Equal hashes mean equal bytes; whoever asks has the hash from what it may read.
    """
    tenants = connection.execute(select(catalogs.c.tenant)).scalars().all()
    found: dict[bytes, BlobLocation] = {}
    for tenant in tenants:
        found.update(by_hash(connection, tenant, hashes))
    return found
