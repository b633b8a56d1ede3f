"""A watch of an inbox delivers each open offer once, however often it starts again."""

from __future__ import annotations

import pytest

from tuskpoint import Unavailable
from tuskpoint._transport.resume import OfferStream
from tuskpoint.v1.handoff_service_pb2 import (
    HANDOFF_STATE_ADOPTED,
    HANDOFF_STATE_OFFERED,
    Handoff,
    HandoffState,
    WatchHandoffsRequest,
    WatchHandoffsResponse,
)

ALL_ARRIVED = WatchHandoffsResponse()


def offer(name: str, state: HandoffState = HANDOFF_STATE_OFFERED) -> WatchHandoffsResponse:
    return WatchHandoffsResponse(handoff=Handoff(handoff_id=name, state=state))


def delivered(stream: OfferStream, *frames: WatchHandoffsResponse) -> list[str]:
    """Return the IDs of the offers that a stream passes on."""
    passed = filter(None, map(stream.add, frames))
    return [frame.handoff.handoff_id for frame in passed if frame.HasField("handoff")]


def test_an_open_offer_is_delivered_once() -> None:
    stream = OfferStream(WatchHandoffsRequest(to_agent="writer"))
    assert stream.next_request() == WatchHandoffsRequest(to_agent="writer")
    assert delivered(stream, offer("a"), offer("b"), ALL_ARRIVED, offer("c")) == ["a", "b", "c"]
    assert delivered(stream, offer("b", HANDOFF_STATE_ADOPTED)) == ["b"]
    stream.next_request()  # after a break, before which "a" was closed unseen
    assert delivered(stream, offer("c"), offer("d"), ALL_ARRIVED) == ["d"]
    assert stream._open == {"c", "d"}
    stream.next_request()  # a break before all open offers have arrived
    assert delivered(stream, offer("c")) == []
    stream.next_request()
    assert delivered(stream, offer("c"), offer("d"), offer("e"), ALL_ARRIVED) == ["e"]
    with pytest.raises(Unavailable):
        stream.end()
