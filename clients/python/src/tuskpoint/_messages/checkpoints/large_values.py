"""Large values: cut into chunks for requests, assembled from the chunks of answers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from ...errors import ServerError
from ...v1.checkpoint_pb2 import Checkpoint
from ...v1.checkpoint_service_pb2 import (
    DeltaChannelHistory,
    GetDeltaHistoryResponse,
    SaveCheckpointRequest,
    SaveWritesRequest,
)
from ...v1.history_service_pb2 import ThreadEvent
from ...v1.value_pb2 import Channel, PendingWrite, ValueChunk

CHUNK_BYTES = 1024 * 1024
MAX_INLINE_VALUE_BYTES = 1024 * 1024
MAX_INLINE_BYTES = 2 * 1024 * 1024

Save = SaveCheckpointRequest | SaveWritesRequest
Holder = Channel | PendingWrite
WholeT = TypeVar("WholeT", bound=Message)


def announcement(request: Save, large: list[int]) -> Save:
    """Return a save that announces large values instead of containing them.

    Args:
        request: The save, with all values inline. The function does not change it.
        large: The positions that `large_values` returned.
    """
    announced = deepcopy(request)
    holders = _holders(announced)
    for position in large:
        value = holders[position].value
        kind, size = value.type, len(value.data)
        holders[position].large.type = kind
        holders[position].large.size_bytes = size
    return announced


def chunks(request: Save, large: list[int]) -> Iterator[ValueChunk]:
    """Yield the chunks of the announced values."""
    holders = _holders(request)
    for index, position in enumerate(large):
        data = memoryview(holders[position].value.data)
        for offset in range(0, len(data), CHUNK_BYTES):
            piece = bytes(data[offset : offset + CHUNK_BYTES])
            yield ValueChunk(value_index=index, offset=offset, data=piece)


def _holders(request: Save) -> list[Holder]:
    """Return the fields that can contain a value, in the order of the numbers of large values."""
    if isinstance(request, SaveCheckpointRequest):
        return [*request.checkpoint.state.channels, *request.writes]
    return list(request.writes)


def large_values(request: Save) -> list[int]:
    """Return the positions, ascending, of the holders whose values must be sent in chunks."""
    sizes = [
        (holder.value.ByteSize(), position)
        for position, holder in enumerate(_holders(request))
        if holder.WhichOneof("content") == "value"
    ]
    inline_bytes = sum(size for size, _ in sizes)
    large = []
    for size, position in sorted(sizes, reverse=True):
        if size <= MAX_INLINE_VALUE_BYTES and inline_bytes <= MAX_INLINE_BYTES:
            break
        large.append(position)
        inline_bytes -= size
    return sorted(large)


class _LargeValues:
    """Large values of one message, filled in the order of their chunks."""

    def __init__(self, holders: Iterable[Holder]) -> None:
        self._open = [holder for holder in holders if holder.WhichOneof("content") == "large"]
        self._index = 0
        self._data = bytearray()
        self._close_full()

    @property
    def full(self) -> bool:
        return self._index == len(self._open)

    def add(self, chunk: ValueChunk) -> None:
        if self.full:
            raise _violation("a chunk that was not announced")
        if chunk.value_index != self._index or chunk.offset != len(self._data):
            raise _violation(
                f"a chunk of value {chunk.value_index} at {chunk.offset} where value "
                f"{self._index} at {len(self._data)} was due"
            )
        if not chunk.data:
            raise _violation("an empty chunk")
        self._data += chunk.data
        announced = self._open[self._index].large.size_bytes
        if len(self._data) > announced:
            raise _violation(f"more than the {announced} bytes of value {self._index}")
        self._close_full()

    def _close_full(self) -> None:
        while not self.full:
            holder = self._open[self._index]
            if len(self._data) < holder.large.size_bytes:
                return
            holder.value.type, holder.value.data = holder.large.type, bytes(self._data)
            self._data.clear()
            self._index += 1


class _Assembler(Generic[WholeT]):
    """Assembles complete messages, with all values inline, from frames.

    Args:
        kind: Name of the frame that carries a message; also the name of the message in errors.
        holders: Returns the fields of a message that can contain a value, in the order of their
            numbers.
    """

    def __init__(self, kind: str, holders: Callable[[WholeT], Iterable[Holder]]) -> None:
        self._kind = kind
        self._holders = holders
        self._current: WholeT | None = None
        self._filling = _LargeValues(())

    def add(self, frame: Any) -> WholeT | None:
        """Add the next frame; return the message if the frame completes it.

        Raises:
            ServerError: The frame breaks the contract.
        """
        kind = frame.WhichOneof("frame")
        if kind == self._kind:
            if self._current is not None:
                raise _violation(f"{_article(kind)} in the middle of another's values")
            self._current = getattr(frame, kind)
            self._filling = _LargeValues(self._holders(getattr(frame, kind)))
        elif kind == "chunk":
            self._filling.add(frame.chunk)
        else:
            raise _violation("an empty frame")
        if not self._filling.full:
            return None
        complete, self._current = self._current, None
        return complete

    def end(self) -> None:
        """End the stream.

        Raises:
            ServerError: A message is incomplete.
        """
        if self._current is not None:
            raise _violation(f"the end in the middle of {_article(self._kind)}'s values")


class CheckpointAssembler(_Assembler[Checkpoint]):
    """Assembles complete checkpoints, with all values inline, from frames."""

    def __init__(self) -> None:
        super().__init__("checkpoint", _of_checkpoint)


class EventAssembler(_Assembler[ThreadEvent]):
    """Assembles complete events, with all values of their checkpoints inline, from frames."""

    def __init__(self) -> None:
        super().__init__("event", lambda event: _of_checkpoint(event.checkpoint))


class DeltaHistoryAssembler:
    """Assembles one complete history per channel from frames of `GetDeltaHistory`."""

    def __init__(self) -> None:
        self._assembler = _Assembler("history", _of_history)
        self._whole: dict[str, DeltaChannelHistory] = {}

    def add(self, frame: GetDeltaHistoryResponse) -> None:
        """Add the next frame.

        Raises:
            ServerError: The frame breaks the contract.
        """
        complete = self._assembler.add(frame)
        if complete is not None:
            self._merge(complete)

    def end(self) -> list[DeltaChannelHistory]:
        """End the stream; return the histories in the order of their arrival.

        Raises:
            ServerError: A history is incomplete.
        """
        self._assembler.end()
        return list(self._whole.values())

    def _merge(self, part: DeltaChannelHistory) -> None:
        whole = self._whole.get(part.channel)
        if whole is None:
            self._whole[part.channel] = part
        elif part.HasField("seed"):
            raise _violation(f"a second seed for channel '{part.channel}'")
        elif part.channel != next(reversed(self._whole)):
            raise _violation(f"more of channel '{part.channel}' after another channel")
        else:
            whole.writes.extend(part.writes)


def _of_checkpoint(checkpoint: Checkpoint) -> list[Holder]:
    return [*checkpoint.state.channels, *checkpoint.writes]


def _of_history(history: DeltaChannelHistory) -> list[Holder]:
    seed = [history.seed] if history.HasField("seed") else []
    return [*seed, *history.writes]


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _violation(what: str) -> ServerError:
    return ServerError(
        f"the server's stream breaks the contract: {what}; nothing of it was used",
        status="INTERNAL",
    )
