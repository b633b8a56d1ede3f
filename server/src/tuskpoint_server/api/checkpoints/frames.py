"""Calls on an `Exchange` stream: the kinds of frames, and frames that wait for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tuskpoint.v1 import checkpoint_service_pb2 as pb

from ...core.model import Durability, SaveOutcome
from ...features.checkpoints.incoming import IncomingCheckpoint, IncomingWrites
from ..messages.chunks import ReceivedValue
from ..messages.saves import take_checkpoint, take_writes
from ..middleware.telemetry import CallMeasurement

_SERVICE = "/tuskpoint.v1.CheckpointService"
METHODS = {
    "save": f"{_SERVICE}/SaveCheckpoint",
    "writes": f"{_SERVICE}/SaveWrites",
    "get": f"{_SERVICE}/GetCheckpoint",
}
DRAINING = pb.ExchangeResponse(draining=True).SerializeToString()
MIN_SESSION_BYTES, MAX_SESSION_BYTES = 16, 64


@dataclass(slots=True, eq=False)
class Frame:
    """A call on the stream without its last answer."""

    id: int
    kind: str
    size: int  # bytes of the frame and its chunks
    ends_at: float  # deadline, by the clock of the event loop
    measured: CallMeasurement
    named: tuple[str, ...] = ()  # threads in the request, for the audit trail
    counts: bool = True  # counted against the bounds on frames without an answer
    wanted: Durability = Durability.JOURNALED
    journaled: bool = False  # the frame has its first answer and waits for certification
    commit: asyncio.Future[SaveOutcome] | None = None  # request of a save
    # the commit, the load or the wait for certification
    work: asyncio.Future[SaveOutcome] | asyncio.Future[None] | None = None


SaveRequest = pb.SaveCheckpointRequest | pb.SaveWritesRequest
Request = SaveRequest | pb.GetCheckpointRequest
IncomingSave = IncomingCheckpoint | IncomingWrites


def take(request: SaveRequest) -> IncomingSave | None:
    """Convert a save of either kind; `None` if its large values must arrive first, in chunks."""
    if isinstance(request, pb.SaveCheckpointRequest):
        return take_checkpoint(request, streamed=True)
    return take_writes(request, streamed=True)


def take_with(request: SaveRequest, received: Sequence[ReceivedValue]) -> IncomingSave:
    """Convert a save whose large values arrived in chunks."""
    save: IncomingSave | None
    if isinstance(request, pb.SaveCheckpointRequest):
        save = take_checkpoint(request, received)
    else:
        save = take_writes(request, received)
    if save is None:
        raise ValueError("a save lacks values that came in chunks")
    return save
