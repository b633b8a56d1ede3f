"""Assembles the large values of a save from the chunks that follow the save."""

from __future__ import annotations

from collections.abc import Sequence

from tuskpoint.v1 import value_pb2

from ...core.errors import Reason, Refusal, invalid_field
from ...core.limits import LIMITS
from ...core.values import begin_digest
from ..messages.chunks import ReceivedValue


class Assembly:
    """Accepts the chunks of one save, in order and without gaps.

    Args:
        number: The save's number on its stream, for errors.
        announced: The values that the save announces, with checked sizes. Empty values have no
            chunks.

    Attributes:
        received: The complete values, in the order of their announcement.
    """

    def __init__(self, number: int, announced: Sequence[value_pb2.LargeValue]) -> None:
        self._number = number
        self._announced = announced
        self.received: list[ReceivedValue] = []
        self._begin()

    @property
    def is_complete(self) -> bool:
        """Whether all values are complete."""
        return len(self.received) == len(self._announced)

    def add(self, chunk: value_pb2.ValueChunk) -> int:
        """Accept the next chunk and return its bytes; refuse any other chunk."""
        data, index = chunk.data, len(self.received)
        size = len(data)
        if not 1 <= size <= LIMITS.max_chunk:
            raise invalid_field("chunk.data", f"must be 1 to {LIMITS.max_chunk} bytes")
        if chunk.value_index != index or chunk.offset != self._offset:
            raise Refusal(
                Reason.CHUNK_OUT_OF_ORDER,
                save_id=self._number,
                expected_value=index,
                expected_offset=self._offset,
                value=chunk.value_index,
                offset=chunk.offset,
            )
        if size > self._left:
            raise invalid_field(
                "chunk.data",
                f"value {index} of save {self._number} was announced with "
                f"{self._offset + self._left} bytes; {self._left} of them are left",
            )
        self._pieces.append(data)
        self._digest.update(data)
        self._offset += size
        self._left -= size
        if not self._left:
            self._finish()
            self._begin()
        return size

    def _begin(self) -> None:
        """Start the next value that has chunks; values without chunks are complete."""
        while not self.is_complete:
            value = self._announced[len(self.received)]
            self._type, self._offset, self._left = value.type, 0, value.size_bytes
            self._pieces: list[bytes] = []
            self._digest = begin_digest(value.type)
            if self._left:
                return
            self._finish()

    def _finish(self) -> None:
        data, self._pieces = b"".join(self._pieces), []
        self.received.append(ReceivedValue(self._type, data, self._digest.digest()))
