"""`CheckpointService` on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tuskpoint.v1 import checkpoint_service_pb2 as pb

from ..domain.errors import Reason, Refusal
from ..domain.limits import LIMITS
from ..domain.model import Checkpoint
from ..service.checkpoints import Checkpoints
from ..service.completing import content_bytes
from . import convert
from .answers import checkpoint_header, history_frames, save_response, writes_response
from .calls import Call
from .chunks import Cutter, whole
from .save_stream import SaveStream


class CheckpointServicer:
    """Saves checkpoints and pending writes, and loads them exactly."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints

    async def SaveCheckpoint(
        self, request: pb.SaveCheckpointRequest, call: Call
    ) -> pb.SaveCheckpointResponse:
        """Save one checkpoint."""
        wanted = convert.durability(request.durability)
        outcome = await self._checkpoints.save(call.tenant, convert.checkpoint_draft(request))
        return save_response(await self._checkpoints.reach(call.tenant, outcome, wanted))

    def SaveCheckpoints(
        self, requests: AsyncIterator[pb.SaveCheckpointsRequest], call: Call
    ) -> AsyncIterator[pb.SaveCheckpointsResponse]:
        """Save what a stream brings."""
        return SaveStream(self._checkpoints, call).answers(requests)

    async def SaveWrites(self, request: pb.SaveWritesRequest, call: Call) -> pb.SaveWritesResponse:
        """Save pending writes."""
        wanted = convert.durability(request.durability)
        writes = convert.write_drafts(request.writes, iter(()))
        outcome = await self._checkpoints.save_writes(
            call.tenant, convert.key(request.ref), writes, wanted
        )
        return writes_response(await self._checkpoints.reach(call.tenant, outcome, wanted))

    async def GetCheckpoint(
        self, request: pb.GetCheckpointRequest, call: Call
    ) -> pb.GetCheckpointResponse:
        """Return one checkpoint that fits a message."""
        loaded = await self._load(request, call)
        size = content_bytes(loaded)
        if size <= LIMITS.max_unary:
            message = convert.checkpoint(loaded, whole())
            size = message.ByteSize()
        if size > LIMITS.max_unary:
            raise Refusal(Reason.CHECKPOINT_TOO_LARGE, size_bytes=size, maximum=LIMITS.max_unary)
        return pb.GetCheckpointResponse(checkpoint=message)

    async def LoadCheckpoint(
        self, request: pb.LoadCheckpointRequest, call: Call
    ) -> AsyncIterator[pb.LoadCheckpointResponse]:
        """Stream one checkpoint."""
        loaded = await self._load(request, call)
        cutter = Cutter()
        yield pb.LoadCheckpointResponse(checkpoint=checkpoint_header(loaded, cutter))
        for chunk in cutter.chunks():
            yield pb.LoadCheckpointResponse(chunk=chunk)

    async def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, call: Call
    ) -> AsyncIterator[pb.ListCheckpointsResponse]:
        """Stream checkpoints, greatest ID first."""
        view, source = convert.view(request.view), convert.source(request.source)
        limit = request.limit if request.HasField("limit") else None
        query = convert.checkpoint_query(request)
        async for loaded in self._checkpoints.list(call.tenant, query, view, source, limit):
            cutter = Cutter()
            yield pb.ListCheckpointsResponse(checkpoint=checkpoint_header(loaded, cutter))
            for chunk in cutter.chunks():
                yield pb.ListCheckpointsResponse(chunk=chunk)

    async def GetDeltaHistory(
        self, request: pb.GetDeltaHistoryRequest, call: Call
    ) -> AsyncIterator[pb.GetDeltaHistoryResponse]:
        """Stream what rebuilds delta channels."""
        histories = await self._checkpoints.delta_history(
            call.tenant, convert.key(request.ref), request.channels
        )
        for history in histories:
            for frame in history_frames(history):
                yield frame

    async def SetLabel(self, request: pb.SetLabelRequest, call: Call) -> pb.SetLabelResponse:
        """Set or clear a label."""
        wanted = convert.durability(request.durability)
        outcome = await self._checkpoints.set_label(
            call.tenant, convert.key(request.ref), request.label
        )
        outcome = await self._checkpoints.reach(call.tenant, outcome, wanted)
        return pb.SetLabelResponse(
            ref=convert.ref(outcome.saved.key),
            seq=outcome.saved.seq,
            durability=convert.DURABILITIES[outcome.durability],
        )

    async def _load(
        self, request: pb.GetCheckpointRequest | pb.LoadCheckpointRequest, call: Call
    ) -> Checkpoint:
        view, source = convert.view(request.view), convert.source(request.source)
        return await self._checkpoints.load(call.tenant, convert.key(request.ref), view, source)
