"""Cache of the values that a client has: loads name the digests, and the server omits the values.

No I/O. The client computes the digest of a value itself, so that a cached value cannot be outdated
or be mistaken for another value.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from ...errors import ServerError
from ...v1.checkpoint_pb2 import Checkpoint
from ...v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveWritesRequest
from ...v1.value_pb2 import Channel, PendingWrite, Value
from .saving import value_digest

DEFAULT_BYTES = 16 * 1024 * 1024
"""Default for the bytes of values that a client keeps."""

MIN_VALUE_BYTES = 1024  # naming a digest costs 34 bytes in each load
MAX_DIGESTS = 256  # limit of `GetCheckpointRequest.held_digests`
_SHARE = 4  # a value above this part of the whole cache is not kept

_Place = tuple[str, ...]
"""Position of a value: a channel's name, or a write's checkpoint, task, position and channel."""

_Holder = Channel | PendingWrite
"""Message that can contain a value."""

_Namespace = tuple[str, str]
"""A thread, and a namespace in the thread."""


class CachedValue:
    """A value, and its digest after the first use of the digest."""

    __slots__ = ("_digest", "data", "type")

    def __init__(self, kind: str, data: bytes) -> None:
        self.type = kind
        self.data = data
        self._digest = b""

    @property
    def digest(self) -> bytes:
        """Digest of the value. Two threads that need it at once compute it twice."""
        if not self._digest:
            self._digest = value_digest(self.type, self.data)
        return self._digest


HeldValues = Mapping[bytes, CachedValue]
"""Values by digest, as a load names them."""


class ValueCache:
    """Larger values of the checkpoint that each thread saved or loaded last. Thread-safe.

    A full cache drops the values of the least recently used thread first.

    Args:
        max_bytes: Maximum size of all values together; 0 keeps none.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._max_value_bytes = max_bytes // _SHARE
        self._lock = threading.Lock()
        self._size = 0
        self._checkpoints: OrderedDict[_Namespace, dict[_Place, CachedValue]] = OrderedDict()

    def held_for(self, thread_id: str, checkpoint_ns: str) -> HeldValues:
        """Return the values that a load of a thread names: the largest, if there are too many."""
        with self._lock:
            values = self._checkpoints.get((thread_id, checkpoint_ns))
            if values is None:
                return {}
            self._checkpoints.move_to_end((thread_id, checkpoint_ns))
            kept = [*values.values()]
        if len(kept) > MAX_DIGESTS:
            kept = sorted(kept, key=lambda value: len(value.data), reverse=True)[:MAX_DIGESTS]
        return {value.digest: value for value in kept}

    def add_saved(self, request: SaveCheckpointRequest, checkpoint_id: str) -> None:
        """Add the values of a checkpoint that was saved with this ID."""
        if not self._max_bytes:
            return
        checkpoint = request.checkpoint
        namespace = (checkpoint.ref.thread_id, checkpoint.ref.checkpoint_ns)
        new = self._new_writes(checkpoint_id, request.writes)
        unchanged: list[_Place] = []
        for channel in checkpoint.state.channels:
            content = channel.WhichOneof("content")
            if content == "value":
                if value := self._new_value(channel.value):
                    new[channel.name,] = value
            elif content != "empty":
                unchanged.append((channel.name,))
        with self._lock:
            known = self._checkpoints.get(namespace, {})
            kept = {place: known[place] for place in unchanged if place in known}
            # Writes may be saved before their checkpoint.
            kept |= {
                place: value
                for place, value in known.items()
                if len(place) > 1 and place[0] == checkpoint_id
            }
            self._put(namespace, kept | new)

    def add_written(self, request: SaveWritesRequest) -> None:
        """Add the values of writes that were saved."""
        if not self._max_bytes:
            return
        ref = request.ref
        new = self._new_writes(ref.checkpoint_id, request.writes)
        if new:
            namespace = (ref.thread_id, ref.checkpoint_ns)
            with self._lock:
                self._put(namespace, self._checkpoints.get(namespace, {}) | new)

    def add_loaded(self, checkpoint: Checkpoint, held: HeldValues) -> None:
        """Add all values of a loaded checkpoint; `held` has the values that the load named."""
        if not self._max_bytes:
            return
        checkpoint_id = checkpoint.ref.checkpoint_id
        new: dict[_Place, CachedValue] = {}
        for channel in checkpoint.state.channels:
            if value := self._kept_value(channel, held):
                new[channel.name,] = value
        for position, write in enumerate(checkpoint.writes):
            if value := self._kept_value(write, held):
                new[_written_at(checkpoint_id, position, write)] = value
        with self._lock:
            self._put((checkpoint.ref.thread_id, checkpoint.ref.checkpoint_ns), new)

    def _new_writes(
        self, checkpoint_id: str, writes: Iterable[PendingWrite]
    ) -> dict[_Place, CachedValue]:
        new: dict[_Place, CachedValue] = {}
        for position, write in enumerate(writes):
            if value := self._new_value(write.value):
                new[_written_at(checkpoint_id, position, write)] = value
        return new

    def _kept_value(self, holder: _Holder, held: HeldValues) -> CachedValue | None:
        """Return the value of a holder: the value that the load named, or a new value to keep."""
        return held.get(holder.digest) or self._new_value(holder.value)

    def _new_value(self, value: Value) -> CachedValue | None:
        """Return a value if its size allows keeping it."""
        data = value.data
        if MIN_VALUE_BYTES <= len(data) <= self._max_value_bytes:
            return CachedValue(value.type, data)
        return None

    def _put(self, namespace: _Namespace, values: dict[_Place, CachedValue]) -> None:
        """Replace the values of a namespace, and drop others if the cache is full."""
        self._size -= _size_of(self._checkpoints.pop(namespace, {}))
        size, kept = 0, dict[_Place, CachedValue]()
        for place, value in values.items():
            if size + len(value.data) <= self._max_bytes:
                kept[place] = value
                size += len(value.data)
        if not kept:
            return
        self._checkpoints[namespace] = kept
        self._size += size
        while self._size > self._max_bytes:
            _, oldest = self._checkpoints.popitem(last=False)
            self._size -= _size_of(oldest)


def fill_held(checkpoint: Checkpoint, held: HeldValues) -> None:
    """Put the values that the server omitted into a checkpoint.

    Raises:
        ServerError: The server omitted a value that the load did not name.
    """
    holders: list[_Holder] = [*checkpoint.state.channels, *checkpoint.writes]
    for holder in holders:
        if holder.WhichOneof("content") is None and holder.digest:
            value = held.get(holder.digest)
            if value is None:
                name = holder.name if isinstance(holder, Channel) else holder.channel
                raise ServerError(
                    f"the server left out a value of {name!r} that the client did not name; "
                    "nothing of the checkpoint was used",
                    status="INTERNAL",
                )
            holder.ClearField("size_bytes")
            holder.value.type, holder.value.data = value.type, value.data


def _written_at(checkpoint_id: str, position: int, write: PendingWrite) -> _Place:
    at = write.idx if write.HasField("idx") else position
    return (checkpoint_id, write.task_id, str(at), write.channel)


def _size_of(values: Mapping[_Place, CachedValue]) -> int:
    return sum(len(value.data) for value in values.values())
