"""Answers that several calls give."""

from __future__ import annotations

from collections.abc import Iterator

from tuskpoint.v1 import checkpoint_pb2, errors_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb

from ..domain.limits import LIMITS
from ..domain.model import Checkpoint, DeltaHistory
from ..service.checkpoints import SaveOutcome
from . import convert
from .checks import limit_exceeded
from .chunks import INLINE_BUDGET, Cutter

_FRAME_WRITES = 512
_FRAME_BYTES = INLINE_BUDGET
_FRAME_OVERHEAD = 256
"""Bytes that the frame around a checkpoint takes, at most."""


def checkpoint_header(loaded: Checkpoint, cutter: Cutter) -> checkpoint_pb2.Checkpoint:
    """Return the message that begins a checkpoint on a stream.

    Raises:
        Refusal: `LIMIT_EXCEEDED` if it does not fit a message.
    """
    message = convert.checkpoint(loaded, cutter)
    size = message.ByteSize()
    if size > LIMITS.max_message - _FRAME_OVERHEAD:
        raise limit_exceeded(
            f"the checkpoint without its large values: {size} bytes",
            "max_message_bytes",
            LIMITS.max_message,
        )
    return message


def save_response(outcome: SaveOutcome) -> pb.SaveCheckpointResponse:
    """Return the answer to the save of a checkpoint."""
    saved = outcome.saved
    return pb.SaveCheckpointResponse(
        ref=convert.ref(saved.key),
        durability=convert.DURABILITIES[outcome.durability],
        seq=saved.seq,
        incarnation=saved.incarnation,
        catalog_blob_id=outcome.catalog_blob_id,
        warnings=_warnings(outcome),
    )


def writes_response(outcome: SaveOutcome) -> pb.SaveWritesResponse:
    """Return the answer to the save of pending writes."""
    return pb.SaveWritesResponse(
        durability=convert.DURABILITIES[outcome.durability],
        seq=outcome.saved.seq,
        early=outcome.saved.early,
        catalog_blob_id=outcome.catalog_blob_id,
        warnings=_warnings(outcome),
    )


def _warnings(outcome: SaveOutcome) -> list[errors_pb2.Warning]:
    if not outcome.backlog_warning:
        return []
    return [
        errors_pb2.Warning(
            kind=errors_pb2.WARNING_KIND_BACKLOG,
            message="much is waiting for certification; saves are refused if it grows on",
        )
    ]


def history_frames(history: DeltaHistory) -> Iterator[pb.GetDeltaHistoryResponse]:
    """Yield the frames of one channel: its history in parts, each with its chunks.

    A part ends at 512 writes or 2 MiB of content; only the first has the seed. A channel
    without history has one empty part.
    """
    cutter = Cutter()
    part = pb.DeltaChannelHistory(channel=history.channel)
    if history.seed is not None:
        convert.fill_channel(part.seed, history.seed, cutter)
    content = 0
    for write in history.writes:
        if len(part.writes) >= _FRAME_WRITES or content >= _FRAME_BYTES:
            yield from _frames(part, cutter)
            cutter, content = Cutter(), 0
            part = pb.DeltaChannelHistory(channel=history.channel)
        convert.fill_write(part.writes.add(), write, cutter)
        content += len(write.value.data)
    yield from _frames(part, cutter)


def _frames(part: pb.DeltaChannelHistory, cutter: Cutter) -> Iterator[pb.GetDeltaHistoryResponse]:
    yield pb.GetDeltaHistoryResponse(history=part)
    for chunk in cutter.chunks():
        yield pb.GetDeltaHistoryResponse(chunk=chunk)
