"""Histories of delta channels, cut into frames."""

from __future__ import annotations

from collections.abc import Iterator

from tuskpoint.v1 import checkpoint_service_pb2 as pb

from ..domain.model import DeltaHistory
from . import convert
from .chunks import INLINE_BUDGET, Cutter

_FRAME_WRITES = 512
_FRAME_BYTES = INLINE_BUDGET


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
