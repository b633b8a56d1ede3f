"""Streams that go on where they broke off: what was delivered, and what is asked for next. Pure."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ._frames import CheckpointAssembler, EventAssembler
from .errors import ServerError, Unavailable
from .v1.checkpoint_pb2 import Checkpoint
from .v1.handoff_service_pb2 import (
    ADOPT_STAGE_ADOPTED,
    AdoptHandoffRequest,
    AdoptHandoffResponse,
)
from .v1.history_service_pb2 import (
    ReplayThreadRequest,
    ReplayThreadResponse,
    ThreadEvent,
    WatchThreadRequest,
    WatchThreadResponse,
)

RequestT = TypeVar("RequestT", covariant=True)
FrameT = TypeVar("FrameT", contravariant=True)
ItemT = TypeVar("ItemT", covariant=True)


class Course(Protocol[RequestT, FrameT, ItemT]):
    """A stream that may be begun again, with what was delivered of it."""

    def begin(self) -> RequestT:
        """Return the request for what was not delivered yet."""
        ...

    def take(self, frame: FrameT) -> ItemT | None:
        """Take the next frame; return what is to be delivered now, if anything is.

        Raises:
            ServerError: The frame breaks the contract.
        """
        ...

    def end(self) -> None:
        """Take the end of the stream.

        Raises:
            TuskPointError: It must not end here.
        """
        ...


class ReplayCourse:
    """A replay; it goes on after the last checkpoint that it delivered.

    Args:
        request: Where to begin. It is not changed.
    """

    def __init__(self, request: ReplayThreadRequest) -> None:
        self._request = ReplayThreadRequest()
        self._request.CopyFrom(request)
        self._assembler = CheckpointAssembler()
        self._delivered: tuple[str, str] | None = None

    def begin(self) -> ReplayThreadRequest:
        """See `Course`."""
        self._assembler = CheckpointAssembler()
        request = ReplayThreadRequest()
        request.CopyFrom(self._request)
        if self._delivered is not None:
            request.from_checkpoint_id = self._delivered[0]
        return request

    def take(self, frame: ReplayThreadResponse) -> Checkpoint | None:
        """See `Course`."""
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
        """See `Course`."""
        self._assembler.end()


class WatchCourse:
    """A watch; it goes on after the last cursor that it delivered, and never ends.

    Args:
        request: Where to begin. It is not changed.
    """

    def __init__(self, request: WatchThreadRequest) -> None:
        self._request = WatchThreadRequest()
        self._request.CopyFrom(request)
        self._assembler = EventAssembler()

    def begin(self) -> WatchThreadRequest:
        """See `Course`."""
        self._assembler = EventAssembler()
        request = WatchThreadRequest()
        request.CopyFrom(self._request)
        return request

    def take(self, frame: WatchThreadResponse) -> ThreadEvent | None:
        """See `Course`."""
        complete = self._assembler.add(frame)
        if complete is not None:
            self._request.cursor = complete.cursor
        return complete

    def end(self) -> None:
        """See `Course`.

        Raises:
            Unavailable: Always: whoever ended the stream, the thread goes on.
        """
        raise Unavailable("the server ended the watch", status="UNAVAILABLE")


class AdoptCourse:
    """An adoption; begun again, it tells only of what is further than before.

    Args:
        request: The request, with a `request_id`.
    """

    def __init__(self, request: AdoptHandoffRequest) -> None:
        self._request = request
        self._furthest = (-1, 0)

    def begin(self) -> AdoptHandoffRequest:
        """See `Course`."""
        return self._request

    def take(self, frame: AdoptHandoffResponse) -> AdoptHandoffResponse | None:
        """See `Course`."""
        place = (int(frame.stage), frame.fetched_bytes)
        if place <= self._furthest:
            return None
        self._furthest = place
        return frame

    def end(self) -> None:
        """See `Course`."""
        if self._furthest[0] < ADOPT_STAGE_ADOPTED:
            raise ServerError("the server's stream ended without an adoption", status="INTERNAL")
