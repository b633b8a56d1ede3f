"""Which stored segments hold a checkpoint: those whose range of the log has its changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from ...domain.model import BlobLocation
from ..database.schema import members
from ..database.statements import Statement, in_lists
from .held import decode_held

_SEGMENT = (
    members.c.first_seq,
    members.c.last_seq,
    members.c.sha256,
    members.c.size,
    members.c.blob_id,
    members.c.identifier,
)

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
        For each row the locations; empty if its state is in none yet. A copy whose content
        lies in segments of another thread is held by these.
    """
    wanted: dict[int, list[int]] = {}
    for row, some in zip(rows, numbers, strict=True):
        if some[0] <= row[4]:
            wanted.setdefault(row[1], []).extend(seq for seq in some if seq <= row[4])
    if not wanted:
        return [[] for _ in rows]
    segments = _segments(connection, wanted)
    copied = [decode_held(row[16]) if row[16] is not None else () for row in rows]
    elsewhere = _by_hash(connection, tenant, {sha256 for some in copied for sha256 in some})
    found = []
    for row, some, held in zip(rows, numbers, copied, strict=True):
        own = segments.get(row[1], ())
        places: list[BlobLocation] = [elsewhere[sha256] for sha256 in held if sha256 in elsewhere]
        for seq in some[1:] if held else some:
            for first, last, place in own:
                if first <= seq <= last and place not in places:
                    places.append(place)
        state_is_stored = bool(held) or any(first <= some[0] <= last for first, last, _ in own)
        found.append(places if state_is_stored and some[0] <= row[4] else [])
    return found


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


def _by_hash(connection: Connection, tenant: str, hashes: set[bytes]) -> dict[bytes, BlobLocation]:
    found: dict[bytes, BlobLocation] = {}
    for some in in_lists(sorted(hashes)):
        statement = select(
            members.c.sha256, members.c.size, members.c.blob_id, members.c.identifier
        ).where(members.c.tenant == tenant, members.c.sha256.in_(some))
        for row in connection.execute(statement):
            found[row[0]] = BlobLocation(*row)
    return found
