"""Calls as the bytes of `ExchangeRequest` messages.

A payload is serialized once, by its caller. Frames and messages are put around it by hand, because
protobuf would copy it into a frame, the frame into a message, and serialize all of it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..._messages.checkpoints.large_values import (
    MAX_INLINE_VALUE_BYTES,
    announcement,
    chunks,
    large_values,
)
from ...errors import ResourceExhausted
from ...v1.checkpoint_service_pb2 import (
    ExchangeRequest,
    Frame,
    GetCheckpointRequest,
    Hello,
    SaveCheckpointRequest,
    SaveWritesRequest,
)
from ..channel import MAX_MESSAGE_BYTES
from ..status import explain

Request = SaveCheckpointRequest | SaveWritesRequest | GetCheckpointRequest

MESSAGE_BYTES = 4 * 1024 * 1024
"""What a message is filled up to. A frame that is larger goes alone."""

_FRAME_BYTES = 512  # more than what a frame and its message add to a payload


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _tag(message: Any, field: str) -> bytes:
    """Return the tag of a field that holds a message."""
    return _varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | 2)


class Kind(NamedTuple):
    """A kind of call.

    Attributes:
        tag: The tag of its field in `Frame`.
        result: Name of its field in `Answer`.
        saves: Whether it changes something, so that it has a place in the order of changes.
    """

    tag: bytes
    result: str
    saves: bool


SAVE = Kind(_tag(Frame, "save"), "saved", saves=True)
WRITES = Kind(_tag(Frame, "writes"), "written", saves=True)
GET = Kind(_tag(Frame, "get"), "got", saves=False)
_KINDS = {SaveCheckpointRequest: SAVE, SaveWritesRequest: WRITES, GetCheckpointRequest: GET}
_CHUNK = _tag(Frame, "chunk")
_FRAMES = _tag(ExchangeRequest, "frames")


class Payload(NamedTuple):
    """What one call sends.

    Attributes:
        kind: Which call it is.
        data: Its message, serialized; of a save with chunks without the values in them.
        size: Bytes of it all.
        chunks: Makes the chunks that follow, serialized; `None` for none.
    """

    kind: Kind
    data: bytes
    size: int
    chunks: Callable[[], Iterator[bytes]] | None = None


def payload_of(request: Request) -> Payload:
    """Return what a call sends. Values too large for a message go into chunks.

    Raises:
        ResourceExhausted: What is left is too large for a message.
    """
    data = request.SerializeToString()
    kind, payload = _KINDS[type(request)], None
    # A message that is small as a whole needs no look at its values.
    if len(data) > MAX_INLINE_VALUE_BYTES and not isinstance(request, GetCheckpointRequest):
        large = large_values(request)
        if large:
            head = announcement(request, large).SerializeToString()
            payload = Payload(kind, head, len(data), lambda: _serialized(request, large))
    payload = payload or Payload(kind, data, len(data))
    if len(payload.data) > MAX_MESSAGE_BYTES - _FRAME_BYTES:
        size = f"{len(payload.data)} bytes, where {MAX_MESSAGE_BYTES - _FRAME_BYTES} are allowed"
        raise ResourceExhausted(
            explain("RESOURCE_EXHAUSTED", size, ""), status="RESOURCE_EXHAUSTED"
        )
    return payload


def _serialized(
    request: SaveCheckpointRequest | SaveWritesRequest, large: list[int]
) -> Iterator[bytes]:
    for chunk in chunks(request, large):
        yield chunk.SerializeToString()


class NumberedCall(NamedTuple):
    """A call that has its place on a stream.

    Attributes:
        id: Number of the call on the stream.
        payload: What it sends.
        timeout_s: Seconds that it may take.
        traceparent: Context of the caller's trace; empty for none.
    """

    id: int
    payload: Payload
    timeout_s: float
    traceparent: str


def messages(calls: Iterable[NumberedCall], hello: Hello | None) -> Iterator[bytes]:
    """Yield the messages that carry these calls: one, unless they have chunks.

    Args:
        calls: The calls, in the order of their numbers.
        hello: What a stream begins with; `None` if it has begun.
    """
    begin = b"" if hello is None else ExchangeRequest(hello=hello).SerializeToString()
    parts, size = [begin], 0
    for call in calls:
        for frame in _frames(call):
            if size and size + len(frame) > MESSAGE_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
            parts += (_FRAMES, _varint(len(frame)), frame)
            size += len(frame)
    yield b"".join(parts)


def _frames(call: NumberedCall) -> Iterator[bytes]:
    kind, data, _, rest = call.payload
    head = Frame(id=call.id, traceparent=call.traceparent)
    seconds = int(call.timeout_s)
    head.timeout.seconds = seconds
    head.timeout.nanos = int((call.timeout_s - seconds) * 1e9)
    yield b"".join((head.SerializeToString(), kind.tag, _varint(len(data)), data))
    if rest is not None:
        number = Frame(id=call.id).SerializeToString()
        for chunk in rest():
            yield b"".join((number, _CHUNK, _varint(len(chunk)), chunk))
