"""Large values, which a message announces and chunks carry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.message import Message

from tuskpoint.v1 import checkpoint_service_pb2, value_pb2

from ...core import model
from ...core.limits import KIB, LIMITS, MIB

INLINE_VALUE = 256 * KIB  # largest value, in bytes, inside a message of a stream


INLINE_BUDGET = 2 * MIB
"""Most bytes of values inside a message of a stream; further values follow in chunks."""


class ReceivedValue(NamedTuple):
    """A received value, and its digest (`core.values.value_digest`)."""

    type: str
    data: bytes
    digest: bytes


def announced_values(
    request: checkpoint_service_pb2.SaveCheckpointRequest
    | checkpoint_service_pb2.SaveWritesRequest,
) -> list[value_pb2.LargeValue]:
    """Return the large values that a save announces, in the order of their chunks."""
    holders: list[value_pb2.Channel | value_pb2.PendingWrite] = [*request.writes]
    if isinstance(request, checkpoint_service_pb2.SaveCheckpointRequest):
        holders[:0] = request.checkpoint.state.channels
    return [holder.large for holder in holders if holder.HasField("large")]


class Cutter:
    """Places the values of an outgoing message: inline, or announced and cut into chunks."""

    def __init__(
        self, inline_value: int = INLINE_VALUE, inline_budget: int = INLINE_BUDGET
    ) -> None:
        self._inline_value = inline_value
        self._left = inline_budget
        self._large: list[bytes] = []

    def place(self, target: value_pb2.Channel | value_pb2.PendingWrite, value: model.Value) -> None:
        """Put a value into a message, or announce the value there."""
        size = len(value.data)
        if size > self._inline_value or size > self._left:
            target.large.type = value.type
            target.large.size_bytes = size
            self._large.append(value.data)
        else:
            target.value.type = value.type
            target.value.data = value.data
            self._left -= size

    def frames(self, **first: Message) -> Iterator[dict[str, Message]]:
        """Yield the frame of a placed message, then a frame for each chunk, in order."""
        yield first
        for index, data in enumerate(self._large):
            view = memoryview(data)
            for offset in range(0, len(data), LIMITS.max_chunk):
                piece = bytes(view[offset : offset + LIMITS.max_chunk])
                chunk = value_pb2.ValueChunk(value_index=index, offset=offset, data=piece)
                yield {"chunk": chunk}


def uncut_values() -> Cutter:
    """Return a cutter that leaves every value inline, for unary answers."""
    return Cutter(LIMITS.max_value, LIMITS.max_checkpoint)
