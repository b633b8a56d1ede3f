"""Large values in pieces: cut on the way out, put together on the way in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from google.protobuf.message import Message

from tuskpoint.v1 import value_pb2

from ..domain.errors import Reason, Refusal, invalid_field
from ..domain.limits import KIB, LIMITS, MIB
from ..domain.model import Value

INLINE_VALUE = 256 * KIB  # largest value, in bytes, that a stream's message carries itself

INLINE_BUDGET = 2 * MIB
"""Bytes of values that a stream's message carries itself; the rest follows in chunks."""


class Cutter:
    """Places the values of one outgoing message: inline, or announced and cut."""

    def __init__(
        self, inline_value: int = INLINE_VALUE, inline_budget: int = INLINE_BUDGET
    ) -> None:
        self._inline_value = inline_value
        self._left = inline_budget
        self._large: list[bytes] = []

    def place(self, target: value_pb2.Channel | value_pb2.PendingWrite, value: Value) -> None:
        """Put a value into a message, or announce it there."""
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
        """Yield the frame of a message that is placed, and one for each chunk, in order."""
        yield first
        for index, data in enumerate(self._large):
            view = memoryview(data)
            for offset in range(0, len(data), LIMITS.max_chunk):
                piece = bytes(view[offset : offset + LIMITS.max_chunk])
                chunk = value_pb2.ValueChunk(value_index=index, offset=offset, data=piece)
                yield {"chunk": chunk}


def whole() -> Cutter:
    """Return a cutter that leaves every value inline, for unary answers."""
    return Cutter(LIMITS.max_value, LIMITS.max_checkpoint)


class Received(NamedTuple):
    """A value that came in chunks, and its digest (`domain.values.value_digest`)."""

    value: Value
    digest: bytes


class Assembly:
    """Puts the announced values of one save together, into `received`.

    Chunks must come in order and without gaps; sizes are those announced, which were
    checked against the limits before. Of a save that was `refused` chunks are checked and dropped.
    """

    def __init__(
        self, save_id: int, announced: Sequence[value_pb2.LargeValue], *, refused: bool = False
    ) -> None:
        self.save_id = save_id
        self.refused = refused
        self.received: list[Received] = []
        self._announced = announced
        self._begin()

    @property
    def complete(self) -> bool:
        return not self.refused and len(self.received) == len(self._announced)

    def add(self, chunk: value_pb2.ValueChunk) -> None:
        """Take the next chunk."""
        if not 1 <= len(chunk.data) <= LIMITS.max_chunk:
            raise invalid_field("chunk.data", f"must be 1 to {LIMITS.max_chunk} bytes")
        if self.refused:
            return
        if self.complete:
            raise invalid_field("chunk", f"save {self.save_id} waits for no chunks")
        index = len(self.received)
        if chunk.value_index != index or chunk.offset != self._offset:
            raise Refusal(
                Reason.CHUNK_OUT_OF_ORDER,
                save_id=self.save_id,
                expected_value=index,
                expected_offset=self._offset,
                value=chunk.value_index,
                offset=chunk.offset,
            )
        size = self._announced[index].size_bytes
        if len(chunk.data) > size - self._offset:
            raise invalid_field(
                "chunk.data",
                f"value {index} of save {self.save_id} was announced with "
                f"{size} bytes; {size - self._offset} of them are left",
            )
        self._pieces.append(chunk.data)
        self._hash.update(chunk.data)
        self._offset += len(chunk.data)
        if self._offset == size:
            self._finish()

    def _begin(self) -> None:
        """Begin the next value that has bytes; empty values have no chunks."""
        self._offset = 0
        self._pieces: list[bytes] = []
        if len(self.received) < len(self._announced):
            announced = self._announced[len(self.received)]
            self._hash = hashlib.sha256(announced.type.encode() + b"\0")
            if not announced.size_bytes:
                self._finish()

    def _finish(self) -> None:
        kind = self._announced[len(self.received)].type
        self.received.append(Received(Value(kind, b"".join(self._pieces)), self._hash.digest()))
        self._begin()
