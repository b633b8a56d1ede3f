"""The path from a checkpoint to its root."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, bindparam, select

from ..database.overlay import Place
from ..database.schema import checkpoints
from ..database.statements import Statement, of_namespace, parameters_of

_LONGEST_BLOCK = 256
_FIRST_BLOCK = 16
_BLOCK = Statement(
    select(checkpoints.c.checkpoint_id, checkpoints.c.parent_id)
    .where(of_namespace(checkpoints), checkpoints.c.checkpoint_id <= bindparam("of_id"))
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(bindparam("max_rows"))
)


def ancestors(
    connection: Connection, number: int, place: Place, parent_id: str
) -> Iterator[tuple[str, str]]:
    """Yield ID and parent of the ancestors of a checkpoint, nearest first.

    Ends at the root, at a parent that is not stored, and where the path meets itself.
    IDs mostly fall along the path, so each read takes the next ones below.

    Args:
        connection: In a transaction.
        number: Number of the thread.
        place: The checkpoint.
        parent_id: Its parent, or empty.
    """
    block: dict[str, str] = {}
    seen = {place[1]}
    size = _FIRST_BLOCK
    while parent_id and parent_id not in seen:
        if parent_id not in block:
            of = parameters_of(number, place[0], parent_id)
            block = dict(_BLOCK.run(connection, **of, max_rows=size).fetchall())
            size = min(size * 2, _LONGEST_BLOCK)
            if parent_id not in block:
                return
        seen.add(parent_id)
        yield parent_id, block[parent_id]
        parent_id = block[parent_id]
