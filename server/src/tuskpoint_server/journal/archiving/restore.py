"""Putting evicted values back, as they were read from the segments that hold them.

A value is matched by its digest, which commits to type and data: whatever segment it comes
from, it is the value that was saved. It is checked and compressed before the queue, and
stored whole, since the keyframe that it was patched on may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, update

from ...domain.model import Value
from ...domain.values import Encoding, Packed, compress, value_digest
from ..database.schema import contents, writes
from ..database.statements import Statement, of_checkpoint, parameters_of

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


class PackedValue(NamedTuple):
    """A value as it will be stored, and its digest."""

    digest: bytes
    encoding: Encoding
    data: bytes


class PackedWrite(NamedTuple):
    """A pending write whose value was evicted, with the value as it will be stored."""

    task_id: str
    idx: int
    value: PackedValue


def pack_values(values: Mapping[bytes, Value]) -> list[PackedValue]:
    """Check values and pack them, before the queue.

    Args:
        values: By digest.

    Raises:
        ValueError: A value has another digest.
    """
    return [_packed(digest, value) for digest, value in values.items()]


def restore(connection: Connection, family: int, packed: Sequence[PackedValue]) -> int:
    """Put evicted values back; those that are here, or not known, are left out.

    Args:
        connection: In a write transaction.
        family: The family.
        packed: What `pack_values` returned.

    Returns:
        How many were put back.
    """
    return _RESTORE.run_many(
        connection,
        [
            {
                "of_family": family,
                "of_digest": value.digest,
                "new_data": value.data,
                "new_encoding": int(value.encoding),
            }
            for value in packed
        ],
    )


def restore_writes(
    connection: Connection,
    thread: int,
    checkpoint_ns: str,
    checkpoint_id: str,
    packed: Sequence[PackedWrite],
) -> int:
    """Put evicted writes of a checkpoint back; those with another value by now are left out.

    Args:
        connection: In a write transaction.
        thread: Number of the thread.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint.
        packed: The writes, with their packed values.

    Returns:
        How many were put back.
    """
    of = parameters_of(thread, checkpoint_ns, checkpoint_id)
    return _RESTORE_WRITE.run_many(
        connection,
        [
            {
                **of,
                "of_task": write.task_id,
                "of_idx": write.idx,
                "of_digest": write.value.digest,
                "new_data": write.value.data,
                "new_encoding": int(write.value.encoding),
            }
            for write in packed
        ],
    )


def _packed(digest: bytes, value: Value) -> PackedValue:
    if value_digest(value) != digest:
        raise ValueError(f"a value has another digest than {digest.hex()}")
    packed: Packed = compress(value.data)
    return PackedValue(digest, packed.encoding, packed.data)
