"""What a call does that needs evicted values: it says where they are, and is made again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import Connection, select

from ...domain.model import BlobLocation, Value
from ..archiving import located
from ..database.schema import checkpoints, writes
from ..database.statements import in_lists
from ..database.thread_rows import ThreadRow
from .sources import Source

Supplied = Mapping[bytes, Value]
"""Values by digest that were read from segments after `ValuesEvicted`."""


class ValuesEvicted(Exception):
    """Values that are needed were evicted; nothing is stored.

    Attributes:
        digests: The values.
        places: The segments that hold them.
    """

    def __init__(self, digests: Collection[bytes], places: Iterable[BlobLocation]) -> None:
        self.digests = frozenset(digests)
        self.places = tuple(dict.fromkeys(places))
        super().__init__(f"{len(self.digests)} values were evicted")


def places_of(
    connection: Connection,
    thread: ThreadRow,
    source: Source,
    written: Mapping[bytes, int],
    missing: Collection[bytes],
) -> list[BlobLocation]:
    """Return the segments that hold evicted values that a checkpoint needs.

    Args:
        connection: In a transaction.
        thread: The thread of the checkpoint.
        source: The checkpoint.
        written: Digest to number of a row of `writes` of an ancestor that has the value.
        missing: Digests of values that are neither here nor supplied.
    """
    places = located.of_values(connection, thread.tenant, thread.family, sorted(missing))
    found: dict[bytes | None, list[int]] = {}
    own = [seq for seq, write in source.written if write.digest in missing]
    if own:
        found[source.held] = own
    for some in in_lists(number for digest, number in written.items() if digest in missing):
        rows = connection.execute(
            select(checkpoints.c.held, writes.c.seq)
            .join(
                checkpoints,
                (checkpoints.c.thread == writes.c.thread)
                & (checkpoints.c.checkpoint_ns == writes.c.checkpoint_ns)
                & (checkpoints.c.checkpoint_id == writes.c.checkpoint_id),
            )
            .where(writes.c.number.in_(some), writes.c.data.is_(None))
        )
        for held, seq in rows:
            found.setdefault(held, []).append(seq)
    for held, seqs in found.items():
        places += located.of_writes(connection, thread.tenant, thread.number, held, seqs)
    return places
