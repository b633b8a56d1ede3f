"""`HistoryService` on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from tuskpoint.v1 import history_service_pb2 as pb

from ..domain.threads import EventKind
from ..journal.checkpoints.load import ReplayQuery
from ..service.history import Delivery, History
from . import convert
from .answers import checkpoint_header
from .calls import Call, endless
from .chunks import Cutter
from .draining import until_draining

PROGRESS_SECONDS = 15.0
"""Longest silence of a watch that does not say."""


class HistoryServicer:
    """Streams what happened on threads."""

    def __init__(self, history: History) -> None:
        self._history = history

    async def ReplayThread(
        self, request: pb.ReplayThreadRequest, call: Call
    ) -> AsyncIterator[pb.ReplayThreadResponse]:
        """Stream checkpoints, least ID first."""
        view, source = convert.view(request.view), convert.source(request.source)
        query = ReplayQuery(
            request.thread_id,
            request.checkpoint_ns if request.HasField("checkpoint_ns") else None,
            request.from_checkpoint_id,
            request.to_checkpoint_id,
        )
        async with aclosing(self._history.replay(call.tenant, query, view, source)) as checkpoints:
            async for loaded in checkpoints:
                cutter = Cutter()
                yield pb.ReplayThreadResponse(checkpoint=checkpoint_header(loaded, cutter))
                for chunk in cutter.chunks():
                    yield pb.ReplayThreadResponse(chunk=chunk)

    @endless
    async def WatchThread(
        self, request: pb.WatchThreadRequest, call: Call
    ) -> AsyncIterator[pb.WatchThreadResponse]:
        """Stream changes until the caller goes away or the server drains."""
        view, kinds = convert.view(request.view), [EventKind(kind) for kind in request.kinds]
        progress_s = PROGRESS_SECONDS
        if request.HasField("progress_interval"):
            progress_s = convert.seconds(request.progress_interval)
        deliveries = self._history.watch(
            call.tenant, request.thread_id, request.cursor, kinds, view, progress_s
        )
        async with aclosing(until_draining(call, deliveries)) as coming:
            async for delivery in coming:
                cutter = Cutter()
                yield pb.WatchThreadResponse(event=_event(delivery, cutter))
                for chunk in cutter.chunks():
                    yield pb.WatchThreadResponse(chunk=chunk)


def _event(delivery: Delivery, cutter: Cutter) -> pb.ThreadEvent:
    """Return the message for an event, the values of its checkpoint placed by the cutter."""
    event = delivery.event
    message = pb.ThreadEvent(
        kind=pb.EventKind.Name(event.kind),
        cursor=delivery.cursor,
        seq=event.seq,
        incarnation=event.incarnation,
        deleted_checkpoints=event.deleted,
        time=convert.timestamp(event.created_us),
    )
    if delivery.checkpoint is not None:
        message.checkpoint.CopyFrom(checkpoint_header(delivery.checkpoint, cutter))
    elif event.key.checkpoint_id:
        message.checkpoint.ref.CopyFrom(convert.ref(event.key))
    return message
