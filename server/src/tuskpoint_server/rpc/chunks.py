"""Large values in pieces: cut on the way out, put together on the way in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuskpoint.v1 import value_pb2

from ..domain.errors import Reason, Refusal, invalid_field
from ..domain.limits import KIB, LIMITS, MIB
from ..domain.model import Value

INLINE_VALUE = 256 * KIB
"""Largest value, in bytes, that a stream's message carries itself."""

INLINE_BUDGET = 2 * MIB
"""Bytes of values that a stream's message carries itself; the rest follows in chunks."""


class Cutter:
    """Places the values of one outgoing message: inline, or announced and cut.

    Args:
        inline_value: Largest value that goes inline.
        inline_budget: Bytes of values that may go inline in total.
    """

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

    def chunks(self) -> Iterator[value_pb2.ValueChunk]:
        """Yield the chunks of the announced values, in order."""
        for index, data in enumerate(self._large):
            view = memoryview(data)
            for offset in range(0, len(data), LIMITS.max_chunk):
                yield value_pb2.ValueChunk(
                    value_index=index,
                    offset=offset,
                    data=bytes(view[offset : offset + LIMITS.max_chunk]),
                )


def whole() -> Cutter:
    """Return a cutter that leaves every value inline, for unary answers."""
    return Cutter(LIMITS.max_value, LIMITS.max_checkpoint)


@dataclass(frozen=True, slots=True)
class Received:
    """A value that came in chunks, and its digest (`domain.values.value_digest`)."""

    value: Value
    digest: bytes


class _Incoming:
    """One announced value: what came of it so far, hashed as it came."""

    def __init__(self, announced: value_pb2.LargeValue) -> None:
        self.type = announced.type
        self.size = announced.size_bytes
        self.offset = 0
        self._pieces: list[bytes] = []
        self._hash = hashlib.sha256(announced.type.encode())
        self._hash.update(b"\0")

    def add(self, data: bytes) -> None:
        self._pieces.append(data)
        self._hash.update(data)
        self.offset += len(data)

    def finish(self) -> Received:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return Received(Value(self.type, data), self._hash.digest())


class Assembly:
    """Puts the announced values of one save together.

    Chunks must come in order and without gaps; sizes are those announced, which were
    checked against the limits before. A save that was refused is told by `refused`: its
    chunks are checked and dropped.

    Args:
        save_id: Number of the save, for messages.
        announced: Its large values, in order.
        refused: The save was answered with an error already.
    """

    def __init__(
        self, save_id: int, announced: Sequence[value_pb2.LargeValue], *, refused: bool = False
    ) -> None:
        self.save_id = save_id
        self.refused = refused
        self._announced = announced
        self._done: list[Received] = []
        self._index = 0
        self._current: _Incoming | None = None
        if not refused:
            self._advance()

    @property
    def complete(self) -> bool:
        """Whether every announced byte has come."""
        return not self.refused and self._index == len(self._announced)

    def received(self) -> Sequence[Received]:
        """Return the values, in order, once complete."""
        return self._done

    def add(self, chunk: value_pb2.ValueChunk) -> None:
        """Take the next chunk.

        Raises:
            Refusal: `CHUNK_OUT_OF_ORDER` or `INVALID_FIELD`: the stream breaks the protocol.
        """
        if not 1 <= len(chunk.data) <= LIMITS.max_chunk:
            raise invalid_field("chunk.data", f"must be 1 to {LIMITS.max_chunk} bytes")
        if self.refused:
            return
        current = self._current
        if current is None:
            raise invalid_field("chunk", f"save {self.save_id} waits for no chunks")
        if chunk.value_index != self._index or chunk.offset != current.offset:
            raise Refusal(
                Reason.CHUNK_OUT_OF_ORDER,
                save_id=self.save_id,
                expected_value=self._index,
                expected_offset=current.offset,
                value=chunk.value_index,
                offset=chunk.offset,
            )
        if len(chunk.data) > current.size - current.offset:
            raise invalid_field(
                "chunk.data",
                f"value {self._index} of save {self.save_id} was announced with "
                f"{current.size} bytes; {current.size - current.offset} of them are left",
            )
        current.add(chunk.data)
        if current.offset == current.size:
            self._done.append(current.finish())
            self._index += 1
            self._advance()

    def _advance(self) -> None:
        """Go to the next value that has bytes; empty values have no chunks."""
        while self._index < len(self._announced):
            self._current = _Incoming(self._announced[self._index])
            if self._current.size:
                return
            self._done.append(self._current.finish())
            self._index += 1
        self._current = None
