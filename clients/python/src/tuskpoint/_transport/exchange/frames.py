"""`ExchangeRequest` messages as bytes, from calls.

The caller serializes a payload once. This module writes the bytes of frames and messages around the
payload itself, because protobuf would copy the payload into a frame, the frame into a message, and
serialize everything again.
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
"""Size up to which a message is filled. A larger frame is the only one in its message."""

_FRAME_BYTES = 512  # more than the bytes that a frame and its message add to a payload


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _tag(message: Any, field: str) -> bytes:
    """Return the tag of a field that contains a message."""
    return _varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | 2)


class Kind(NamedTuple):
    """A kind of call.

    Attributes:
        tag: Tag of the kind's field in `Frame`.
        result: Name of the kind's field in `Answer`.
        saves: Whether a call of this kind changes something, and so has a place in the order of
            changes.
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
    """Bytes of one call.

    Attributes:
        kind: Kind of the call.
        data: Serialized message of the call; for a save with chunks, without the values in the
            chunks.
        size: Size of message and chunks, in bytes.
        chunks: Returns the serialized chunks that follow the message; `None` for no chunks.
    """

    kind: Kind
    data: bytes
    size: int
    chunks: Callable[[], Iterator[bytes]] | None = None


def payload_of(request: Request) -> Payload:
    """Return the payload of a call. Values too large for a message go into chunks.

    Raises:
        ResourceExhausted: The part without chunks is too large for a message.
    """
    data = request.SerializeToString()
    kind, payload = _KINDS[type(request)], None
    # A message that is small as a whole has no large values.
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
    """A call with a number on a stream.

    Attributes:
        id: Number of the call on the stream.
        payload: Payload of the call.
        timeout_s: Seconds that the call may take.
        traceparent: Context of the caller's trace; empty for no trace.
    """

    id: int
    payload: Payload
    timeout_s: float
    traceparent: str


def messages(calls: Iterable[NumberedCall], hello: Hello | None) -> Iterator[bytes]:
    """Yield the messages for calls: one message, unless calls have chunks.

    Args:
        calls: The calls, in the order of their numbers.
        hello: First frame of a stream; `None` if the stream has started.
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
