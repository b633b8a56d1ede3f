"""`HistoryService` on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from tuskpoint.v1 import history_service_pb2 as pb

from ..domain.lineage import EventKind
from ..domain.model import View
from ..journal.checkpoints.pages import ReplayQuery
from ..service.history import Delivery, History
from . import convert, views
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
                shown = await views.rendered(loaded, view, call.tenant, self._history.histories)
                yield pb.ReplayThreadResponse(checkpoint=checkpoint_header(shown, cutter))
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
                event = await self._event(call.tenant, delivery, view, cutter)
                yield pb.WatchThreadResponse(event=event)
                for chunk in cutter.chunks():
                    yield pb.WatchThreadResponse(chunk=chunk)

    async def _event(
        self, tenant: str, delivery: Delivery, view: View, cutter: Cutter
    ) -> pb.ThreadEvent:
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
        if event.key.checkpoint_id:
            if delivery.checkpoint is not None:
                saved = event.kind is EventKind.CHECKPOINT_SAVED
                shown = await views.rendered(
                    delivery.checkpoint,
                    view if saved else View.ENTRY,
                    tenant,
                    self._history.histories,
                )
                message.checkpoint.CopyFrom(checkpoint_header(shown, cutter))
            else:
                message.checkpoint.ref.CopyFrom(convert.ref(event.key))
        return message
