"""Streams that resume after a lost connection: delivered items, and the next request. Pure."""

from __future__ import annotations

from typing import Protocol, TypeVar

from .._messages.checkpoints.large_values import CheckpointAssembler, EventAssembler
from ..errors import ServerError, Unavailable
from ..v1.checkpoint_pb2 import Checkpoint
from ..v1.handoff_service_pb2 import (
    ADOPT_STAGE_ADOPTED,
    HANDOFF_STATE_OFFERED,
    AdoptHandoffRequest,
    AdoptHandoffResponse,
    WatchHandoffsRequest,
    WatchHandoffsResponse,
)
from ..v1.history_service_pb2 import (
    ReplayThreadRequest,
    ReplayThreadResponse,
    ThreadEvent,
    WatchThreadRequest,
    WatchThreadResponse,
)

RequestT = TypeVar("RequestT", covariant=True)
FrameT = TypeVar("FrameT", contravariant=True)
ItemT = TypeVar("ItemT", covariant=True)


class Resumable(Protocol[RequestT, FrameT, ItemT]):
    """A stream that can be requested again, and the items that it delivered."""

    def next_request(self) -> RequestT:
        """Return the request for the rest of the stream."""
        ...

    def add(self, frame: FrameT) -> ItemT | None:
        """Add the next frame; return the item if the frame completes it.

        Raises:
            ServerError: The frame breaks the contract.
        """
        ...

    def end(self) -> None:
        """Check the end of the stream.

        Raises:
            TuskPointError: The stream is incomplete.
        """
        ...


class ReplayStream:
    """A replay; it resumes after the last checkpoint that it delivered.

    Args:
        request: The first request. It is not changed.
    """

    def __init__(self, request: ReplayThreadRequest) -> None:
        self._request = ReplayThreadRequest()
        self._request.CopyFrom(request)
        self._assembler = CheckpointAssembler()
        self._delivered: tuple[str, str] | None = None

    def next_request(self) -> ReplayThreadRequest:
        """See `Resumable`."""
        self._assembler = CheckpointAssembler()
        request = ReplayThreadRequest()
        request.CopyFrom(self._request)
        if self._delivered is not None:
            request.from_checkpoint_id = self._delivered[0]
        return request

    def add(self, frame: ReplayThreadResponse) -> Checkpoint | None:
        """See `Resumable`."""
        complete = self._assembler.add(frame)
        if complete is None:
            return None
        # The bound of the request includes its ID, which several namespaces may have.
        place = (complete.ref.checkpoint_id, complete.ref.checkpoint_ns)
        if self._delivered is not None and place <= self._delivered:
            return None
        self._delivered = place
        return complete

    def end(self) -> None:
        """See `Resumable`."""
        self._assembler.end()


class WatchStream:
    """A watch; it resumes after the last cursor that it delivered, and never ends.

    Args:
        request: The first request. It is not changed.
    """

    def __init__(self, request: WatchThreadRequest) -> None:
        self._request = WatchThreadRequest()
        self._request.CopyFrom(request)
        self._assembler = EventAssembler()

    def next_request(self) -> WatchThreadRequest:
        """See `Resumable`."""
        self._assembler = EventAssembler()
        request = WatchThreadRequest()
        request.CopyFrom(self._request)
        return request

    def add(self, frame: WatchThreadResponse) -> ThreadEvent | None:
        """See `Resumable`."""
        complete = self._assembler.add(frame)
        if complete is not None:
            self._request.cursor = complete.cursor
        return complete

    def end(self) -> None:
        """See `Resumable`.

        Raises:
            Unavailable: Always: a watch does not end by itself.
        """
        raise Unavailable("the server ended the watch", status="UNAVAILABLE")


class AdoptionStream:
    """An adoption. After a lost connection it delivers only new stages.

    Args:
        request: The request, with a `request_id`.
    """

    def __init__(self, request: AdoptHandoffRequest) -> None:
        self._request = request
        self._furthest = (-1, 0)

    def next_request(self) -> AdoptHandoffRequest:
        """See `Resumable`."""
        return self._request

    def add(self, frame: AdoptHandoffResponse) -> AdoptHandoffResponse | None:
        """See `Resumable`."""
        place = (int(frame.stage), frame.fetched_bytes)
        if place <= self._furthest:
            return None
        self._furthest = place
        return frame

    def end(self) -> None:
        """See `Resumable`."""
        if self._furthest[0] < ADOPT_STAGE_ADOPTED:
            raise ServerError("the server's stream ended without an adoption", status="INTERNAL")


class OfferStream:
    """A watch of an inbox, which never ends. After a break it delivers only new open offers.

    Args:
        request: The request, for offers in all states.
    """

    def __init__(self, request: WatchHandoffsRequest) -> None:
        self._request = request
        self._open: set[str] = set()  # delivered offers, as far as is known
        self._listed: set[str] | None = None  # open offers, until all have arrived again

    def next_request(self) -> WatchHandoffsRequest:
        """See `Resumable`."""
        self._listed = set()
        return self._request

    def add(self, frame: WatchHandoffsResponse) -> WatchHandoffsResponse | None:
        """See `Resumable`."""
        handoff = frame.handoff
        if not frame.HasField("handoff"):
            if self._listed is not None:
                self._open &= self._listed
                self._listed = None
            return frame
        if handoff.state != HANDOFF_STATE_OFFERED:
            self._open.discard(handoff.handoff_id)
            return frame
        if self._listed is not None:
            self._listed.add(handoff.handoff_id)
        if handoff.handoff_id in self._open:
            return None
        self._open.add(handoff.handoff_id)
        return frame

    def end(self) -> None:
        """See `Resumable`.

        Raises:
            Unavailable: Always: a watch does not end by itself.
        """
        raise Unavailable("the server ended the watch", status="UNAVAILABLE")
