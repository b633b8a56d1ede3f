"""Loads checkpoints from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, select

from tuskpoint.v1.checkpoint_pb2 import CheckpointState

from ...core.model import (
    NONE_HELD,
    AbsentValue,
    CheckpointKey,
    HeldDigests,
    HeldValue,
    Value,
    Write,
    write_order,
)
from ...core.state import RawCheckpoint
from ...core.values import Encoding
from ..database.database import Database
from ..database.heads import HEAD_BYTES, Head, HeadContent, Heads
from ..database.pending_writes import StoredWrite
from ..sql.schema import threads
from ..sql.statements import LISTED, Statement
from . import contents

_PLAIN = int(Encoding.PLAIN)  # comparing with the enum member takes four times as long

_BINDINGS = Statement(
    select(threads.c.thread_id, threads.c.binding).where(
        threads.c.tenant == bindparam("of_tenant"), threads.c.thread_id.in_(LISTED)
    )
)


def load_head(
    heads: Heads, tenant: str, key: CheckpointKey, held: HeldDigests = NONE_HELD
) -> RawCheckpoint | None:
    """Return a checkpoint as `load.load_stored` does; `None` if not all of it is in memory.

    No other server may change the journal; see `load_current_heads`.
    """
    pair = heads.find(tenant, key)
    return None if pair is None else _checkpoint_of(*pair, held)


async def load_current_heads(
    database: Database, tenant: str, keys: Sequence[CheckpointKey], held: Sequence[HeldDigests]
) -> list[RawCheckpoint | None]:
    """Return checkpoints as `load_head` does, if other servers may have changed the journal.

    One statement shows for all checkpoints that no server has changed their threads since. The row
    of a thread gets another `binding`, with a nonce, whenever a server writes content that an
    answer about an uncertified checkpoint has.
    """
    heads = database.heads
    kept: dict[int, tuple[Head, RawCheckpoint]] = {}
    for index, key in enumerate(keys):
        pair = heads.find(tenant, key)
        if pair is not None and (checkpoint := _checkpoint_of(*pair, held[index])) is not None:
            kept[index] = (pair[0], checkpoint)
    current: list[RawCheckpoint | None] = [None] * len(keys)
    if not kept:
        return current
    thread_ids = {keys[index].thread_id for index in kept}
    rows = await database.listed_rows(_BINDINGS, thread_ids, of_tenant=tenant)
    bindings: dict[str, bytes | None] = dict(rows)
    for index, (head, checkpoint) in kept.items():
        if head.binding is not None and bindings.get(keys[index].thread_id) == head.binding:
            current[index] = checkpoint
        else:
            heads.drop(tenant, head)
    return current


def _checkpoint_of(
    head: Head, brought: Mapping[bytes, HeadContent], held: HeldDigests
) -> RawCheckpoint | None:
    """Return the checkpoint of a head; `None` if not all of its values are in memory."""
    state = CheckpointState.FromString(head.state)
    size = len(head.state) + len(head.entry.metadata)
    values: dict[bytes, Value] = {}
    for channel in state.channels:
        if (digest := channel.digest) and digest not in held:
            value = _value(head, digest, brought)
            if value is None:
                return None
            values[digest] = value
            size += len(value.data)
    writes: list[Write] = []
    for write in head.writes:
        place = (write.task_id, write.task_path, write.idx, write.channel)
        if write.digest in held:
            writes.append(Write(*place, HeldValue(write.size), write.digest))
            continue
        value = _value(head, write.digest, brought)
        if value is None:
            return None
        writes.append(Write(*place, value, write.digest))
        size += len(value.data)
    if size > HEAD_BYTES:
        return None
    writes.sort(key=write_order)
    return RawCheckpoint(head.entry, state, values, tuple(writes))


def learn(heads: Heads, tenant: str, loaded: RawCheckpoint) -> None:
    """Keep the values of a loaded checkpoint, if its thread has a head in memory.

    The next checkpoint of the thread may name the values. Threads that are only read keep nothing
    in memory.
    """
    name = (tenant, loaded.entry.key.thread_id)
    if not heads.has(name):
        return
    for digest, value in loaded.values.items():
        heads.bring(name, digest, value)
    for write in loaded.writes:
        if not isinstance(write.value, HeldValue):
            heads.bring(name, write.digest, write.value)


def _value(head: Head, digest: bytes, brought: Mapping[bytes, HeadContent]) -> Value | None:
    value = brought.get(digest)
    if not isinstance(value, StoredWrite):
        return value
    if value.encoding == _PLAIN and value.data is not None:
        return Value(value.type, value.data)  # the digest was computed from these bytes
    if value.size > HEAD_BYTES:
        return None
    packed = (value.type, value.size, value.encoding, value.data)
    unpacked = contents.stored_value(head.thread, digest, *packed)
    return None if isinstance(unpacked, AbsentValue) else unpacked
