"""Calls on an `Exchange` stream: what a frame may be, and one that waits for its last answer."""

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
    """A call on the stream that does not have its last answer yet."""

    id: int
    kind: str
    size: int  # bytes of its frame and chunks
    ends_at: float  # time of the event loop at which it has taken too long
    measured: CallMeasurement
    named: tuple[str, ...] = ()  # threads that its request names, if the trail records it
    counts: bool = True  # against the bounds on frames without an answer
    wanted: Durability = Durability.JOURNALED
    journaled: bool = False  # it has its first answer, and waits for certification
    commit: asyncio.Future[SaveOutcome] | None = None  # of a save
    # The commit, the load or the wait for certification.
    work: asyncio.Future[SaveOutcome] | asyncio.Future[None] | None = None


SaveRequest = pb.SaveCheckpointRequest | pb.SaveWritesRequest
Request = SaveRequest | pb.GetCheckpointRequest
IncomingSave = IncomingCheckpoint | IncomingWrites


def take(request: SaveRequest) -> IncomingSave | None:
    """Take a save of either kind; `None` if its large values have to come first, in chunks."""
    if isinstance(request, pb.SaveCheckpointRequest):
        return take_checkpoint(request, streamed=True)
    return take_writes(request, streamed=True)


def take_with(request: SaveRequest, received: Sequence[ReceivedValue]) -> IncomingSave:
    """Take a save whose large values came in chunks."""
    save: IncomingSave | None
    if isinstance(request, pb.SaveCheckpointRequest):
        save = take_checkpoint(request, received)
    else:
        save = take_writes(request, received)
    if save is None:
        raise ValueError("a save lacks values that came in chunks")
    return save
