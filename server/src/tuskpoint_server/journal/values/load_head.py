"""Reading a checkpoint that is in memory."""

from __future__ import annotations

from collections.abc import Mapping

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
from ..database.heads import HEAD_BYTES, Head, HeadContent, Heads
from ..database.pending_writes import StoredWrite
from . import contents

_PLAIN = int(Encoding.PLAIN)  # to compare with the member takes four times as long


def load_head(
    heads: Heads, tenant: str, key: CheckpointKey, held: HeldDigests = NONE_HELD
) -> RawCheckpoint | None:
    """Return a checkpoint as `load.load_stored` does; `None` where not all of it is in memory."""
    pair = heads.find(tenant, key)
    if pair is None:
        return None
    head, brought = pair
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
    """Keep the values of a checkpoint that was read, where its thread is being saved to.

    The next checkpoint of the thread may name them. Threads that are only read leave nothing.
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
        return Value(value.type, value.data)  # the digest was made of these bytes
    if value.size > HEAD_BYTES:
        return None
    packed = (value.type, value.size, value.encoding, value.data)
    unpacked = contents.stored_value(head.thread, digest, *packed)
    return None if isinstance(unpacked, AbsentValue) else unpacked
