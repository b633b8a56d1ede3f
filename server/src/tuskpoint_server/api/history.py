"""`HistoryService` on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar

from tuskpoint.v1 import history_service_pb2 as history_pb

from ..core.model import CheckpointQuery, Source, View
from ..core.threads import EventKind
from ..features.checkpoints.completing import content_bytes
from ..features.history.history import Delivery, History
from .messages.chunks import Cutter
from .messages.convert import (
    checkpoint_frames,
    checkpoint_header,
    fill_fields,
    progress_seconds,
    ref,
    timestamp,
)
from .messages.validation import Check, Checks
from .middleware.pipeline import Call, Frames, mark_endless


def _watch(checks: Checks, request: history_pb.WatchThreadRequest) -> None:
    values = {int(kind) for kind in EventKind}
    for number, kind in enumerate(request.kinds):
        if kind not in values:
            checks.fail(f"kinds[{number}]", f"{kind} is not a value of its enum")
    checks.interval(request)


@dataclass(frozen=True, slots=True)
class HistoryServicer:
    """`HistoryService`: streams the events of threads."""

    checks: ClassVar[Mapping[str, Check]] = {"WatchThreadRequest": _watch}
    _history: History

    async def ReplayThread(self, request: history_pb.ReplayThreadRequest, call: Call) -> Frames:
        query = CheckpointQuery(
            request.thread_id,
            request.checkpoint_ns if request.HasField("checkpoint_ns") else None,
            first=request.from_checkpoint_id,
            last=request.to_checkpoint_id,
            replayed=True,
        )
        view, source = View(request.view), Source(request.source)
        listing = self._history.replay(call.tenant, query, view, source)
        if view.has_values:
            listing = call.one_by_one(listing, content_bytes)
        async with aclosing(listing) as checkpoints:
            async for loaded in checkpoints:
                for frame in checkpoint_frames(loaded):
                    yield frame

    @mark_endless
    async def WatchThread(self, request: history_pb.WatchThreadRequest, call: Call) -> Frames:
        view, kinds = View(request.view), [EventKind(kind) for kind in request.kinds]
        deliveries = self._history.watch(
            call.tenant,
            request.thread_id,
            request.cursor,
            kinds,
            view,
            progress_seconds(request),
            call,
            from_now=request.from_now,
        )
        async with aclosing(deliveries) as stream:
            async for delivery in stream:
                cutter = Cutter()
                for frame in cutter.frames(event=_event(delivery, cutter)):
                    yield frame


def _event(delivery: Delivery, cutter: Cutter) -> history_pb.ThreadEvent:
    """Return the message of an event for a watcher."""
    event = delivery.event
    message = history_pb.ThreadEvent(
        cursor=delivery.cursor,
        deleted_checkpoints=event.deleted,
        time=timestamp(event.created_us),
    )
    fill_fields(message, event)
    if delivery.checkpoint is not None:
        message.checkpoint.CopyFrom(checkpoint_header(delivery.checkpoint, cutter))
    elif event.key.checkpoint_id:
        message.checkpoint.ref.CopyFrom(ref(event.key))
    return message
