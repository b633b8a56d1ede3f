"""Calls on an `Exchange` stream: what a frame may be, and one that waits for its last answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuskpoint.v1 import checkpoint_service_pb2 as pb

from ...core.model import Durability
from ..messages.saves import take_checkpoint, take_writes
from ..middleware.telemetry import Measured

_SERVICE = "/tuskpoint.v1.CheckpointService"
METHODS = {
    "save": f"{_SERVICE}/SaveCheckpoint",
    "writes": f"{_SERVICE}/SaveWrites",
    "get": f"{_SERVICE}/GetCheckpoint",
}
TAKES: dict[str, Callable[..., Any]] = {"save": take_checkpoint, "writes": take_writes}
DRAINING = pb.ExchangeResponse(draining=True).SerializeToString()
MIN_SESSION_BYTES, MAX_SESSION_BYTES = 16, 64


@dataclass(slots=True, eq=False)
class Frame:
    """A call on the stream that does not have its last answer yet."""

    id: int
    kind: str
    size: int  # bytes of its frame and chunks
    ends_at: float  # time of the event loop at which it has taken too long
    measured: Measured
    named: tuple[str, ...] = ()  # threads that its request names, if the trail records it
    counts: bool = True  # against the bounds on frames without an answer
    wanted: Durability = Durability.JOURNALED
    journaled: bool = False  # it has its first answer, and waits for certification
    work: asyncio.Future[Any] | None = None  # the commit, the load or the wait for certification
